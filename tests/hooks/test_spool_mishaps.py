"""Spools that are removed under their writers, or on a full disk."""

import errno
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

from sluicegate.cli.main import main
from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.memory import MemoryAdapter
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.spooled import SpooledStorage, Wrap
from sluicegate.lakes.storage import Storage
from sluicegate.lakes.storages import open_storage
from sluicegate.writer_hooks.errors import SpoolUnusable
from sluicegate.writer_hooks.options import Target, Uploads
from sluicegate.writer_hooks.region import Attempt, Event, KafkaSettings, Region, files_written
from sluicegate.writer_hooks.upload.delivery import Deferred
from sluicegate.writer_hooks.upload.spool import Spool, make_spool
from sluicegate.writer_hooks.upload.uploader import Uploader
from tests.hooks.log import Log
from tests.hooks.test_spool import enter, region, spool
from tests.integration.waiting import BACKSTOP, wait_until

__all__ = ["region", "spool"]


def fill(disk: pytest.MonkeyPatch, spool: Spool) -> None:
    """Let the disk of the spool have no room for a new file or an id while files of attempts are there."""
    real_open = os.open

    def refuse() -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    def open_without_room(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        is_new = flags & os.O_CREAT and path.startswith(spool.folder) and not os.path.exists(path)
        if is_new and os.listdir(f"{spool.folder}/files"):
            refuse()
        return real_open(path, flags, mode, dir_fd=dir_fd)

    disk.setattr(os, "pwrite", lambda *_: refuse())
    disk.setattr(os, "open", open_without_room)


def deferred(region: Region, uploads: Uploads) -> tuple[Deferred, Wrap]:
    """Return a task, and the function that returns its storage."""
    adapter = MemoryAdapter()
    task = Deferred(region, Attempt("i1", 1, "w0"), uploads)
    wrap = task.target(Target(adapter, adapter.parse_table("memory:flights"), None, 1_000_000)).wrap
    assert wrap is not None
    return task, wrap


def written(region: Region, storage: Storage) -> Sequence[Event]:
    """Return the events of an attempt with one file."""
    file = FileInfo(path="p=1/x.parquet", size=4, rows=1)
    body = FilesWritten(format="delta", location=storage.uri, schema_id=0, files=(file,))
    return files_written(region, Attempt("i1", 1, "w0"), body, 1_000_000)


def test_a_spool_that_is_removed_under_a_writer_is_not_made_again_by_it(tmp_path: Path) -> None:
    """It would have the permissions of the umask, and be refused from then on."""
    folder = str(tmp_path / "spool")
    spool = make_spool(folder)
    os.close(spool.begin("one"))
    storage = SpooledStorage(open_storage((tmp_path / "t").as_uri()), spool.files("one"))
    storage.write("a=1/b=2", {"x.parquet": b"rows"})
    shutil.rmtree(folder)
    with pytest.raises(LakeUnavailable, match="Another attempt is safe"):
        storage.write("a=1/b=2", {"y.parquet": b"rows"})
    with pytest.raises(LakeUnavailable, match="Another attempt is safe"):
        storage.settle_files(["a=1/b=2/x.parquet"])
    storage.discard("a=1/b=2", ["x.parquet"])  # as the abort of the attempt does
    with pytest.raises(FileNotFoundError):
        spool.begin("two")
    assert not Path(folder).exists()
    os.close(make_spool(folder).begin("three"))


def test_a_spool_that_is_removed_while_it_is_made_is_made_by_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "spool"
    with monkeypatch.context() as cleaned:
        cleaned.setattr("sluicegate.writer_hooks.upload.spool.network_type", shutil.rmtree)
        with pytest.raises(SpoolUnusable, match="Another attempt is safe, and makes a new spool"):
            make_spool(str(folder))
    assert not folder.exists()
    make_spool(str(folder))
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_spool_that_is_removed_under_a_waiting_task_fails_it(
    spool: Spool, region: Region, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = str(tmp_path / "table")
    enter(spool, region, target)
    task, wrap = deferred(region, Uploads(spool=spool.folder, max_checkpoints=1))
    with ThreadPoolExecutor(1) as threads, spool.uploading():
        waiting = threads.submit(wrap, open_storage(target))
        wait_until(lambda: "a task waits before it writes" in caplog.text)
        os.rename(spool.folder, tmp_path / "removed")
        with pytest.raises(SpoolUnusable, match=r"set upload\.spool to a folder that stays"):
            waiting.result(BACKSTOP)
    task.abort()
    assert not Path(spool.folder).exists()
    wrap(open_storage(target))
    task.abort()


def test_an_attempt_puts_no_entry_into_a_spool_that_replaced_its_own(
    spool: Spool, region: Region, tmp_path: Path
) -> None:
    """Its files are not there, so the uploader would report them as lost."""
    task, wrap = deferred(region, Uploads(spool=spool.folder))
    storage = wrap(open_storage((tmp_path / "t").as_uri()))
    storage.write("p=1", {"x.parquet": b"rows"})
    os.rename(spool.folder, tmp_path / "removed")
    make_spool(spool.folder)
    with pytest.raises(LakeUnavailable, match="Another attempt is safe"):
        task.deliver(written(region, storage))
    assert spool.names() == []


@pytest.mark.parametrize("fails", ["write", "entry"])
def test_an_attempt_that_fails_on_a_full_disk_frees_the_room_of_dead_ones(
    fails: str, spool: Spool, region: Region, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No entry waits, so no uploader runs that would do it."""
    os.close(spool.begin("1" * 32))
    task, wrap = deferred(region, Uploads(spool=spool.folder))
    storage = wrap(open_storage((tmp_path / "t").as_uri()))

    def write() -> None:
        storage.write("p=1", {"x.parquet": b"rows"})

    def put_entry() -> None:
        task.deliver(written(region, storage))

    if fails == "entry":
        write()
    with monkeypatch.context() as disk:
        fill(disk, spool)
        with pytest.raises(LakeUnavailable):
            (write if fails == "write" else put_entry)()
    task.abort()
    assert os.listdir(f"{spool.folder}/files") == []


def test_a_drain_frees_a_full_disk_and_names_what_is_lost(
    spool: Spool, region: Region, tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    region = replace(region, kafka=KafkaSettings(bootstrap_servers=log.bootstrap))
    drain = ["uploads", "drain", "--spool", spool.folder]
    enter(spool, region, str(tmp_path / "table"))
    with monkeypatch.context() as disk:
        fill(disk, spool)
        assert CliRunner().invoke(main, drain).stdout.startswith("nothing waits in")
    assert len([*(tmp_path / "table").rglob("*.parquet")]) == 1
    name = enter(spool, region, str(tmp_path / "table"))
    Path(spool.files(name.attempt), "p=1", f"data-{name.attempt}.parquet").write_bytes(b"other")
    with monkeypatch.context() as disk:
        fill(disk, spool)
        lost = CliRunner().invoke(main, drain)
    assert lost.exit_code == 1
    assert f"lost: {region.stream} r1 checkpoint 0: the local file" in lost.stderr


def test_a_drain_of_a_spool_that_is_removed_is_refused(
    spool: Spool, region: Region, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(spool, region, str(tmp_path / "table"))
    monkeypatch.setattr(Spool, "sweep", lambda each: os.rename(each.folder, tmp_path / "removed"))
    refused = CliRunner().invoke(main, ["uploads", "drain", "--spool", spool.folder])
    assert "was removed while it was used" in refused.stderr


def test_garbage_that_cannot_be_removed_stops_no_upload(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: str) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    draft = Path(spool.folder, "entries", ".draft")
    draft.write_text("")
    os.utime(draft, (0, 0))
    with monkeypatch.context() as disk:
        disk.setattr(os, "unlink", refuse)
        Uploader(spool).run(lambda empty: empty)
    assert "files that nobody needs stay" in caplog.text
