"""A downgrade is refused by name: what a newer release wrote stalls the stream, and the release is named."""

import pytest

from sluicegate import __version__
from sluicegate.coordinator.core.state_record import (
    RECORD_VERSION,
    RELEASE_HEADER,
    StateRecord,
    encode_record,
)
from sluicegate.coordinator.stream.records import read_held
from sluicegate.events.problems import Code
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, Job, read_ids, read_records
from tests.integration.letters import headers_of, home_of, stalled
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
NEWER = [(RELEASE_HEADER, b"9.1.0")]


async def one_commit(place: Place, job: Job) -> None:
    async with running(place.settings()):
        assert (await job.register()).accepted
        await job.run_batch([1])
        await job.committed([1])


async def test_state_records_and_decisions_name_the_release_that_wrote_them(place: Place) -> None:
    async with place.job() as job:
        await one_commit(place, job)
        own = (RELEASE_HEADER, __version__.encode())
        assert all(own in each.headers for each in await read_records(place.bootstrap, place.topics.state))
        events = await read_records(place.bootstrap, place.topics.events)
        assert sum(own in each.headers for each in events) == 3, "the policy, the decision and the outcome"


async def test_a_state_record_of_a_newer_release_names_it(place: Place) -> None:
    async with place.job() as job:
        await one_commit(place, job)
        options = place.settings().kafka.client_options()
        held = await read_held(place.topics.state, PARTITIONS, options, ["flights"], 20.0)
        record = held["flights"].record
        assert isinstance(record, StateRecord)
        newer = encode_record(record.model_copy(update={"version": RECORD_VERSION + 1}))
        home = home_of("flights")
        await job.producer.send_and_wait(place.topics.state, newer, b"flights", home, headers=NEWER)
        async with running(place.settings()) as service:
            await until(lambda: stalled(service), lambda code: code == Code.STATE_RECORD_NEWER)
            answer = await job.answer_to(await job.send_registration())
            assert (
                f"a newer release, 9.1.0, wrote its state record (version {RECORD_VERSION + 1})"
                in answer.reason
            )
            assert "Upgrade all coordinators" in answer.reason
    assert read_ids(place.table) == [1]


async def test_an_event_of_a_newer_release_names_it(place: Place) -> None:
    async with place.job() as job:
        await one_commit(place, job)
        headers = [*headers_of(job, "sluicegate.cut.decided.v9").items(), *NEWER]
        await job.producer.send_and_wait(
            place.topics.events, b"{}", b"flights", home_of("flights"), headers=headers
        )
        async with running(place.settings()) as service:
            await until(lambda: stalled(service), lambda code: code == Code.RECORD_UNREADABLE)
            answer = await job.answer_to(await job.send_registration())
            assert "(sluicegate.cut.decided.v9), which release 9.1.0 wrote" in answer.reason
    assert read_ids(place.table) == [1]
