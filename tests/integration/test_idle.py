"""A stream without work notices changes of its table by itself, and `check` shows them."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sluicegate.coordinator.core.state_record import StateRecord, decode_record
from sluicegate.coordinator.service.service import Service
from sluicegate.events.problems import Code
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_ids, read_records
from tests.integration.letters import stalled, stalls
from tests.integration.orders import Spoken, invoke
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


@asynccontextmanager
async def idle(place: Place) -> AsyncIterator[tuple[Service, Job]]:
    """A service that looks at its table often, and has nothing to do after two commits."""
    async with running(place.settings(table_check_interval="300ms")) as service, place.job() as job:
        await job.register()
        for number in (1, 2):
            await job.run_batch([number])
            await job.committed(range(1, number + 1))
        yield service, job


async def recorded(place: Place) -> StateRecord:
    newest = (await read_records(place.bootstrap, place.topics.state))[-1]
    found = decode_record("flights", newest.value)
    assert isinstance(found, StateRecord)
    return found


async def check(place: Place) -> Spoken:
    return await invoke(place, "check")


@pytest.mark.seam
async def test_a_rollback_is_noticed_without_work_and_its_end_is_shown(place: Place, impatient: None) -> None:
    snapshots, kept = Path(place.table) / "snapshot", place.root / "snapshot-2"
    async with idle(place) as (service, job):
        os.rename(snapshots / "snapshot-2", kept)
        (snapshots / "LATEST").write_text("1")
        await until(lambda: stalled(service), lambda code: code == Code.TABLE_CONTRADICTS)
        said = await check(place)
        assert said.exit_code == 1
        assert "table of flights, history" in said.stdout
        os.rename(kept, snapshots / "snapshot-2")
        await until(lambda: stalled(service) is None)
        # The state record follows, which `status` reads.
        await until(lambda: recorded(place), lambda record: not record.conditions)
        await job.run_batch([3])
        await job.committed([1, 2, 3])


async def test_a_file_that_is_missing_is_looked_for_until_it_is_back(place: Place, impatient: None) -> None:
    async with running(place.settings()), place.job() as job:
        await job.register()
        files = job.write_files([1])
        path, kept = Path(place.table) / files.files[0].path, place.root / "kept"
        os.rename(path, kept)
        await job.complete(await job.written(files))
        problem = (await until(lambda: stalls(job)))[-1]
        assert (problem.code, problem.region) == (Code.FILES_EXCLUDED, "r1")
        assert f"the file {files.files[0].path} is not in" in problem.detail
        os.rename(kept, path)
        await job.committed([1])
    assert read_ids(place.table) == [1]
