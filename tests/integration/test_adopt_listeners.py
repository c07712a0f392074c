"""Listeners under another name of the stream: each continues after all outcomes of the former one."""

from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_records
from tests.integration.orders import Spoken, config_of, invoke_here, sluicegate
from tests.integration.test_adopt_marks import monthly_place as monthly_place
from tests.integration.waiting import until
from tests.integration.webhooks import Receiver, hook, receiving, shown, table, with_hook

pytestmark = pytest.mark.kafka

USER = {"commit_user": "sluicegate-flights"}
ADOPT = ("stream", "adopt", "--stream", "departures", "--from-table", "--from-stream", "flights")


def adopting(place: Place, listeners: dict[str, dict[str, Any]]) -> Path:
    """Write settings that have the stream under its new name, with these listeners; return their file."""
    text = config_of(place).read_text().replace("[streams.flights]", "[streams.departures]", 1)
    own = [
        table(each, "departures").replace("listeners.hook]", f"listeners.{name}]")
        for name, each in listeners.items()
    ]
    config = place.root / "adopting.toml"
    config.write_text("\n".join([text, 'commit_user = "sluicegate-flights"', *own]))
    return config


async def adopt(place: Place, listeners: dict[str, dict[str, Any]], *more: str) -> Spoken:
    config = adopting(place, listeners)
    return await invoke_here(place, *ADOPT, "--config", str(config), *more)


async def behind(place: Place, job: Job, receiver: Receiver) -> None:
    """Commit three decisions; the listener has handled the first one."""
    async with running(with_hook(place, receiver)) as service:
        await job.register()
        await job.run_batch([1])
        await until(receiver.decisions, lambda found: found == [1])
        receiver.status = 500
        for number in (2, 3):
            await job.run_batch([number])
            await job.committed(range(1, number + 1))
        await until(lambda: shown(service), lambda found: (found["decision"], found["backlog"]) == (1, 2))
    receiver.status = 200


def renamed(place: Place, job: Job) -> Job:
    """A job that continues under the new name."""
    return place.job(
        "departures", incarnation="q2", base=job.previous, previous=job.previous, batch=job.batch
    )


async def test_a_listener_that_is_behind_catches_up_before_the_stream_gets_another_name(place: Place) -> None:
    async with receiving(place.table) as receiver, place.job() as job:
        await behind(place, job, receiver)
        own = hook(place, receiver)
        before = await read_records(place.bootstrap, place.topics.state)
        for more in (["--dry-run"], []):
            refused = await adopt(place, {"hook": own}, *more)
            assert refused.exit_code == 2, refused.output
            assert (
                "behind decision 3, the newest one in the table: hook (handled decision 1)" in refused.stderr
            )
            assert "no listener is behind in: sluicegate status --stream flights" in refused.stderr
        assert len(await read_records(place.bootstrap, place.topics.state)) == len(before)
        without = await adopt(place, {}, "--dry-run")
        assert without.exit_code == 0, without.output
        async with running(with_hook(place, receiver)) as service:
            status = ("status", "--stream", "flights")

            async def handled() -> str:
                return await sluicegate(place, *status, HTTP__PORT=str(service.http_port))

            told = await until(handled, lambda text: "listener hook (webhook): handled decision 3" in text)
            assert "behind" not in told
        adopted = await adopt(place, {"hook": own})
        assert adopted.exit_code == 0, adopted.output
        assert "listener hook continues with its record, after decision 3" in adopted.stdout
        await four_events(place, job, receiver, own)
    assert receiver.decisions() == [1, 2, 3, 4]


async def three_events(place: Place, job: Job, receiver: Receiver) -> None:
    """Commit three decisions under the former name; the listener handles all of them."""
    async with running(with_hook(place, receiver)):
        await job.register()
        for number in (1, 2, 3):
            await job.run_batch([number])
            await job.committed(range(1, number + 1))
        await until(receiver.decisions, lambda found: found == [1, 2, 3])


async def four_events(place: Place, job: Job, receiver: Receiver, own: dict[str, Any]) -> None:
    """Commit decision 4 under the new name, and wait for its event."""
    settings = place.settings("departures", options={"listeners": {"hook": own}, **USER})
    async with renamed(place, job) as new, running(settings) as service:
        assert (answer := await new.register()).accepted, answer
        await new.run_batch([4])
        await until(receiver.decisions, lambda found: found[-1:] == [4])
        views = service.status()["streams"]["departures"]["listeners"]
        assert views["hook"]["problem"] is None
