"""The example that compacts a Delta table by the outcomes of its commits, beside the real service."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sluicegate.events.notifications import Committed
from tests.integration.conftest import place_of
from tests.integration.coordinator import running
from tests.integration.job import Job
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
EXAMPLE = Path(__file__).parents[2] / "examples" / "compact_delta.py"


@contextmanager
def compacting(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the example in a process of its own, which is killed at the end."""
    process = subprocess.Popen([sys.executable, str(EXAMPLE), *arguments], stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def reached(job: Job) -> int:
    """Return the newest checkpoint with a commit."""
    commits = [each.body for each in await job.notifications() if isinstance(each.body, Committed)]
    return max([each.cut["r1"].checkpoint for each in commits], default=-1)


async def test_a_partition_is_compacted_once_it_has_enough_small_files(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place = await place_of("delta", kafka_bootstrap, unique, tmp_path)

    def files(month: str) -> int:
        return len(DeltaTable(place.table).file_uris(file_pruning_predicate=[("origin", "=", month)]))

    async def send(job: Job, number: int, *months: str) -> None:
        bodies = [job.write_files([number], origin=month) for month in months]
        await job.complete(*[await job.written(body) for body in bodies])
        await until(lambda: reached(job), lambda found: found == number)

    arguments = (place.bootstrap, place.topics.commits, "flights", "--files", "3")
    async with place.job() as job, running(place.settings()):
        await job.register()
        with compacting(*arguments):
            await send(job, 0, "2013-01", "2013-01", "2013-02")
            assert files("2013-01") == 2
        # Another process counts the files of both commits.
        with compacting(*arguments) as process:
            await send(job, 1, "2013-01")
            await until(lambda: files("2013-01"), lambda found: found == 1, by=process)
            assert files("2013-02") == 1
            await send(job, 2, "2013-01")
            assert files("2013-01") == 2
    ids = DeltaTable(place.table).to_pyarrow_table(columns=["id"])["id"].to_pylist()
    assert sorted(ids) == [0, 0, 0, 1, 2]
