"""Work that waits is shown with the reason, and dropped work has a dead letter."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from sluicegate.coordinator.observe.metrics import PREFIX
from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.stream import telemetry
from sluicegate.coordinator.stream.letters import Letterbox
from sluicegate.events.problems import Code
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.letters import codes, conditions, letters
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

Lines = list[Any]


def waits_for(service: Service) -> list[list[str]]:
    """Return the regions that the next commit waits for, by condition."""
    return [
        each["arguments"]["names"] for each in conditions(service) if each["code"] == Code.WAITS_FOR_REGIONS
    ]


def uncut(service: Service) -> float:
    name = f'{PREFIX}oldest_uncut_age_seconds{{stream="flights"}} '
    lines = service._metrics.render().decode().splitlines()
    return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0.0)


def warnings(logged: Lines) -> Lines:
    return [line for line in logged if line["event"] == "completed work waits to be committed"]


async def test_a_region_that_never_registers_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "PATIENCE", 1.0)
    with capture_logs() as logged:
        async with running(place.settings()) as service, place.job(regions=("r1", "r2")) as job:
            await job.register()
            await job.run_batch([1])
            await until(lambda: waits_for(service), lambda found: found == [["r2"]])
            await until(lambda: uncut(service), lambda age: age > 3)
            async with place.job(regions=("r1", "r2"), region="r2", incarnation="q2") as other:
                await other.register()
                await other.run_batch([2])
                await job.committed([1, 2])
            await until(lambda: uncut(service), lambda age: age == 0)
    found = warnings(logged)[0]
    assert (found["log_level"], found["stream"]) == ("warning", "flights")
    assert any("r2" in reason for reason in found["reasons"])
    assert found["seconds"] >= 1


async def test_an_event_that_never_arrives_is_named_again_and_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "PATIENCE", 1.0)
    with capture_logs() as logged:
        async with running(place.settings()), place.job() as job:
            await job.register()
            await job.complete("never-arrives")
            found = await until(lambda: _naming("never-arrives", logged), lambda lines: len(lines) >= 2)
    assert found[1]["seconds"] - found[0]["seconds"] >= 1


def _naming(event: str, logged: Lines) -> Lines:
    """Return the warnings that name an event. It is missing only after a while."""
    return [line for line in warnings(logged) if any(event in reason for reason in line["reasons"])]


async def test_a_letter_that_was_not_sent_is_sent_after_a_restart(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state record is behind the event by then, so it is only read again."""
    async with place.job() as job, place.job(incarnation="ghost") as ghost:
        with monkeypatch.context() as patched:
            patched.setattr(Letterbox, "next", lambda *_: [])
            async with running(place.settings()):
                await job.register()
                await ghost.run_batch([1])
                await job.run_batch([2])
                await job.committed([2])
        assert await codes(job) == []
        for _ in range(2):
            async with running(place.settings()):
                ((_, code),) = await until(lambda: codes(job))
                assert code == Code.NOT_LIVE
                await job.run_batch([3])
                await until(lambda: len(read_ids(place.table)), lambda rows: rows > 1)


async def test_completions_of_a_replaced_query_are_put_aside_with_the_reason(place: Place) -> None:
    """An operator resets the region while its first query runs on."""
    async with place.job() as first, place.job() as second:
        async with running(place.settings()):
            assert (await first.register()).accepted
            event = await first.written(first.write_files([1]))
            assert (await second.begin("q2")).accepted
            await first.complete(event)
            await second.run_batch([2])
            await second.committed([2])
            ((_, reason),) = await until(lambda: letters(first))
            assert "its incarnation q1 is not the live one of its region r1" in reason
        async with running(place.settings()):
            await second.run_batch([3])
            await second.committed([2, 3])
        assert [code for _, code in await codes(first)] == [Code.NOT_LIVE]
    assert read_ids(place.table) == [2, 3]
