"""Spools: whose they are, what stays in them, and what an uploader does with entries that it cannot send."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluicegate.cli.main import main
from sluicegate.events.models import Assignment, CheckpointFailed, FileInfo, FilesWritten
from sluicegate.lakes.memory import MemoryAdapter
from sluicegate.lakes.port import TableRefused
from sluicegate.lakes.spooled import SpooledStorage, open_spooled
from sluicegate.lakes.storages import open_storage
from sluicegate.writer_hooks.errors import SpoolUnusable
from sluicegate.writer_hooks.options import Uploads
from sluicegate.writer_hooks.region import Attempt, KafkaSettings, Region, files_written
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
)
from sluicegate.writer_hooks.upload.uploader import Uploader, call_before_publish
from tests.hooks.log import Log
from tests.integration.waiting import BACKSTOP, wait_until


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return make_spool(str(tmp_path / "spool"))


@pytest.fixture
def region(unique: str) -> Region:
    """A region whose events nobody can publish."""
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    return Region(unique, "r1", kafka, Assignment(number=0, regions=("r1",)), topic_prefix=unique)


def enter(
    spool: Spool, region: Region, target: str, content: bytes = b"rows", uploads: Uploads | None = None
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
    spool.put(name, Entry.of_task(storage.uri, files, events, options).to_json())
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


def test_only_files_that_nobody_needs_are_swept(spool: Spool, region: Region, tmp_path: Path) -> None:
    entered = enter(spool, region, str(tmp_path / "table"))
    writing = spool.begin("0" * 32)
    os.close(spool.begin("1" * 32))  # the task of this one was killed
    spool.sweep()
    assert sorted(os.listdir(f"{spool.folder}/files")) == sorted([entered.attempt, "0" * 32])
    os.close(writing)
    spool.sweep()
    assert os.listdir(f"{spool.folder}/files") == [entered.attempt]


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
    assert "1 attempts are discarded" in CliRunner().invoke(main, [*command, "--unreported"]).stdout
    assert spool.names() == []
    enter(
        spool, replace(region, kafka=KafkaSettings(bootstrap_servers=log.bootstrap)), str(tmp_path / "table")
    )
    assert CliRunner().invoke(main, command).exit_code == 0
    wait_until(lambda: log.of(CheckpointFailed))
    assert spool.names() == []


@pytest.mark.slow
def test_a_function_that_was_killed_is_not_one_that_failed(tmp_path: Path) -> None:
    (tmp_path / "scans.py").write_text(
        "import os, signal\n"
        "def scan(local, uri):\n"
        "    print(os.environ['AWS_ACCESS_KEY_ID'])\n"
        "    os.kill(os.getpid(), signal.SIGKILL) if uri == 'killed' else 1 / 0\n"
    )
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "own"}
    call = partial(call_before_publish, "scans:scan", "x", path=[str(tmp_path), *sys.path], timeout=BACKSTOP)
    with pytest.raises(InterruptedError, match="was killed"):
        call("killed", environment=environment)
    with pytest.raises(Lost, match="ZeroDivisionError"):
        call("file:///x", environment=environment)


def test_a_loss_is_reported_of_the_oldest_checkpoint_that_nobody_here_uploads(
    region: Region, log: Log
) -> None:
    region = replace(region, kafka=KafkaSettings(bootstrap_servers=log.bootstrap))
    uploads = Uploads.parse({"upload": "async", "upload.timeout": "100"})
    assert uploads is not None
    losses = OverdueUploads(region, uploads)
    losses.complete(4, now=0.0)
    losses.complete(3, now=-50.0)
    losses.report("i1", 60.0, in_spool={3}, committed=lambda: pytest.fail("its uploader is here"))
    losses.report("i1", 60.0, in_spool={4}, committed=lambda: None)
    losses.report("i1", 64.0, committed=lambda: pytest.fail("asked again at once"))
    losses.report("i1", 65.0, committed=lambda: 3)
    assert losses.committed == 3
    losses.report("i1", 95.0, committed=lambda: pytest.fail("it has time"))
    losses.report("i1", 100.0, committed=lambda: -1)
    wait_until(lambda: log.of(CheckpointFailed))
    assert [envelope.checkpoint for envelope, _ in log.of(CheckpointFailed)] == [4]


def test_an_outage_of_kafka_does_not_count_for_losses(region: Region, log: Log) -> None:
    region = replace(region, kafka=KafkaSettings(bootstrap_servers=log.bootstrap))
    uploads = Uploads.parse({"upload": "async", "upload.timeout": "100"})
    assert uploads is not None
    losses = OverdueUploads(region, uploads)
    losses.report("i1", now=0.0)
    losses.complete(3, now=1.0)
    losses.report("i1", now=20.0)
    # No heartbeat was acknowledged for an hour.
    losses.report("i1", now=3620.0)
    losses.commit(3)
    losses.complete(4, now=2.0)
    for now in range(3630, 3720, 10):
        losses.report("i1", now=now)
    losses.report("i1", now=3721.0)
    wait_until(lambda: log.of(CheckpointFailed))
    assert [envelope.checkpoint for envelope, _ in log.of(CheckpointFailed)] == [4]
