"""`sluicegate stream skip` leads out of a stall at a record that only a newer release reads."""

import pytest

from sluicegate.events.problems import Code
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.letters import headers_of, put_raw, stalled
from tests.integration.orders import invoke, sluicegate
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.seam]
STREAM = ("--stream", "flights")


async def test_an_order_skips_a_record_and_everything_after_it_is_committed_once(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings()) as service:
            assert (await job.register()).accepted
            await job.run_batch([1])
            await job.committed([1])
            first = await put_raw(job, b"{}", headers_of(job, "sluicegate.files.written.v9", checkpoint=1))
            await job.run_batch([2])
            second = await put_raw(job, b"{}", headers_of(job, "sluicegate.cut.decided.v9"))
            await until(lambda: stalled(service), lambda code: code == Code.RECORD_UNREADABLE)
            # The text names the order, with the offset.
            answer = await job.answer_to(await job.send_registration(probe=True))
            assert f"`sluicegate stream skip --stream flights --offset {first}`" in answer.reason
            shown = await invoke(place, "stream", "skip", *STREAM)
            assert (shown.exit_code, "sluicegate.files.written.v9" in shown.stdout) == (1, True)
            other = await invoke(place, "stream", "skip", *STREAM, "--offset", str(second))
            assert (other.exit_code, f"but at offset {first}" in other.stderr) == (2, True)
            told = await sluicegate(place, "stream", "skip", *STREAM, "--offset", str(first))
            assert "sluicegate region reset --stream flights --region r1" in told
            assert f"sluicegate stream skip --stream flights --offset {second}" in told
            await sluicegate(place, "stream", "skip", *STREAM, "--offset", str(second))
            await until(lambda: stalled(service), lambda code: code == Code.RECORD_SKIPPED)
            late = await invoke(place, "stream", "skip", *STREAM, "--offset", str(second))
            assert (late.exit_code, "is skipped already" in late.stderr) == (2, True)
            # The completed checkpoint is discarded: what the skipped record said of it is unknown.
            assert (await job.begin("q9")).accepted
            await job.run_batch([2, 3])
            await job.committed([1, 2, 3])
        # Another coordinator reads the same, from its record; and so does a reader of the whole log.
        async with running(place.settings()):
            await job.run_batch([4])
            await job.committed([1, 2, 3, 4])
        verified = await sluicegate(place, "replay", "verify", *STREAM, "--all")
        assert "3" in verified
        audited = await sluicegate(place, "audit", *STREAM)
        assert audited.count("stream skip") >= 2
    assert sorted(read_ids(place.table)) == [1, 2, 3, 4]
