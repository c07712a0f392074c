"""`sluicegate stream recover`: the way out of a state record that cannot be read."""

import pytest

from sluicegate.events.problems import Code
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_ids, read_records
from tests.integration.orders import Spoken, invoke, invoke_here
from tests.integration.test_replay import put_base_record, three_commits

pytestmark = pytest.mark.kafka
RECOVER = ("stream", "recover", "--stream", "flights")


async def damage(place: Place, job: Job) -> None:
    """Write what is no record under the key of the stream."""
    newest = [
        each for each in await read_records(place.bootstrap, place.topics.state) if each.key == b"flights"
    ]
    await job.producer.send_and_wait(
        place.topics.state, b"\x00no record", key=b"flights", partition=newest[-1].partition
    )


async def stalled_by_the_record(place: Place, job: Job) -> None:
    """See the condition, its advice, and that the record is not replaced without an order."""
    async with running(place.settings()):
        answer = await job.register()
        assert answer.problem is not None
        assert answer.problem.code is Code.STATE_RECORD_MALFORMED
        assert "`sluicegate stream recover --stream flights`" in answer.reason
    assert (await read_records(place.bootstrap, place.topics.state))[-1].value == b"\x00no record"


async def refused(place: Place) -> Spoken:
    result = await invoke_here(place, *RECOVER)
    assert result.exit_code == 2, result.output
    return result


async def continues(place: Place, job: Job, offset: int) -> None:
    """Follow the advice; the job's next batch is committed, and nothing twice."""
    result = await invoke(place, *RECOVER)
    assert result.exit_code == 0, result.output
    assert f"read again from offset {offset}. Restart the coordinators" in result.stdout
    assert "for its commit user sluicegate-flights" in result.stdout
    async with running(place.settings()):
        assert (await job.register()).accepted
        await job.run_batch([5])
        await job.committed([1, 2, 3, 4, 5])
    assert "is not malformed" in (await refused(place)).stderr


async def test_a_stream_with_a_damaged_record_reads_its_whole_log_again(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        assert "See: sluicegate status --stream flights" in (await refused(place)).stderr
        await damage(place, job)
        await job.run_batch([4])
        await stalled_by_the_record(place, job)
        await continues(place, job, 0)
    assert read_ids(place.table) == [1, 2, 3, 4, 5]


@pytest.mark.seam
async def test_a_stream_with_a_damaged_record_continues_from_its_base_record(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        begin = await put_base_record(place, job)
        await damage(place, job)
        await job.run_batch([4])
        await stalled_by_the_record(place, job)
        await continues(place, job, begin)
    assert read_ids(place.table) == [1, 2, 3, 4, 5]
