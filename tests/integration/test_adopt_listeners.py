"""Listeners under another name of the stream: each continues after all outcomes of the former one."""

from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from sluicegate.coordinator.core.state_record import listener_key
from sluicegate.coordinator.listeners.records import ListenerRecord, encode
from sluicegate.events.envelope import partition_of
from sluicegate.kafka.clients import started
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, Job, read_records
from tests.integration.orders import Spoken, config_of, invoke_here, sluicegate
from tests.integration.test_adopt_marks import MARKS, batch, months, options
from tests.integration.test_adopt_marks import monthly_place as monthly_place
from tests.integration.test_listeners import announced
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


async def test_a_listener_that_cannot_catch_up_skips_what_is_done_by_hand(place: Place) -> None:
    async with receiving(place.table) as receiver, place.job() as job:
        await behind(place, job, receiver)
        refused = await adopt(place, {"hook": hook(place, receiver)})
        assert "do by hand what it would have done, and set skip_through = 3" in refused.stderr
        own = hook(place, receiver, skip_through=3)
        adopted = await adopt(place, {"hook": own})
        assert adopted.exit_code == 0, adopted.output
        await four_events(place, job, receiver, own)
    assert receiver.decisions() == [1, 4]


async def test_reverted_decisions_that_a_listener_has_handled_get_their_numbers_again(place: Place) -> None:
    async with receiving(place.table) as receiver, place.job() as job:
        await three_events(place, job, receiver)
        home = partition_of("flights", PARTITIONS)
        # As after the outcomes `cut.reverted` of 4 and 5.
        record = ListenerRecord(
            stream="flights", listener="hook", type="webhook", owner="o", partition=home, offset=0, decision=5
        )
        async with started(AIOKafkaProducer(bootstrap_servers=place.bootstrap)) as producer:
            key = listener_key("flights", "hook", "o").encode()
            await producer.send_and_wait(place.topics.state, encode(record), key=key, partition=home)
        own = hook(place, receiver)
        assert "after decision 3" in (await adopt(place, {"hook": own})).stdout
        await four_events(place, job, receiver, own)
    assert receiver.decisions() == [1, 2, 3, 4]


async def test_marks_of_a_listener_that_was_left_out_for_a_time_are_made_once(monthly_place: Place) -> None:
    """Its coordinator had it no more, so its record is old. The former name gets it back for the rest."""
    place, marks = monthly_place, {"months": dict(MARKS)}
    async with place.job() as job:
        async with running(place.settings(options=options())):
            assert (await job.register()).accepted
            await batch(job, "2013-01", "2013-01-20", 1)
            await until(lambda: announced(job))
        async with running(place.settings()):
            await batch(job, "2013-02", "2013-03-10", 2)
        refused = await adopt(place, marks)
        assert refused.exit_code == 2, refused.output
        assert "months (handled " in refused.stderr
        async with running(place.settings(options=options())):
            await until(lambda: months(place).success(), lambda found: found == ["2013-01", "2013-02"])
        made = {
            each: (months(place).folder(each) / "_SUCCESS").read_text() for each in ("2013-01", "2013-02")
        }
        adopted = await adopt(place, marks)
        assert adopted.exit_code == 0, adopted.output
        settings = place.settings("departures", options=options(**USER))
        async with renamed(place, job) as new, running(settings):
            assert (answer := await new.register()).accepted, answer
            await batch(new, "2013-03", "2013-04-10", 3)
            await until(lambda: months(place).success(), lambda found: "2013-03" in found)
    assert {each: (months(place).folder(each) / "_SUCCESS").read_text() for each in made} == made


async def test_a_listener_with_another_name_has_no_record_and_is_told_the_former_names(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings(options={"listeners": {"done": MARK_EVENTS}})):
            await job.register()
            await job.run_batch([1])
            await until(lambda: announced(job))
        told = (await adopt(place, {"done2": MARK_EVENTS}, "--dry-run")).stdout
        assert (
            "the former stream flights has no record of a listener done2 of this type; it has done." in told
        )
        assert "A listener that shall continue keeps its name and type" in told
        assert "is lost" not in told


MARK_EVENTS = {"type": "mark-done", "actions": ["mark-event"]}
