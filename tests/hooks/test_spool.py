"""Spools: whose they are, what stays in them, and what an uploader does with entries that it cannot send."""

import errno
import fcntl
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from sluicegate.cli.main import main
from sluicegate.events.models import Assignment, CheckpointFailed, FileInfo, FilesWritten
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.spooled import SpooledStorage, Wrap, open_spooled
from sluicegate.lakes.storage import Keys, Storage
from sluicegate.lakes.storages import open_storage
from sluicegate.writer_hooks.errors import SpoolUnusable
from sluicegate.writer_hooks.options import SinkOptions, Target, Uploads
from sluicegate.writer_hooks.region import Attempt, Event, KafkaSettings, Region, files_written
from sluicegate.writer_hooks.upload import uploader
from sluicegate.writer_hooks.upload.before_publish import WorkFailed, call_before_publish
from sluicegate.writer_hooks.upload.delivery import Deferred, delivery_of
from sluicegate.writer_hooks.upload.overdue import OverdueUploads
from sluicegate.writer_hooks.upload.process import ensure_uploader
from sluicegate.writer_hooks.upload.spool import (
    BadEntry,
    Entry,
    EntryName,
    Lost,
    Spool,
    SpooledFile,
    existing_spool,
    make_spool,
    name_of,
    network_type,
    read_entry,
)
from sluicegate.writer_hooks.upload.uploader import Uploader
from tests.doubles.memory_lake import MemoryAdapter
from tests.doubles.s3 import BUCKET, S3Double
from tests.hooks.log import Log
from tests.integration.waiting import BACKSTOP, wait_until

__all__ = ["region", "spool"]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return make_spool(str(tmp_path / "spool"))


@pytest.fixture
def region(unique: str) -> Region:
    """A region whose events nobody can publish."""
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    return Region(unique, "r1", kafka, Assignment(number=0, regions=("r1",)), topic_prefix=unique)


def enter(
    spool: Spool,
    region: Region,
    target: str,
    content: bytes = b"rows",
    uploads: Uploads | None = None,
    keys_of: Mapping[str, str] = MappingProxyType({}),
) -> EntryName:
    """Put an entry with one file as a task does, without a table."""
    attempt = Attempt("i1", 0, "w0")
    if target.startswith("/") and not os.path.exists(target):
        os.makedirs(target)
    lock = spool.begin(attempt.id)
    storage = SpooledStorage(open_storage(target), spool.files(attempt.id))
    storage.write("p=1", {f"data-{attempt.id}.parquet": content})
    ((path, found),) = storage.files.items()
    storage.settle_files([path])
    file = FileInfo(path=path, size=found.size, rows=1)
    body = FilesWritten(format="delta", location=storage.uri, schema_id=0, files=(file,))
    events = files_written(region, attempt, body, 1_000_000)
    topic = {"kafka.bootstrap.servers": region.kafka.bootstrap_servers, "topic.prefix": region.topic_prefix}
    uploads = uploads or Uploads()
    options = replace(uploads, log=(*topic.items(), *uploads.log))
    files = [SpooledFile(path, *found)]
    name = name_of(region, attempt, files, time.time_ns())
    spool.put(name, Entry.of_task(storage.uri, files, events, options, keys_of).to_json())
    os.close(lock)
    return name


def upload_once(spool: Spool) -> None:
    """Attempt each entry once."""
    Uploader(spool).run(lambda _: True)


def test_folders_that_others_can_reach_are_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir(mode=0o700)
    os.chown(foreign, 12_345, -1)
    (tmp_path / "link").symlink_to(foreign)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    (tmp_path / "file").write_text("")
    for name, advice in (
        ("foreign", "such as a new one inside of"),
        ("link", "or a link. Set upload.spool to a folder"),
        ("open", "Run: chmod 700"),
        ("file", "that the user of the tasks may write to"),
    ):
        with pytest.raises(SpoolUnusable, match=advice):
            make_spool(str(tmp_path / name))
    (tmp_path / "open").chmod(0o700)
    made = Path(make_spool(str(tmp_path / "open")).folder)
    assert {path.stat().st_mode & 0o777 for path in (made, *made.iterdir())} == {0o700, 0o600}
    with pytest.raises(SpoolUnusable, match="Give the folder of the option"):
        existing_spool(str(tmp_path / "nowhere"))


def test_entries_are_data_of_this_user_alone(spool: Spool, region: Region, tmp_path: Path) -> None:
    name = enter(spool, region, str(tmp_path / "table"))
    path = Path(spool.folder) / "entries" / f"{name}.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert Entry.from_json(path.read_text()).about.stream == region.stream
    for wrong in ("", "[]", "{}", '{"version": 2}', path.read_text().replace("files.written", "files.gone")):
        with pytest.raises(BadEntry):
            Entry.from_json(wrong)
    for unreadable in (b"{}", b'{"version": 2}', b"\xff"):
        path.write_bytes(unreadable)
        upload_once(spool)
        # It may be one of another release.
        assert spool.names() == [name]
        assert "the entry stays, and cannot be read" in (spool.reason(name) or "")
        spool.sweep()
        assert os.listdir(f"{spool.folder}/files") == [name.attempt]


def test_a_file_at_the_final_place_is_never_replaced(
    spool: Spool, region: Region, tmp_path: Path, log: Log
) -> None:
    region = replace(region, kafka=KafkaSettings(bootstrap_servers=log.bootstrap))
    same = enter(spool, region, str(tmp_path / "table"))
    other = enter(spool, region, str(tmp_path / "table"))
    for name, content in ((same, b"rows"), (other, b"ROWS")):
        path = tmp_path / "table" / "p=1" / f"data-{name.attempt}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    Uploader(spool).run(lambda empty: empty)
    assert path.read_bytes() == b"ROWS"
    (lost,) = spool.given_up(0.0)
    assert "another file is at" in lost.reason
    wait_until(lambda: log.of(FilesWritten))
    assert [envelope.attempt for envelope, _ in log.of(FilesWritten)] == [same.attempt]


def test_a_store_that_refuses_for_long_loses_files_and_kafka_never_does(
    spool: Spool, region: Region, tmp_path: Path, log: Log
) -> None:
    (tmp_path / "table").write_text("no folder")
    short = Uploads.parse({"upload": "async", "upload.timeout": "0.001"})
    name = enter(spool, region, str(tmp_path / "table"))
    upload_once(spool)
    assert "LakeUnavailable" in str(spool.reason(name))
    assert spool.names() == [name]
    spool.remove(name)
    region = replace(region, kafka=KafkaSettings(bootstrap_servers=log.bootstrap))
    enter(spool, region, str(tmp_path / "table"), uploads=short)
    Uploader(spool).run(lambda empty: empty)
    assert "not uploaded within 0.001 s" in spool.given_up(0.0)[0].reason


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    home = os.path.realpath(tmp_path)
    mounts.write_text(
        "/dev/vda / ext4 rw 0 0\n"
        f"server:/home {home}/a\\040b nfs4 rw 0 0\n"
        f"bucket {home}/s3 fuse.s3fs rw 0 0\n"
        f"/dev/vdb {home}/a\\040b/local xfs rw 0 0\n"
    )
    places = ("", "a b/c", "s3", "a b/local/c", "a b2")
    found = [network_type(f"{home}/{place}", str(mounts)) for place in places]
    assert found == [None, "nfs4", "fuse.s3fs", None, None]
    assert network_type(home, str(tmp_path / "no list")) is None
    monkeypatch.setattr("sluicegate.writer_hooks.upload.spool.network_type", lambda _: "nfs4")
    with pytest.raises(SpoolUnusable, match="to a folder of a local disk of each machine"):
        make_spool(str(tmp_path / "spool"))


def test_an_uploader_that_cannot_be_started_is_told_with_the_way_out(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/python")
    ensure_uploader(spool)
    assert f"Upload them with: sluicegate uploads drain --spool {spool.folder}" in caplog.text


@pytest.mark.slow
def test_an_uploader_ends_when_its_folder_is_gone_or_another_one_runs(spool: Spool, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sluicegate.writer_hooks.upload.process"]
    with spool.uploading() as mine:
        assert mine
        assert spool.has_uploader()
        assert subprocess.run([*command, spool.folder]).returncode == 0
    assert subprocess.run([*command, str(tmp_path / "gone")]).returncode == 0


def test_a_format_without_the_capability_is_refused() -> None:
    adapter = MemoryAdapter()
    table = adapter.parse_table("memory:flights")
    with pytest.raises(TableRefused, match="Leave the option upload out, or upgrade the package"):
        open_spooled(adapter, table, None, "d", None, lambda storage: storage)


def test_nothing_is_written_below_a_folder_that_is_not_mounted(
    spool: Spool, region: Region, tmp_path: Path, log: Log
) -> None:
    region = replace(region, kafka=KafkaSettings(bootstrap_servers=log.bootstrap))
    name = enter(spool, region, str(tmp_path / "table"))
    (tmp_path / "table").rmdir()
    upload_once(spool)
    assert "Mount it; the files wait" in (spool.reason(name) or "")
    assert not (tmp_path / "table").exists()
    (tmp_path / "table").mkdir()
    Uploader(spool).run(lambda empty: empty)
    assert len([*(tmp_path / "table").rglob("*.parquet")]) == 1


def test_a_target_that_fails_leaves_the_threads_to_others(
    spool: Spool, region: Region, tmp_path: Path, log: Log
) -> None:
    for _ in range(8):
        enter(spool, region, str(tmp_path / "away"))
    (tmp_path / "away").rmdir()
    good = replace(region, kafka=KafkaSettings(bootstrap_servers=log.bootstrap))
    name = enter(spool, good, str(tmp_path / "table"), uploads=Uploads(threads=1))
    Uploader(spool).run(lambda _: name not in spool.names())
    assert len(spool.names()) == 8


def test_files_that_can_never_be_sent_are_discarded(
    spool: Spool, region: Region, tmp_path: Path, log: Log
) -> None:
    command = ["uploads", "discard", "--spool", spool.folder, "--stream", region.stream, "--region", "r1"]
    short = Uploads(log=(("publish.timeout", "0.5"),))
    name = enter(spool, region, str(tmp_path / "table"), uploads=short)
    refused = CliRunner().invoke(main, command)
    assert "discard the files with --unreported and reset the region" in refused.stderr
    assert spool.names() == [name]
    assert "1 attempt discarded" in CliRunner().invoke(main, [*command, "--unreported"]).stdout
    assert spool.names() == []
    enter(
        spool, replace(region, kafka=KafkaSettings(bootstrap_servers=log.bootstrap)), str(tmp_path / "table")
    )
    assert CliRunner().invoke(main, command).exit_code == 0
    wait_until(lambda: log.of(CheckpointFailed))
    assert spool.names() == []


SCANS = """\
import os, pathlib, signal, sys
def scan(local, uri):
    match uri:
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hangs":
            signal.pause()
        case "wrong":
            return {"verdict": 1}
        case "long":
            return {"verdict": "x" * 2000}
        case "silent":
            return None
        case "exits":
            sys.exit(0)
        case "forks" if os.fork() == 0:
            return {"verdict": "of a child"}
        case "forks":
            os.wait()
            return {"verdict": "of the caller"}
        case "surrogate":
            return {"verdict": chr(0xD800)}
    tries = pathlib.Path(__file__).parent / "tries"
    tries.write_text((tries.read_text() if tries.exists() else "") + "x")
    if len(tries.read_text()) < int(os.environ.get("NEEDED", 1)):
        raise OSError("the scanner is away")
    return {"verdict": "clean é", "key": os.environ.get("AWS_ACCESS_KEY_ID", "")}
"""


@pytest.fixture
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of a module with a function that may fail. Afterwards it has a file with one letter a call."""
    (tmp_path / "scans.py").write_text(SCANS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_a_function_returns_facts_or_its_call_has_failed(scans: Path) -> None:
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "own"}
    call = partial(call_before_publish, "scans:scan", "x", path=[str(scans), *sys.path], timeout=BACKSTOP)
    assert call("file:///x", environment=environment) == {"verdict": "clean é", "key": "own"}
    assert call("silent", environment=environment) == {}
    for uri, problem in (
        ("killed", "was killed"),
        ("wrong", "must return None, or a dict of texts"),
        ("long", "bytes are possible"),
        # Without an answer, or with two, nothing is known of the file.
        ("exits", "gave no answer that can be read"),
        ("forks", "gave no answer that can be read"),
        ("surrogate", "surrogates not allowed"),
    ):
        with pytest.raises(WorkFailed, match=problem):
            call(uri, environment=environment)
    with pytest.raises(WorkFailed, match="OSError: the scanner is away"):
        call("file:///x", environment={**environment, "NEEDED": "99"})
    with pytest.raises(WorkFailed, match="did not end within"):
        call("hangs", environment=environment, timeout=0.2)  # time: what is tested
    with pytest.raises(WorkFailed, match="could not be called"):
        call("file:///x", environment={**environment, "LONG": "x" * (4 << 20)})


def test_a_function_that_fails_is_called_again_however_late_it_is(
    spool: Spool, region: Region, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never stalls its region, and other files of the table do not wait for it."""
    sent: list[Event] = []
    failing = [True]

    def scan(function: str, local: str, uri: str, **_: object) -> dict[str, str]:
        if failing and "bad" in Path(local).read_text():
            raise WorkFailed("the scanner is away")
        return {"verdict": "clean"}

    monkeypatch.setattr(uploader, "call_before_publish", scan)
    monkeypatch.setattr(uploader, "_publish", lambda _, events: sent.extend(events))
    monkeypatch.setattr(uploader, "_FIRST_PAUSE", 0.0)
    table = str(tmp_path / "table")
    # No time is left for storages that fail.
    uploads = Uploads(before_publish="scans:scan", timeout=0.0)  # time: as above
    bad = enter(spool, region, table, b"bad", uploads)
    enter(spool, region, table, b"good", uploads)
    running, calls = Uploader(spool), iter(range(5))
    running.run(lambda _: next(calls, None) is None)
    assert spool.names() == [bad]
    assert "the scanner is away" in (spool.reason(bad) or "")
    failing.clear()
    running.run(lambda empty: empty)
    assert [type(each.body) for each in sent] == [FilesWritten, FilesWritten], "nothing is reported as lost"
    assert [list(each.body.facts.values()) for each in sent if isinstance(each.body, FilesWritten)] == [
        [{"verdict": "clean"}],
        [{"verdict": "clean"}],
    ]


@pytest.mark.slow
def test_a_task_that_uploads_itself_calls_the_function_until_it_succeeds(
    scans: Path, region: Region, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NEEDED", "2")
    monkeypatch.setattr("sluicegate.writer_hooks.upload.delivery._FIRST_PAUSE", 0.0)
    (scans / "table").mkdir()
    options = {
        "stream": region.stream,
        "region": "r1",
        "table": str(scans / "table"),
        "kafka.bootstrap.servers": region.kafka.bootstrap_servers,
        "before.publish": "scans:scan",
    }
    task = delivery_of(SinkOptions.parse(options, located=False), Attempt("i1", 1, "w0"), math.inf)
    adapter = MemoryAdapter()
    target = task.target(Target(adapter, adapter.parse_table("memory:flights"), None, 1_000_000))
    assert target.with_facts
    assert target.wrap is not None
    storage = target.wrap(open_storage((scans / "table").as_uri()))
    storage.write("p=1", {"x.parquet": b"rows"})
    assert not list((scans / "table").rglob("*.parquet"))
    (message,) = task.deliver(written(region, storage))
    task.abort()
    assert (scans / "table" / "p=1" / "x.parquet").read_bytes() == b"rows"
    assert FilesWritten.model_validate_json(message.value).facts["p=1/x.parquet"]["verdict"] == "clean é"
    assert ((scans / "tries").read_text(), caplog.text.count("the scanner is away")) == ("xx", 1)
    # A function that never succeeds fails the attempt, which leaves nothing.
    monkeypatch.setenv("NEEDED", "99")
    impatient = SinkOptions.parse({**options, "upload.timeout": "0.01"}, located=False)
    task = delivery_of(impatient, Attempt("i1", 1, "w0"), math.inf)
    wrap = task.target(target).wrap
    assert wrap is not None
    storage = wrap(open_storage((scans / "table").as_uri()))
    storage.write("p=1", {"y.parquet": b"rows"})
    with pytest.raises(LakeUnavailable, match=r"the scanner is away\. Another attempt is safe"):
        task.deliver(written(region, storage))
    task.abort()
    assert [each.name for each in (scans / "table").rglob("*.parquet")] == ["x.parquet"]


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
    task, wrap = deferred(region, Uploads(spool=spool.folder, max_bytes=1))
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


REGION = "0" * 16


def uploads(**options: str) -> Uploads:
    found = Uploads.parse(
        {"upload": "async", **{name.replace("_", "."): each for name, each in options.items()}}
    )
    assert found is not None
    return found


class Reports(OverdueUploads):
    """Losses whose reports are kept."""

    def __init__(self, **options: str) -> None:
        kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
        region = Region("flights", "r1", kafka, Assignment(number=0, regions=("r1",)))
        super().__init__(region, uploads(upload_timeout="100", **options))
        self.reported: list[tuple[int, float]] = []

    def _report(self, incarnation: str, number: int, now: float) -> None:
        self.reported.append((number, now))
        self._completed[number] = now


def test_only_the_oldest_checkpoint_is_reported_after_its_time() -> None:
    overdue = Reports()
    for now in range(0, 230, 10):
        overdue.report("q1", float(now))
        if now in (0, 50):
            overdue.complete(3 + now // 50, float(now))
    assert overdue.reported == [(3, 100.0), (3, 200.0)]
    overdue.commit(3)
    overdue.report("q1", 230.0)
    assert overdue.reported[-1] == (4, 230.0)


def test_work_that_takes_long_is_not_reported_as_lost() -> None:
    """The machine of another task may call the function again and again; the region falls back meanwhile."""
    overdue = Reports(before_publish="posixpath:join")
    overdue.complete(3, 0.0)
    for now in range(0, 10_000, 10):
        overdue.report("q1", float(now))
    assert overdue.reported == []


@pytest.mark.parametrize(("in_spool", "reports"), [({3}, 0), ({2}, 0), ({4}, 1), (set(), 1)])
def test_a_checkpoint_with_files_in_the_spool_is_left_to_its_uploader(
    in_spool: set[int], reports: int
) -> None:
    overdue = Reports()
    overdue.complete(3, 0.0)
    for now in range(0, 110, 10):
        overdue.report("q1", float(now), in_spool=in_spool)
    assert len(overdue.reported) == reports


def test_time_in_which_kafka_was_away_does_not_count() -> None:
    overdue = Reports()
    overdue.report("q1", 0.0)
    overdue.complete(3, 0.0)
    overdue.report("q1", 3_600.0)
    assert overdue.reported == []
    for now in range(3_610, 3_720, 10):
        overdue.report("q1", float(now))
    assert overdue.reported == [(3, 3_700.0)]


def entry_name(checkpoint: int, attempt: str) -> EntryName:
    return EntryName(time.time_ns(), REGION, checkpoint, 10, attempt)


def put(spool: Spool, name: EntryName) -> None:
    os.close(spool.begin(name.attempt))
    spool.put(name, "{}")


def test_the_limit_counts_the_bytes_of_all_entries(spool: Spool) -> None:
    limits = uploads(upload_max_bytes="20")
    put(spool, entry_name(7, "a" * 32))
    assert spool.excess(limits) is None
    put(spool, entry_name(8, "b" * 32))
    assert spool.excess(limits) is not None


def test_a_sweep_leaves_files_of_entries_and_of_living_tasks(spool: Spool) -> None:
    with_entry, dead, alive = "a" * 32, "b" * 32, "c" * 32
    put(spool, entry_name(7, with_entry))
    os.close(spool.begin(dead))
    lock = spool.begin(alive)
    try:
        spool.sweep()
        assert sorted(os.listdir(f"{spool.folder}/files")) == [with_entry, alive]
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _change(function: str, local: str, uri: str, **rest: object) -> dict[str, str]:
    Path(local).write_bytes(b"other rows")
    return {}


def test_a_file_that_the_function_changes_is_not_uploaded(tmp_path: Path) -> None:
    """The event has the size and the statistics of the rows that the task has written."""
    spool, table = make_spool(str(tmp_path / "spool")), tmp_path / "table"
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    region = Region("flights", "r1", kafka, Assignment(number=0, regions=("r1",)))
    name = enter(spool, region, str(table), uploads=Uploads(before_publish="scans:scan"))
    entry = read_entry(spool, name)
    assert entry is not None
    with (
        patch.object(uploader, "call_before_publish", _change),
        patch.object(uploader, "_publish", lambda *_: None),
        pytest.raises(Lost, match="has other content than its task has written"),
    ):
        uploader.send(spool, name, entry, uploader.Credentials(), uploader.Progress())
    assert not [each for each in table.rglob("*") if each.is_file()]


class _Catalog:
    """A format whose catalog gives keys, by a variable that it reads when the source is made."""

    name = "catalog-double"

    def __init__(self) -> None:
        self.made: list[str] = []
        self.options: Mapping[str, str] = {}

    def key_source(self, options: Mapping[str, str]) -> "_Catalog":
        self.options = options
        self.made.append(os.environ["AWS_ACCESS_KEY_ID"])
        return self

    def keys(self, uri: str) -> Keys:
        assert uri.startswith(f"s3://{BUCKET}/")
        return Keys(f"of-{self.made[-1]}", "secret", None)

    def drop(self, keys: Keys) -> bool:
        return False

    def lifetime(self) -> float | None:
        return None


def test_keys_of_a_catalog_open_the_store_that_the_task_names(
    s3_double: S3Double, spool: Spool, region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables of the uploader may be those of another store, and of another role."""
    catalog, table = _Catalog(), f"s3://{BUCKET}/table"
    options = {"format": "catalog-double"}
    s3_double.access_keys = {"of-first", "of-second"}
    entries: list[tuple[EntryName, Entry | None]] = []
    for access in ("first", "first", "second"):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", access)
        name = enter(spool, replace(region, stream=f"s{len(entries)}"), table, keys_of=options)
        entries.append((name, read_entry(spool, name)))
    of_the_uploader = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "third"}
    for name_, value in of_the_uploader.items():
        monkeypatch.setenv(name_, value)
    credentials = uploader.Credentials()
    with (
        patch.object(uploader, "adapter", lambda _: catalog),
        patch.object(uploader, "_publish", lambda *_: None),
    ):
        for name, entry in entries:
            assert entry is not None
            uploader.send(spool, name, entry, credentials, uploader.Progress())
    assert len(s3_double.objects) == 3
    assert catalog.made == ["first", "second"], "entries share a source, unless the variables are others"
    assert {name_: os.environ[name_] for name_ in of_the_uploader} == of_the_uploader
