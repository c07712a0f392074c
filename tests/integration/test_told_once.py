"""What a coordinator's log says of openings and events once, and not again at each restart."""

from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluicegate.events.models import OpeningAnswered
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import running
from tests.integration.job import Job
from tests.integration.letters import headers_of, put_raw, typed
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


def told(logs: Sequence[Any], event: str) -> list[str]:
    """The reasons of lines that an operator sees."""
    return [str(line["reason"]) for line in logs if line["event"] == event and line["log_level"] != "debug"]


async def refusals(job: Job, count: int) -> list[OpeningAnswered]:
    """Wait until so many openings of the job's stream are refused."""

    async def refused() -> list[OpeningAnswered]:
        bodies = [event.body for event in await job.notifications()]
        return [body for body in bodies if isinstance(body, OpeningAnswered) and not body.accepted]

    return await until(refused, lambda found: len(found) >= count)


async def test_what_has_no_effect_is_told_when_it_is_read_first(place: Place) -> None:
    stray = place.job(neighbour("flights", same=True))
    async with place.job() as job, stray:
        with capture_logs() as first:
            async with running(place.settings()):
                await job.open()
                event = await job.written(job.write_files([1]))
                await job.complete(event)
                await job.committed([1])
                # Nothing behind it is released before it is committed, so all that follows is read again.
                waiting = await job.written(job.write_files([2]))
                job.batch, job.previous = 0, None
                await job.complete(event)
                await stray.open()
        assert len(told(first, "opening refused")) == 1
        assert told(first, "no effect") == ["settled"]
        with capture_logs() as again:
            async with running(place.settings()):
                await job.complete(waiting)
                await job.committed([1, 2])
        assert told(again, "opening refused") == []
        assert told(again, "no effect") == []


async def test_openings_behind_a_newer_release_are_refused_again_without_a_word(place: Place) -> None:
    async with place.job() as job:
        with capture_logs() as first:
            async with running(place.settings()):
                await job.open()
                await put_raw(job, b"{}", headers_of(job, typed("files.written", 9), ce_files="1"))
                assert not (await job.open()).accepted
        assert len(told(first, "opening refused")) == 1
        with capture_logs() as again:
            async with running(place.settings()):
                await refusals(job, 2)
                assert not (await job.open()).accepted
        assert len(told(again, "opening refused")) == 1, "the new one alone"
