"""What the service measures of real commits, as Prometheus reads it."""

import asyncio
import os
import shutil
import time
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from sluicegate.failpoints.points import arm
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_ids
from tests.integration.metrics import metrics_of, samples
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
PROBES = 10


@pytest.fixture
def disarmed() -> Iterator[None]:
    """Ends what a test has armed."""
    yield
    arm("")


async def commit(job: Job, number: int) -> tuple[float, int]:
    """One commit: at most how long it took, and the bytes of its files."""
    started = time.monotonic()  # time: an upper bound of what is measured on this machine; no limit
    files = job.write_files([number])
    await job.complete(await job.written(files), watermark=number)
    await job.committed(range(1, number + 1))
    took = time.monotonic() - started  # time: as above
    return took, sum(each.size for each in files.files)


@pytest.mark.seam
async def test_a_commit_is_measured_without_the_idle_time_before_it(place: Place) -> None:
    with capture_logs() as told:
        async with running(place.settings(table_check_interval="300ms")) as service, place.job() as job:
            await job.register()
            first, size = await commit(job, 1)
            asked = len(told)
            # The table is asked again and again while nothing is to be committed.
            await until(lambda: sum(line.get("effect") == "Ask" for line in told[asked:]) >= 2 * PROBES)
            second, more = await commit(job, 2)
            seen = await until(lambda: samples(service), lambda seen: seen["commit_seconds_count"] == 2)
            now = time.time()
    assert 0 < seen["commit_seconds_sum"] <= first + second
    assert (seen["committed_rows_total"], seen["committed_bytes_total"]) == (2, size + more)
    assert now - 60 < seen["last_commit_timestamp_seconds"] <= now
    assert read_ids(place.table) == [1, 2]


async def test_a_commit_whose_outcome_was_unknown_is_measured_too(place: Place, disarmed: None) -> None:
    arm("publish.after=fail@1")
    async with running(place.settings()) as service, place.job() as job:
        await job.register()
        _, size = await commit(job, 1)
        seen = await until(lambda: samples(service), lambda seen: seen.get("committed_rows_total", 0) > 0)
    assert (seen["committed_rows_total"], seen["committed_bytes_total"]) == (1, size)
    assert seen["commit_seconds_count"] == 1


async def test_promtool_finds_nothing_wrong_with_the_metrics(place: Place) -> None:
    promtool = os.environ.get("SLUICEGATE_TEST_PROMTOOL") or shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus); .ci/run installs it")
    async with running(place.settings()) as service, place.job() as job:
        await job.register()
        await commit(job, 1)
        await until(lambda: samples(service), lambda seen: "watermark_timestamp_seconds" in seen)
        text = await metrics_of(service)
    assert "sluicegate_build_info{" in text
    process = await asyncio.create_subprocess_exec(
        promtool,
        "check",
        "metrics",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate(text.encode())
    assert (process.returncode, said.decode()) == (0, "")
