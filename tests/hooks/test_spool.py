"""Spools: whose they are, what stays in them, and what an uploader does with entries that it cannot send."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sluicegate.events.models import Assignment, FileInfo, FilesWritten
from sluicegate.lakes.memory import MemoryAdapter
from sluicegate.lakes.port import TableRefused
from sluicegate.lakes.spooled import SpooledStorage, open_spooled
from sluicegate.lakes.storages import open_storage
from sluicegate.writer_hooks.errors import SpoolUnusable
from sluicegate.writer_hooks.kafka import KafkaSettings
from sluicegate.writer_hooks.region import Attempt, Region, files_written
from sluicegate.writer_hooks.upload.entry import BadEntry, Entry, SpooledFile, name_of
from sluicegate.writer_hooks.upload.names import EntryName
from sluicegate.writer_hooks.upload.options import Uploads
from sluicegate.writer_hooks.upload.spool import Spool, existing_spool, make_spool
from sluicegate.writer_hooks.upload.starting import ensure_uploader
from sluicegate.writer_hooks.upload.uploader import Uploader
from tests.hooks.log import Log
from tests.integration.waiting import wait_until
from tests.s3proxy import BUCKET, S3Proxy


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
    lock = spool.begin(attempt.id)
    storage = SpooledStorage(open_storage(target), spool.files(attempt.id))
    storage.write("p=1", {f"data-{attempt.id}.parquet": content})
    ((path, found),) = storage.files.items()
    storage.settle_files([path])
    file = FileInfo(path=path, size=found.size, rows=1)
    body = FilesWritten(format="delta", location=storage.uri, schema_id=0, files=(file,))
    events = files_written(region, attempt, body, 1_000_000)
    topic = {"kafka.bootstrap.servers": region.kafka.bootstrap_servers, "topic.prefix": region.topic_prefix}
    options = replace(uploads or Uploads(), log=tuple(topic.items()))
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
    assert {path.stat().st_mode & 0o777 for path in (made, *made.iterdir())} == {0o700}
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
    path.write_text("{}")
    upload_once(spool)
    assert spool.names() == []
    assert "no entry of a spool" in spool.given_up(0.0)[0].reason


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


@pytest.mark.s3
def test_an_older_entry_uses_the_credentials_of_a_newer_task(
    spool: Spool, region: Region, log: Log, s3proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    region = replace(region, kafka=KafkaSettings(bootstrap_servers=log.bootstrap))
    right, target = s3proxy.environment(), f"s3://{BUCKET}/{region.stream}"
    with monkeypatch.context() as outdated:
        for variable, value in {**right, "AWS_SECRET_ACCESS_KEY": "outdated"}.items():
            outdated.setenv(variable, value)
        old = enter(spool, region, target, b"old")
        upload_once(spool)
        assert spool.names() == [old]
    with monkeypatch.context() as renewed:
        for variable, value in right.items():
            renewed.setenv(variable, value)
        new = enter(spool, region, target, b"new")
    Uploader(spool).run(lambda empty: empty)
    objects = {path.name: path.read_bytes() for path in (s3proxy.bucket / region.stream / "p=1").iterdir()}
    assert objects == {f"data-{old.attempt}.parquet": b"old", f"data-{new.attempt}.parquet": b"new"}
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ


def test_an_uploader_that_cannot_be_started_is_told_with_the_way_out(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/python")
    ensure_uploader(spool)
    assert f"Upload them with: sluicegate uploads drain --spool {spool.folder}" in caplog.text


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
