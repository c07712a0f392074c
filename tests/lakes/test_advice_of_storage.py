"""What the lake advises when storage or a table stands in the way is done, and the same commit succeeds."""

import errno
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest
from pypaimon import CatalogFactory
from pypaimon.schema.schema_change import SchemaChange

from sluicegate.coordinator.observe.messages import format_cause
from sluicegate.events.models import FilesWritten
from sluicegate.lakes import adapter
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.port import BadFiles, LakeUnavailable, NotPublished, Published, Refused, TableRefused
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import USER, Lake, Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.paimon.test_buckets import alter, fixed, rows

Trouble = Callable[[PaimonLake, pytest.MonkeyPatch], AbstractContextManager[None]]
"""Makes the trouble, and follows the advice at its end."""


def _used(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def quota_used_up(
    lake: PaimonLake, monkeypatch: pytest.MonkeyPatch, *, raise_it: bool = True
) -> Iterator[None]:
    """Let the folder take no more than it has; then raise the quota, or free what is no part of the table."""
    (lake.root / "ballast").write_bytes(b"x" * 100_000)
    quota, write = _used(lake.root), os.write

    def limited(descriptor: int, content: bytes) -> int:
        if _used(lake.root) + len(content) > quota:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        return write(descriptor, content)

    monkeypatch.setattr(os, "write", limited)
    yield
    if raise_it:
        quota += 100_000
    else:
        (lake.root / "ballast").unlink()


@contextmanager
def immutable(lake: PaimonLake, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = str(lake.root / "manifest")
    made = subprocess.run(["chattr", "+i", folder], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"this process may make no folder immutable: {made.stderr.strip()}")
    try:
        yield
        shown = subprocess.run(["lsattr", "-d", folder], capture_output=True, text=True, check=True)
        assert "i" in shown.stdout.split()[0]
    finally:
        subprocess.run(["chattr", "-i", folder], check=True)


@contextmanager
def in_the_place(
    lake: PaimonLake, monkeypatch: pytest.MonkeyPatch, *, name: str, put: Callable[[Path], None]
) -> Iterator[None]:
    """Put something else where a file or folder of the table belongs; then move that away."""
    there, away = lake.root / name, lake.root.parent / "away"
    was_there = there.exists()
    if was_there:
        there.rename(away)
    put(there)
    yield
    there.rename(lake.root.parent / "moved-away")
    if was_there:
        away.rename(there)


@contextmanager
def failing(
    lake: PaimonLake, monkeypatch: pytest.MonkeyPatch, *, call: str, error: OSError
) -> Iterator[None]:
    """Let a call of the system fail, as it does until the host or its device is mended."""

    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        yield


@contextmanager
def limit(lake: PaimonLake, monkeypatch: pytest.MonkeyPatch, *, which: int, low: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(which)
    resource.setrlimit(which, (low, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


FILE_OF_OTHERS = partial(in_the_place, put=Path.touch)


@pytest.mark.parametrize(
    ("committed", "trouble", "advice"),
    [
        ([1], quota_used_up, "Raise the quota of user {user}, or free some space in {root}/manifest"),
        ([1], partial(quota_used_up, raise_it=False), "or free some space in {root}/manifest"),
        (
            [1],
            immutable,
            "See whether {root}/manifest is immutable (lsattr), who owns it, and whether its file system",
        ),
        ([1], partial(FILE_OF_OTHERS, name="snapshot"), "Move the file away from the path {root}/snapshot/"),
        (
            [],
            partial(FILE_OF_OTHERS, name="manifest"),
            "See what stands at {root}/manifest, and move it away",
        ),
        (
            [1],
            partial(in_the_place, name="snapshot/LATEST", put=Path.mkdir),
            "Move the folder away from the path {root}/snapshot/LATEST",
        ),
        (
            [1],
            partial(failing, call="fsync", error=OSError(errno.EIO, "Input/output error")),
            "See the health of the device of {root}/manifest (dmesg)",
        ),
        (
            [1],
            partial(limit, which=resource.RLIMIT_NOFILE, low=3),
            "Raise its limit of open files (ulimit -n)",
        ),
        (
            [1],
            partial(failing, call="open", error=OSError(errno.ENFILE, "Too many open files in system")),
            "Raise the host's limit of open files (fs.file-max)",
        ),
        (
            [1],
            partial(limit, which=resource.RLIMIT_FSIZE, low=64),
            "Raise the process's limit of file sizes (ulimit -f)",
        ),
        (
            [1],
            partial(in_the_place, name="snapshot", put=_loop),
            "(ELOOP). See whether {root}/snapshot/LATEST can be read and written",
        ),
        (
            [1],
            partial(failing, call="fsync", error=OSError("the driver gives no number")),
            "the driver gives no number. See whether {root}/manifest can be read and written",
        ),
    ],
)
def test_a_commit_succeeds_after_what_the_storage_needs_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: list[int], trouble: Trouble, advice: str
) -> None:
    lake = PaimonLake(tmp_path)
    stream = Stream(lake)
    for decision in committed:
        stream.commit(decision, [decision])
    event, head = lake.event([2]), stream.head(2)
    with trouble(lake, monkeypatch):
        outcome = stream.publish(2, head, [event])
        assert isinstance(outcome, NotPublished), outcome
    assert advice.format(root=lake.root, user=os.geteuid()) in outcome.reason
    assert isinstance(stream.publish(2, stream.head(2), [event]), Published)
    assert lake.ids() == [*committed, 2]


def test_a_table_is_made_after_its_storage_is_mounted(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path / "warehouse")
    event = lake.event([1])
    (tmp_path / "mount").symlink_to(tmp_path / "volume")
    place = str(tmp_path / "mount" / "numbers")
    maintenance = ADAPTER.open_maintenance(ADAPTER.parse_table(place))
    with pytest.raises(LakeUnavailable) as raised:
        maintenance.create_like(ADAPTER.parse_table(lake.location))
    assert f"See whether the storage of {place} is mounted" in str(raised.value)
    (tmp_path / "volume").mkdir()
    maintenance.create_like(ADAPTER.parse_table(lake.location))
    commit_to(place, maintenance.adopt(event))


def commit_to(location: str, *events: FilesWritten) -> None:
    """Commit to a table that has no commit yet, which then has exactly the rows of these events."""
    lake = at(location)
    stream = Stream(lake)
    stream.committer.check(events)
    assert isinstance(stream.publish(1, stream.head(1), events), Published)
    assert lake.read().num_rows == sum(file.rows for event in events for file in event.files)


def at(location: str) -> PaimonLake:
    """Give a table that is there already."""
    lake = PaimonLake.__new__(PaimonLake)
    lake.adapter, lake.root, lake.location = ADAPTER, Path(location), location
    root = lake.root.parent.parent
    if lake.root.parent.name != "db.db":
        # The catalog finds a table by its place only.
        root = lake.root.parent / "catalog"
        (root / "db.db").mkdir(parents=True)
        (root / "db.db" / "numbers").symlink_to(lake.root)
    lake.catalog = CatalogFactory.create({"warehouse": str(root)})
    return lake


def test_a_table_on_a_file_system_without_hard_links_is_moved_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tmp_path / "without-links"
    link = os.link

    def refusing(source: str, target: str) -> None:
        if target.startswith(f"{before}/"):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        link(source, target)

    lake = PaimonLake(before)
    event = lake.event([1])
    stream = Stream(lake)
    monkeypatch.setattr(os, "link", refusing)
    outcome = stream.publish(1, stream.head(1), [event])
    assert isinstance(outcome, Refused)
    assert outcome.cause is not None
    sentence = format_cause(outcome.cause, outcome.reason)
    assert "Move the table to a file system with hard links" in sentence
    assert os.strerror(errno.EPERM) in sentence
    shutil.move(before, tmp_path / "with-links")
    moved = at(str(tmp_path / "with-links" / "db.db" / "numbers"))
    commit_to(moved.location, event.model_copy(update={"location": moved.storage.uri}))
    assert moved.ids() == [1]


def test_a_table_in_a_store_that_is_not_known_is_given_by_a_local_path(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path)
    with pytest.raises(TableRefused, match="Use a local or mounted path"):
        ADAPTER.open_committer(ADAPTER.parse_table("hdfs://host/db.db/numbers"), USER)
    stream = Stream(lake, ADAPTER.open_committer(ADAPTER.parse_table(lake.location), USER))
    stream.commit(1, [1])
    assert lake.ids() == [1]


@pytest.mark.slow
def test_a_format_that_is_not_known_is_set_to_one_that_is(tmp_path: Path) -> None:
    with pytest.raises(TableRefused) as raised:
        adapter("hudi")
    said = str(raised.value)
    assert said.endswith("Set `format` to one")
    known = said.partition("this release knows: ")[2].partition(".")[0].split(", ")
    iceberg = IcebergLake(tmp_path / "iceberg")
    lakes: dict[str, Lake] = {
        "delta": DeltaLake(tmp_path / "delta"),
        "iceberg": iceberg,
        "paimon": PaimonLake(tmp_path / "paimon"),
    }
    assert known == sorted(lakes)
    for name, lake in lakes.items():
        options = iceberg.options if lake is iceberg else None
        committer = adapter(name).open_committer(adapter(name).parse_table(lake.location, options), USER)
        Stream(lake, committer).commit(1, [1])
        assert lake.ids() == [1]


def test_a_schema_that_cannot_be_read_is_looked_at_and_mended(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path)
    schema = lake.root / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace('"bucket": "-1"', '"bucket": "many"'))
    with pytest.raises(TableRefused) as raised:
        Stream(lake)
    advised = str(raised.value).partition("look at the file ")[2].partition(" of the table")[0]
    assert advised == "schema/schema-0"
    looked_at = (lake.root / advised).read_text()
    (lake.root / advised).write_text(looked_at.replace('"many"', '"-1"'))
    Stream(lake).commit(1, [1])
    assert lake.ids() == [1]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["a new one", "this one altered"])
def test_a_stream_gets_a_table_without_what_is_not_supported(tmp_path: Path, way: str) -> None:
    lake = PaimonLake(tmp_path / "first")
    alter(lake, SchemaChange.set_option("deletion-vectors.enabled", "true"))
    with pytest.raises(TableRefused) as raised:
        Stream(lake)
    assert "Give the stream an append table without that" in str(raised.value)
    assert way in str(raised.value)
    if way == "a new one":
        lake = PaimonLake(tmp_path / "second")
    else:
        alter(lake, SchemaChange.set_option("deletion-vectors.enabled", "false"))
    Stream(lake).commit(1, [1])
    assert lake.ids() == [1]


@pytest.mark.slow
def test_a_table_with_other_buckets_is_made_anew_with_its_rows(tmp_path: Path) -> None:
    lake = fixed(tmp_path / "first", 4, "i64", ["day"])
    stream = Stream(lake)
    assert isinstance(stream.publish(1, None, [lake.write(rows(9, 1))]), Published)
    alter(lake, SchemaChange.set_option("bucket", "8"))
    with pytest.raises(TableRefused, match="Make a new table with the buckets that you want, copy the rows"):
        Stream(lake)
    new = fixed(tmp_path / "second", 8, "i64", ["day"])
    new.foreign_write(lake.read().cast(rows(0).schema))
    stream = Stream(new)
    outcome = stream.publish(1, stream.head(1), [new.write(rows(9, 10))])
    assert isinstance(outcome, Published)
    assert new.ids() == list(range(1, 19))


@pytest.mark.parametrize("way", ["with the same schemas", "a folder that is not there yet"])
def test_files_are_taken_over_into_a_table_with_their_schema(tmp_path: Path, way: str) -> None:
    lake = PaimonLake(tmp_path / "warehouse")
    event = lake.event([1])
    other = tmp_path / "other"
    (other / "schema").mkdir(parents=True)
    schema = json.loads((lake.root / "schema" / "schema-0").read_bytes())
    schema["fields"][0]["name"] = "number"
    (other / "schema" / "schema-0").write_text(json.dumps(schema))
    with pytest.raises(BadFiles, match="make the new table with the same schemas") as raised:
        ADAPTER.open_maintenance(ADAPTER.parse_table(str(other))).adopt(event)
    assert way in str(raised.value)
    if way == "with the same schemas":
        shutil.copytree(lake.root / "schema", other / "schema", dirs_exist_ok=True)
    else:
        other = tmp_path / "new"
    maintenance = ADAPTER.open_maintenance(ADAPTER.parse_table(str(other)))
    maintenance.create_like(ADAPTER.parse_table(lake.location))
    commit_to(str(other), maintenance.adopt(event))
