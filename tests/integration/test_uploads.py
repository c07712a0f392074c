"""Asynchronous uploads of plain Python writers, with a real coordinator: exact over kills and losses."""

import asyncio
import shutil
from pathlib import Path

import pytest

from sluicegate.events.models import CheckpointCompleted, FilesWritten
from sluicegate.events.notifications import Stalled
from sluicegate.events.problems import Code
from sluicegate.failpoints import points
from sluicegate.writer_hooks import RegionOutcome
from sluicegate.writer_hooks.upload.spool import Spool
from tests.faults.tables import kind_of
from tests.integration.conftest import LAKES, Place, place_of
from tests.integration.coordinator import running
from tests.integration.coroutines import AsyncRegionDriver
from tests.integration.job import read_events, read_ids, read_notifications
from tests.integration.orders import sluicegate
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.test_locations import resetting_region
from tests.integration.test_python_driver import options_of, put, rows
from tests.integration.uploading import end_uploader, killed_at, nobody_uploads, spool, upload_all
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

__all__ = ["spool"]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploaders that only tasks and the test start."""
    monkeypatch.setattr("sluicegate.writer_hooks.driver.keep_uploading", lambda *_: frozenset())


def uploading(place: Place, spool: Spool, **more: str) -> dict[str, str]:
    table = {f"table.{name}": value for name, value in place.lake_options.items()}
    return options_of(place, **table, **{"upload": "async", "upload.spool": spool.folder, **more})


def left(spool: Spool) -> list[Path]:
    """Return the local files of attempts."""
    return list((Path(spool.folder) / "files").iterdir())


def damage(spool: Spool) -> None:
    """Change the one file that waits."""
    (file,) = [path for path in left(spool)[0].rglob("*") if path.is_file()]
    file.write_bytes(b"damaged")


def data_files(place: Place) -> list[Path]:
    return list(Path(place.table).rglob("*.parquet"))


async def losses(place: Place) -> list[str]:
    """Return the details of stalls of the region because of lost files."""
    found = await read_notifications(place.bootstrap, place.topics.commits)
    bodies = [each.body for each in found if isinstance(each.body, Stalled)]
    return [str(body.problem.detail) for body in bodies if body.problem.code is Code.FILES_LOST]


@pytest.mark.seam
@pytest.mark.parametrize("lake", LAKES)
async def test_an_uploader_of_its_own_process_brings_files_and_events(
    lake: str, kafka_bootstrap: str, unique: str, tmp_path: Path, spool: Spool
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    async with running(place.settings()), AsyncRegionDriver(uploading(place, spool)) as driver:
        await put(driver, 1, 2)
        await driver.await_commit(await put(driver, 3))
    found = [row["id"] for row in kind_of(Path(place.table)).rows(Path(place.table))]
    assert sorted(found) == [1, 2, 3]
    await until(lambda: left(spool), lambda files: not files)
    assert spool.names() == []


@pytest.mark.usefixtures("alone")
async def test_an_uploader_that_is_killed_anywhere_is_continued_by_the_next(
    place: Place, spool: Spool
) -> None:
    steps = ("upload.put.before", "upload.put.after", "upload.publish.before", "upload.publish.after")
    async with running(place.settings()), AsyncRegionDriver(uploading(place, spool)) as driver:
        for number, point in enumerate((*steps, "upload.removed")):
            with nobody_uploads(spool):
                newest = await put(driver, number)
            await asyncio.to_thread(killed_at, spool, point)
        await asyncio.to_thread(upload_all, spool)
        await driver.await_commit(newest)
        with nobody_uploads(spool):
            await put(driver, 5)
            damage(spool)
        for point in ("upload.lost.before", "upload.lost.after"):
            await asyncio.to_thread(killed_at, spool, point)
        await asyncio.to_thread(upload_all, spool)
        assert "has other content than its task has written" in (await until(lambda: losses(place)))[0]
    assert read_ids(place.table) == [0, 1, 2, 3, 4]
    assert len(data_files(place)) == 5, "no file was uploaded under two names"
    assert not left(spool)


@pytest.mark.seam
async def test_a_lost_spool_stalls_the_region_and_a_new_driver_reads_its_rows_again(
    place: Place, spool: Spool
) -> None:
    impatient = uploading(place, spool, **{"upload.timeout": "0.5"})
    async with running(place.settings()):
        async with AsyncRegionDriver(options_of(place)) as driver:
            await driver.await_commit(await put(driver, 0))
        with nobody_uploads(spool):
            async with AsyncRegionDriver(impatient, heartbeat_interval=1.0) as driver:
                await put(driver, 1)
                await put(driver, 2)
                shutil.rmtree(spool.folder)  # the machine is lost, with its disk
                (reason, *_) = await until(lambda: losses(place))
        assert "an uploader is away, or its machine is lost" in reason
        async with AsyncRegionDriver(options_of(place)) as again:
            assert again.committed is not None
            assert again.committed.source_offsets == {"ids": 0}
            await put(again, 1)
            await again.await_commit(await put(again, 2))
    assert read_ids(place.table) == [0, 1, 2]


@pytest.mark.seam
async def test_a_region_whose_files_wait_falls_back_and_its_driver_hears_of_it(
    place: Place, spool: Spool
) -> None:
    heard: list[RegionOutcome] = []
    regions = {"regions": "r1,r2", "assignment": "1"}
    partial = {"partial": "allow", "alignment_timeout": "1s"}
    waiting = AsyncRegionDriver(
        uploading(place, spool, **regions), heartbeat_interval=0.5, on_outcome=heard.append
    )
    async with (
        running(place.settings(options=partial)),
        waiting,
        AsyncRegionDriver(options_of(place, region="r2", **regions)) as other,
    ):
        first = await put(waiting, 1)
        await put(other, 2)
        await waiting.await_commit(first)
        await asyncio.to_thread(end_uploader, spool)
        with nobody_uploads(spool):
            late = await put(waiting, 3)
            await other.await_commit(await put(other, 4))
            await until(lambda: [each for each in heard if each.fell_back])
        await waiting.await_commit(late)
        await until(lambda: heard[-1].fell_back, lambda fell_back: not fell_back)
        assert waiting.committed is not None
        assert heard[-1].committed == waiting.committed.position
    assert read_ids(place.table) == [1, 2, 3, 4]


SCANS = """\
import json, pathlib
def scan(local, uri):
    path = pathlib.Path(__file__).parent
    if not (path / "scanner").exists():
        (path / "called").touch()
        raise OSError("the scanner is away")
    return {"verdict": "clean"}
"""


@pytest.mark.seam
@pytest.mark.parametrize("upload", ["async", pytest.param("sync", marks=pytest.mark.matrix)])
async def test_work_that_fails_is_done_again_and_its_facts_are_in_the_event(
    upload: str, place: Place, spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another region is committed meanwhile, and no time makes the files count as lost."""
    (tmp_path / "scans.py").write_text(SCANS)
    monkeypatch.syspath_prepend(str(tmp_path))
    work = {"before.publish": "scans:scan", "regions": "r1,r2", "assignment": "1"}
    asynchronous = {"upload.timeout": "0.1"} if upload == "async" else {}
    options = uploading(place, spool, **work, **asynchronous)
    if upload == "sync":
        options = options_of(place, **work)
    partial = {"partial": "allow", "alignment_timeout": "1s"}
    async with (
        running(place.settings(options=partial)),
        AsyncRegionDriver(options, heartbeat_interval=0.5) as driver,
        AsyncRegionDriver(options_of(place, region="r2", regions="r1,r2", assignment="1")) as other,
    ):
        (tmp_path / "scanner").touch()
        first = await put(driver, 1)
        await put(other, 2)
        await driver.await_commit(first)
        (tmp_path / "scanner").unlink()
        writing = asyncio.create_task(put(driver, 3))
        await until((tmp_path / "called").exists)
        await other.await_commit(await put(other, 4))
        (tmp_path / "scanner").touch()
        await driver.await_commit(await writing)
        assert await losses(place) == []
    assert read_ids(place.table) == [1, 2, 3, 4]
    bodies = [each.body for each in await read_events(place.bootstrap, place.topics.events)]
    written = [each.files if isinstance(each, CheckpointCompleted) else each for each in bodies]
    facts = [facts for body in written if isinstance(body, FilesWritten) for facts in body.facts.values()]
    assert facts == [{"verdict": "clean"}, {"verdict": "clean"}]


async def test_a_task_that_fails_leaves_nothing_or_everything(place: Place, spool: Spool) -> None:
    async with running(place.settings()), AsyncRegionDriver(uploading(place, spool)) as driver:
        checkpoint = await driver.begin()
        with nobody_uploads(spool):
            for point, kept in (("upload.entry.before", 0), ("upload.entry.after", 1)):
                points.arm(f"{point}=fail@1")
                try:
                    with pytest.raises(Exception, match="was told to fail"):
                        checkpoint.write("w0", rows(100))
                finally:
                    points.arm("")
                assert len(spool.names()) == kept
            await driver.complete(checkpoint, [checkpoint.write("w0", rows(1))], source_offsets=1)
            await asyncio.to_thread(upload_all, spool)
        await driver.await_commit(checkpoint)
        spool.sweep()
        assert not left(spool)
    assert read_ids(place.table) == [1]


@pytest.mark.spark
@pytest.mark.parametrize("foreach", [False, True], ids=["data source", "foreachBatch"])
async def test_rows_are_exact_over_the_loss_of_a_machine(
    place: Place, spark: SparkThread, spool: Spool, foreach: bool
) -> None:
    """A batch ends while its files wait. They are lost with their machine, and read again after a reset."""
    job = SparkJob(spark, place, foreach=foreach)
    asynchronous = {"upload": "async", "upload.spool": spool.folder}
    job.options = asynchronous
    job.feed([1, 2], [3])
    async with running(place.settings()):
        await job.run()
        await until(lambda: read_ids(place.table), lambda found: found == [1, 2, 3])
        await until(lambda: list((Path(spool.folder) / "files").iterdir()), lambda left: not left)
        end_uploader(spool)
        job.options = {**asynchronous, "upload.timeout": "0.5"}
        with nobody_uploads(spool):
            query = await spark.call(lambda: job.start(processingTime="100 milliseconds"))
            try:
                job.feed([4])
                await until(lambda: "2" in job.names("commits"))
                shutil.rmtree(spool.folder)
                assert "its machine is lost" in (await until(lambda: losses(place)))[0]
            finally:
                await spark.call(query.stop)
        job.options = asynchronous
        await sluicegate(place, *resetting_region(job))
        await job.run()
        await until(lambda: read_ids(place.table), lambda found: found == [1, 2, 3, 4])
