"""Asynchronous uploads of plain Python writers, with a real coordinator: exact over kills and losses."""

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from sluicegate.events.notifications import Stalled
from sluicegate.events.problems import Code
from sluicegate.failpoints import points
from sluicegate.writer_hooks import AsyncRegionDriver, BadOption, Job, UploadGivenUp
from sluicegate.writer_hooks.upload.spool import Spool
from tests.faults.tables import kind_of
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.job import read_ids, read_notifications
from tests.integration.orders import invoke
from tests.integration.test_python_driver import options_of, put, rows
from tests.integration.uploading import killed_at, nobody_uploads, spool, upload_all
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

__all__ = ["spool"]

HOOKS = """
import threading

def note(local, uri):
    with open(local, "rb") as file:
        size = len(file.read())
    with open({notes!r}, "a") as notes:
        notes.write(f"{{size}} {{uri}}\\n")

def refuse(local, uri):
    raise ValueError("no rows of JFK, please")

def hang(local, uri):
    threading.Event().wait()
"""


@pytest.fixture
def hooks(tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user for `before.publish`."""
    name = f"hooks_{unique.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(HOOKS.format(notes=str(tmp_path / "notes")))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return name


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


def put_away(place: Place) -> None:
    """Let the storage of the table fail."""
    shutil.move(place.table, f"{place.table}-away")
    Path(place.table).write_text("no folder")


def put_back(place: Place) -> None:
    Path(place.table).unlink()
    shutil.move(f"{place.table}-away", place.table)


async def losses(place: Place) -> list[str]:
    """Return the details of stalls of the region because of lost files."""
    found = await read_notifications(place.bootstrap, place.topics.commits)
    bodies = [each.body for each in found if isinstance(each.body, Stalled)]
    return [str(body.problem.detail) for body in bodies if body.problem.code is Code.FILES_LOST]


@pytest.mark.seam
@pytest.mark.parametrize("lake", ["paimon", "iceberg", "delta"])
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


async def test_a_driver_starts_the_uploader_of_its_machine_again(place: Place, spool: Spool) -> None:
    """It was killed after the last task, so no other task starts it."""
    async with (
        running(place.settings()),
        AsyncRegionDriver(uploading(place, spool), heartbeat_interval=0.5) as driver,
    ):
        with nobody_uploads(spool):
            await put(driver, 1)
        await until(lambda: read_ids(place.table), [1].__eq__)


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


async def test_a_task_waits_for_room_and_learns_what_is_lost(
    place: Place, spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    limited = uploading(place, spool, **{"upload.max.checkpoints": "1"})
    async with running(place.settings()), AsyncRegionDriver(limited) as driver:
        with nobody_uploads(spool):
            await put(driver, 1)
            waiting = asyncio.create_task(put(driver, 2))
            await until(lambda: "a task waits before it writes" in caplog.text)
            assert len(spool.names()) == 1
            await asyncio.to_thread(upload_all, spool)
            await waiting
            damage(spool)
            third = await driver.begin()
            writing = asyncio.create_task(asyncio.to_thread(third.write, "w0", rows(3)))
            await until(lambda: caplog.text.count("a task waits before it writes") == 2)
            await asyncio.to_thread(upload_all, spool)
            with pytest.raises(UploadGivenUp, match="or start its driver again"):
                await writing
        assert "has other content than its task has written" in (await until(lambda: losses(place)))[0]
        async with AsyncRegionDriver(limited) as again:
            await put(again, 2)
            await again.await_commit(await put(again, 3))
    assert read_ids(place.table) == [1, 2, 3]


async def test_a_function_of_the_user_runs_before_each_file_is_published(
    place: Place, spool: Spool, hooks: str, tmp_path: Path
) -> None:
    options = uploading(place, spool, **{"before.publish": f"{hooks}:note"})
    async with running(place.settings()):
        async with AsyncRegionDriver(options) as driver:
            await driver.await_commit(await put(driver, 1))
        (file,) = data_files(place)
        assert (tmp_path / "notes").read_text() == f"{file.stat().st_size} {file.as_uri()}\n"
        failing = {"before.publish": f"{hooks}:refuse"}
        async with AsyncRegionDriver(uploading(place, spool, **failing)) as driver:
            await put(driver, 2)
            assert "no rows of JFK, please" in (await until(lambda: losses(place)))[0]
        slow = {"before.publish": f"{hooks}:hang", "before.publish.timeout": "0.5"}
        async with AsyncRegionDriver(uploading(place, spool, **slow)) as driver:
            await put(driver, 2)
            await until(
                lambda: losses(place), lambda found: any("did not end within 0.5 s" in each for each in found)
            )
    assert data_files(place) == [file]


@pytest.mark.usefixtures("alone")
async def test_a_drain_uploads_what_waits_and_names_what_it_cannot(place: Place, spool: Spool) -> None:
    asked = ("--spool", spool.folder)
    async with running(place.settings()), AsyncRegionDriver(uploading(place, spool)) as driver:
        with nobody_uploads(spool):
            first = await put(driver, 1)
        listed = await invoke(place, "uploads", "list", *asked)
        assert "flights r1 checkpoint 0: 1 files" in listed.stdout
        assert "its turn has not come" in listed.stdout
        assert (await invoke(place, "uploads", "drain", *asked)).exit_code == 0
        await driver.await_commit(first)
        with nobody_uploads(spool):
            second = await put(driver, 2)
            put_away(place)
        failed = await invoke(place, "uploads", "drain", *asked, "--timeout", "100ms")
        assert failed.exit_code == 1
        assert "not uploaded: flights r1 checkpoint 1: LakeUnavailable" in failed.stderr
        put_back(place)
        assert (await invoke(place, "uploads", "drain", *asked)).stdout.startswith("nothing waits in")
        await driver.await_commit(second)
    assert read_ids(place.table) == [1, 2]


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


def test_options_that_cannot_work_are_refused(place: Place, spool: Spool, hooks: str) -> None:
    for more, advice in (
        ({"upload": "later"}, "must be sync or async"),
        ({"upload": "sync"}, "is for asynchronous uploads; set upload to async, or leave"),
        ({"upload.spool": "spool"}, "must be an absolute path of a folder on the machines of the tasks"),
        ({"kafka.sasl.password.file": "secret"}, "must be an absolute path with asynchronous uploads"),
        ({"upload.max.bytes": "many"}, "must be a size above 0 such as 16GiB"),
        ({"upload.threads": "1000"}, "from 1 to 64"),
        ({"before.publish.timeout": "1"}, "needs the option before.publish: set that too"),
        ({"before.publish": "hooks"}, "must be module:function"),
        ({"before.publish": f"{hooks}:nothing"}, "has no function nothing; correct the name"),
        ({"before.publish": "no_such_module:f"}, "install it on the driver and on all executors"),
    ):
        with pytest.raises(BadOption, match=advice):
            AsyncRegionDriver(uploading(place, spool, **more))
    with pytest.raises(BadOption, match="Leave the option out of jobs"):
        Job(uploading(place, spool), "job-1")
