"""A file belongs to the one attempt that wrote it: named by anybody else it is not committed."""

from typing import Any

import pytest

from sluicegate.coordinator.runtime.service import Service
from sluicegate.events.models import Parent
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.letters import stalls
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

ROWS = list(range(20))
UNCHECKED: dict[str, Any] = {"file_names": "unchecked"}


def _outcome(service: Service, table: str) -> bool:
    stalled = service.status()["streams"]["flights"]["stalled"] is not None
    return stalled or len(read_ids(table)) > len(ROWS)


async def test_a_file_that_two_checkpoints_name_is_committed_once(place: Place) -> None:
    async with running(place.settings()) as service, place.job() as job:
        await job.open()
        files = job.write_files(ROWS)
        await job.complete(await job.written(files))
        await job.committed(ROWS)
        await job.complete(await job.written(files))
        # The next commit, or the reason why there is none.
        await until(lambda: _outcome(service, place.table))
        assert read_ids(place.table) == ROWS
        reasons = await until(lambda: stalls(job))
        assert files.files[0].path in reasons[0]
        assert "sluicegate rewind" in reasons[0]
        async with place.job(lineage="q1.1") as again:
            again.batch, again.previous = 1, None
            assert (await again.open(Parent(region="r1", lineage="q1.0", checkpoint=0))).accepted
            await again.run_batch([20])
            await again.committed([*ROWS, 20])


async def test_two_attempts_of_one_writer_are_not_committed_together(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        await job.open()
        both = [job.write_files(ROWS), job.write_files(ROWS)]
        digests = [await job.written(files, writer="w0") for files in both]
        await job.complete(*digests)
        reasons = await until(lambda: stalls(job))
        assert "two attempts of the writer w0" in reasons[0]
        assert read_ids(place.table) == []


async def test_names_are_not_compared_where_the_settings_say_so(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings()):
            await job.open()
            foreign = job.write_files([1])
            await job.complete(await job.written(foreign, attempt="another"))
            reasons = await until(lambda: stalls(job))
            assert "file_names" in reasons[0]
        async with running(place.settings(options=UNCHECKED)):
            await job.committed([1])
