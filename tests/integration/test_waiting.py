"""What waits is told with what it waits for, and what is dropped with why."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from sluicegate.coordinator.dead_letters.letterbox import Letterbox
from sluicegate.coordinator.runtime.service import Service
from sluicegate.coordinator.telemetry import waiting
from sluicegate.coordinator.telemetry.metrics import PREFIX
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.letters import letters
from tests.integration.orders import sluicegate
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

Lines = list[Any]


def waits_for(service: Service) -> list[str]:
    found: list[str] = service.status()["streams"]["flights"]["waits_for"]
    return found


def uncut(service: Service) -> float:
    name = f'{PREFIX}oldest_uncut_age_seconds{{stream="flights"}} '
    lines = service._metrics.render().decode().splitlines()
    return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0.0)


def warnings(logged: Lines) -> Lines:
    return [line for line in logged if line["event"] == "completed work waits to be committed"]


async def test_a_region_that_is_never_opened_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE", 1.0)
    with capture_logs() as logged:
        async with running(place.settings()) as service, place.job(regions=("r1", "r2")) as job:
            await job.register()
            await job.run_batch([1])
            missing = ["region r2 has never been opened"]
            await until(lambda: waits_for(service), lambda found: found == missing)
            await until(lambda: uncut(service), lambda age: age > 3)
            async with place.job(regions=("r1", "r2"), region="r2", incarnation="q2") as other:
                await other.register()
                await other.run_batch([2])
                await job.committed([1, 2])
            await until(lambda: uncut(service), lambda age: age == 0)
    (told,) = warnings(logged)
    assert told["log_level"] == "warning"
    assert told["stream"] == "flights"
    assert told["waits_for"] == missing
    assert told["seconds"] >= 1


async def test_an_event_that_never_arrives_is_named_again_and_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE", 1.0)
    monkeypatch.setattr(waiting, "PAUSE", 2.0)
    with capture_logs() as logged:
        async with running(place.settings()), place.job() as job:
            await job.register()
            await job.complete("never-arrives")
            await until(lambda: len(warnings(logged)) >= 2)
    first, second = warnings(logged)[:2]
    assert all("never-arrives" in line["waits_for"][0] for line in (first, second))
    assert second["seconds"] - first["seconds"] >= 1


async def test_a_letter_that_was_not_sent_is_sent_after_a_restart(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state record is behind the event by then, so it is only read again."""
    async with place.job() as job, place.job(lineage="ghost.0") as ghost:
        with monkeypatch.context() as patched:
            patched.setattr(Letterbox, "next", lambda *_: [])
            async with running(place.settings()):
                await job.register()
                await ghost.run_batch([1])
                await job.run_batch([2])
                await job.committed([2])
        assert await letters(job) == []
        for _ in range(2):
            async with running(place.settings()):
                ((_, reason),) = await until(lambda: letters(job))
                assert "lineage ghost.0 of region r1 of stream flights is not the live one" in reason
                await job.run_batch([3])
                await until(lambda: len(read_ids(place.table)), lambda rows: rows > 1)


async def test_completions_of_a_replaced_query_are_put_aside_with_the_reason(place: Place) -> None:
    """An operator lets a second query take the region while the first goes on."""
    async with place.job(lineage="A.0") as first, place.job(lineage="B.0") as second:
        async with running(place.settings()):
            assert (await first.register()).accepted
            event = await first.written(first.write_files([1]))
            order = ("accept", "--stream", "flights", "--region", "r1", "--lineage", "B.0")
            await sluicegate(place, *order, "--force")
            await until(second.register, lambda answer: answer.accepted)
            await first.complete(event)
            await second.run_batch([2])
            await second.committed([2])
            ((_, reason),) = await until(lambda: letters(first))
            assert "lineage A.0 of region r1 of stream flights is not the live one (which is B.0)" in reason
            assert "two queries with one region name" in reason
        async with running(place.settings()):
            await second.run_batch([3])
            await second.committed([2, 3])
        assert len(await letters(first)) == 1
    assert read_ids(place.table) == [2, 3]
