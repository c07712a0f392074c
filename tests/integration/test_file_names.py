"""A file belongs to the one attempt that wrote it: an event of another attempt does not commit it."""

from typing import Any

import pytest

from sluicegate.coordinator.service.service import Service
from sluicegate.events.problems import Code
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.letters import stalled, stalls
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

ROWS = list(range(20))
UNCHECKED: dict[str, Any] = {"file_names": "unchecked"}


def _outcome(service: Service, table: str) -> bool:
    return stalled(service) is not None or len(read_ids(table)) > len(ROWS)


async def test_a_file_that_two_checkpoints_name_is_committed_once(place: Place) -> None:
    async with running(place.settings()) as service, place.job() as job:
        await job.register()
        files = job.write_files(ROWS)
        await job.complete(await job.written(files))
        await job.committed(ROWS)
        await job.complete(await job.written(files))
        # The next commit, or the reason why there is none.
        await until(lambda: _outcome(service, place.table))
        assert read_ids(place.table) == ROWS
        problem = (await until(lambda: stalls(job)))[0]
        assert (problem.code, problem.names[0]) == (Code.FILE_NAME_DIFFERS, files.files[0].path)
        assert (await job.begin("q2")).accepted
        await job.run_batch([20])
        await job.committed([*ROWS, 20])


async def test_two_attempts_of_one_writer_are_not_committed_together(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        await job.register()
        both = [job.write_files(ROWS), job.write_files(ROWS)]
        digests = [await job.written(files, writer="w0") for files in both]
        await job.complete(*digests)
        problem = (await until(lambda: stalls(job)))[0]
        assert (problem.code, problem.names) == (Code.TWO_ATTEMPTS, ("w0",))
        assert read_ids(place.table) == []


async def test_names_are_not_compared_where_the_settings_say_so(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            foreign = job.write_files([1])
            await job.complete(await job.written(foreign, attempt="another"))
            assert (await until(lambda: stalls(job)))[0].code is Code.FILE_NAME_DIFFERS
        async with running(place.settings(options=UNCHECKED)):
            await job.committed([1])
