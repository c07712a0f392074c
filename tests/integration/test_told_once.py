"""Refused registrations and events without effect are logged once, and not again at each restart."""

from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import Code
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import running
from tests.integration.job import Job
from tests.integration.letters import headers_of, put_raw, typed
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


def logged(logs: Sequence[Any], event: str) -> list[str]:
    """Return the codes of lines that an operator sees."""
    shown = [line for line in logs if line["event"] == event and line["log_level"] != "debug"]
    # A registration before the first policy is refused, and the job asks again.
    return [str(line["code"]) for line in shown if line["code"] != Code.NO_POLICY]


async def refusals(job: Job, count: int) -> list[RegistrationAnswered]:
    """Wait until so many registrations of the job's stream are refused."""

    async def refused() -> list[RegistrationAnswered]:
        bodies = [event.body for event in await job.notifications()]
        return [body for body in bodies if isinstance(body, RegistrationAnswered) and not body.accepted]

    return await until(refused, lambda found: len(found) >= count)


async def test_an_event_without_effect_is_logged_when_it_is_read_first(place: Place) -> None:
    other = place.job(neighbour("flights", same=True))
    async with place.job() as job, other:
        with capture_logs() as first:
            async with running(place.settings()):
                await job.register()
                event = await job.written(job.write_files([1]))
                await job.complete(event)
                await job.committed([1])
                # Nothing behind it is released before it is committed, so all that follows is read again.
                waiting = await job.written(job.write_files([2]))
                job.batch, job.previous = 0, None
                await job.complete(event)
                await other.register()
        assert logged(first, "registration refused") == [Code.UNKNOWN_STREAM]
        assert logged(first, "event without effect") == [Code.SETTLED]
        with capture_logs() as again:
            async with running(place.settings()):
                await job.complete(waiting)
                await job.committed([1, 2])
        assert logged(again, "registration refused") == []
        assert logged(again, "event without effect") == []


async def test_registrations_after_a_newer_record_are_refused_again_and_not_logged_again(
    place: Place,
) -> None:
    async with place.job() as job:
        with capture_logs() as first:
            async with running(place.settings()):
                await job.register()
                await put_raw(job, b"{}", headers_of(job, typed("files.written", 9), ce_files="1"))
                assert not (await job.register()).accepted
        assert logged(first, "registration refused") == [Code.RECORD_UNREADABLE]
        with capture_logs() as again:
            async with running(place.settings()):
                await refusals(job, 2)
                assert not (await job.register()).accepted
        assert logged(again, "registration refused") == [Code.RECORD_UNREADABLE], "the new one alone"
