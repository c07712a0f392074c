"""Listeners: each outcome under one key, after it is visible, whatever becomes of coordinators."""

import asyncio
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from sluicegate.coordinator.listeners.worker import ListenerCode
from sluicegate.events.notifications import NotificationType
from tests.faults.points import LISTENER_POINTS
from tests.integration.conftest import Place
from tests.integration.coordinator import coordinator_process, running
from tests.integration.job import Job, create_table, delete_records, read_ids, read_records
from tests.integration.orders import Spoken, config_of, invoke_here, sluicegate
from tests.integration.waiting import exit_status, until, watched
from tests.integration.webhooks import Receiver, code, config_with, hook, receiving, shown, table, with_hook

pytestmark = pytest.mark.kafka


async def announced(job: Job) -> dict[str, int]:
    """Ids of the outcomes on the commits topic, with their decisions."""
    kinds = {NotificationType.COMMITTED, NotificationType.PARTIALLY_COMMITTED, NotificationType.REVERTED}
    return {each.id: each.body.decision for each in await job.notifications() if each.type in kinds}  # type: ignore[attr-defined]


@pytest.mark.seam
async def test_each_commit_is_sent_after_it_is_visible_with_its_partitions(place: Place) -> None:
    async with (
        receiving(place.table) as receiver,
        place.job() as job,
        running(with_hook(place, receiver)) as service,
    ):
        await job.register()
        for number in (1, 2, 3):
            await job.commit([number], range(1, number + 1))
        await until(receiver.decisions, lambda found: len(found) >= 3)
        await until(lambda: shown(service)["backlog"], lambda backlog: backlog == 0)
        assert shown(service)["problem"] is None
        assert {each["id"] for each in receiver.got} == set(await announced(job))
    assert receiver.decisions() == [1, 2, 3]
    assert receiver.hidden == []
    event = receiver.got[0]
    assert (event["type"], event["stream"]) == ("sluicegate.commit.visible.v5", "flights")
    assert event["data"]["summary"]["touched"] == [{}]


@pytest.mark.seam
async def test_lost_outcomes_stop_the_listener_until_they_are_skipped(place: Place) -> None:
    async with receiving(place.table) as receiver, place.job() as job:
        async with running(with_hook(place, receiver)):
            await job.register()
            await job.run_batch([1])
            await until(receiver.decisions, lambda found: found == [1])
        async with running(place.settings()):
            for number in (2, 3):
                await job.commit([number], range(1, number + 1))
            await until(lambda: announced(job), lambda found: 3 in found.values())
        await delete_records(place.bootstrap, place.topics.commits, "flights")
        async with running(with_hook(place, receiver)) as service:
            await until(lambda: code(service), lambda found: found == ListenerCode.OUTCOMES_LOST)
            message = shown(service)["problem"]["message"]
            assert "decisions 2 to 3" in message
            assert "skip_through = 3" in message
        async with running(with_hook(place, receiver, skip_through=3)):
            await job.run_batch([4])
            await until(receiver.decisions, lambda found: found == [1, 4])


@pytest.mark.seam
async def test_a_listener_gets_the_commits_after_an_adoption_and_none_that_are_given_up(place: Place) -> None:
    async with receiving(place.table) as receiver, place.job() as job:
        async with running(with_hook(place, receiver)):
            await job.register()
            for number in (1, 2):
                await job.commit([number], range(1, number + 1))
            await until(receiver.decisions, lambda found: found == [1, 2])
        async with running(place.settings()):
            # The listener is behind when the table is lost.
            await job.commit([3], range(1, 4))
            await until(lambda: announced(job), lambda found: 3 in found.values())
        shutil.rmtree(place.table)
        assert create_table(place.root) == place.table
        adopt = ("stream", "adopt", "--stream", "flights", "--give-up", "3")
        config = config_with(place, hook(place, receiver)).rename(place.root / "with_hook.toml")
        adopted = await invoke_here(place, *adopt, "--config", str(config))
        assert adopted.exit_code == 0, adopted.stderr
        assert "listener hook continues with its record, after decision 0" in adopted.output
        async with running(with_hook(place, receiver)):
            assert (await job.begin("after-the-adoption")).accepted
            await job.commit([1], [1])
            await until(receiver.decisions, lambda found: found == [1, 2, 1])
    assert len({each["id"] for each in receiver.got}) == 3


async def reached(place: Place, rows: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the table has so many rows."""

    def enough(found: list[int]) -> bool:
        return len(found) >= rows

    await until(lambda: read_ids(place.table), enough, by=process, log=log)


async def test_every_outcome_is_covered_through_kills(place: Place) -> None:
    async with receiving(place.table) as receiver, place.job() as job:
        config, log = config_with(place, hook(place, receiver, start="earliest")), place.root / "log"
        for life in range(4):
            with coordinator_process(config, log) as process:
                if life == 0:
                    await job.register()
                for number in range(3):
                    await job.run_batch([3 * life + number + 1])
                # The kill comes between the table, the feed and the listener, at another place in each life.
                await reached(place, 3 * life + 1, process, log)
        with coordinator_process(config, log) as process:
            await reached(place, 12, process, log)

            async def covered() -> bool:
                ids = await announced(job)
                return bool(ids) and set(ids) == {each["id"] for each in receiver.got}

            await until(covered, by=process, log=log)
    keys = {each["id"]: each["data"]["decision"] for each in receiver.got}
    assert sorted(keys.values()) == list(range(1, max(keys.values()) + 1)), "each decision has one key"
    assert receiver.hidden == []


TURNS: Final = (1, 2, 3)
"""The first record, that of the task, and the one after the first action."""

STARTS: Final[dict[str, dict[str, Any]]] = {"new": {}, "earliest": {"start": "earliest"}}


@pytest.mark.parametrize(("turn", "start"), [*((turn, "new") for turn in TURNS), (1, "earliest")])
@pytest.mark.parametrize("point", sorted(LISTENER_POINTS))
async def test_no_outcome_is_missed_after_a_kill_beside_a_record(
    place: Place, point: str, turn: int, start: str
) -> None:
    """Two batches are in the log before the coordinator starts, so it commits while its listener begins."""
    log = place.root / "log"
    async with receiving(place.table) as receiver, place.job() as job:
        async with running(place.settings()):
            await job.register()
        for number in (1, 2):
            await job.run_batch([number])
        config = config_with(place, hook(place, receiver, **STARTS[start]))
        with coordinator_process(config, log, FAILPOINTS=f"{point}=kill@{turn}") as first:
            assert await asyncio.to_thread(exit_status, first, log) == -signal.SIGKILL
        if (point, turn) == ("listener-record.before", 1):
            # Without a record of the listener, nothing is announced that it could miss.
            assert await announced(job) == {}
            assert receiver.asked == 0
        await job.run_batch([3])
        with coordinator_process(config, log) as second, watched(second):
            await job.committed([1, 2, 3])
            every = [*range(1, _commits(place) + 1)]
            await until(receiver.decisions, lambda found: sorted({*found}) == every, log=log)
            assert sorted({*(await announced(job)).values()}) == every
    assert receiver.hidden == []


def _commits(place: Place) -> int:
    return len([*(Path(place.table) / "snapshot").glob("snapshot-*")])


USER = {"commit_user": "sluicegate-flights"}
ADOPT = ("stream", "adopt", "--stream", "departures", "--from-stream", "flights")


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
            await job.commit([number], range(1, number + 1))
        await until(lambda: shown(service), lambda found: (found["decision"], found["backlog"]) == (1, 2))
    receiver.status = 200


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


async def four_events(place: Place, job: Job, receiver: Receiver, own: dict[str, Any]) -> None:
    """Commit decision 4 under the new name, and wait for its event."""
    settings = place.settings("departures", options={"listeners": {"hook": own}, **USER})
    given = {"incarnation": "q2", "base": job.previous, "previous": job.previous, "batch": job.batch}
    async with place.job("departures", **given) as new, running(settings) as service:
        assert (answer := await new.register()).accepted, answer
        await new.run_batch([4])
        await until(receiver.decisions, lambda found: found[-1:] == [4])
        views = service.status()["streams"]["departures"]["listeners"]
        assert views["hook"]["problem"] is None
