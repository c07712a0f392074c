"""Every file and folder is on disk before anything that refers to it is made visible."""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import Found, Published
from tests.contracts.lakes.harness import Fault, Stream, with_commits
from tests.contracts.lakes.paimon_lake import ID_ONLY, PaimonLake

DAYS = pa.schema([pa.field("id", pa.int64()), pa.field("day", pa.string())])


class Calls:
    """What was made durable, in the order of the calls, as paths below one folder."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.made: list[tuple[str, str]] = []
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._of_descriptor("sync", getattr(os, name)))
        monkeypatch.setattr(os, "write", self._of_descriptor("write", os.write))
        monkeypatch.setattr(os, "link", self._link(os.link))
        monkeypatch.setattr(os, "open", self._open(os.open))
        monkeypatch.setattr(os, "mkdir", self._mkdir(os.mkdir))

    def _note(self, what: str, path: str) -> None:
        if path == str(self.root) or path.startswith(f"{self.root}/"):
            self.made.append((what, os.path.relpath(path, self.root)))

    def _of_descriptor(self, what: str, real: Any) -> Any:
        def called(descriptor: int, *more: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            result = real(descriptor, *more)
            self._note(what, path)
            return result

        return called

    def _link(self, real: Any) -> Any:
        def called(draft: str, target: str) -> None:
            real(draft, target)
            self._note("link of", draft)
            self._note("link", target)

        return called

    def _open(self, real: Any) -> Any:
        def called(path: Any, flags: int, *more: Any, **named: Any) -> int:
            descriptor: int = real(path, flags, *more, **named)
            if flags & os.O_EXCL:
                self._note("make", os.fspath(path))
            return descriptor

        return called

    def _mkdir(self, real: Any) -> Any:
        def called(path: Any, *more: Any, **named: Any) -> None:
            real(path, *more, **named)
            self._note("make", os.fspath(path))

        return called

    def last(self, *what: tuple[str, str]) -> int:
        """The place of the last of these calls; -1 if there is none."""
        return max((at for at, call in enumerate(self.made) if call in what), default=-1)

    def made_in(self, folder: str) -> list[str]:
        return [
            path for what, path in self.made if what == "make" and (os.path.dirname(path) or ".") == folder
        ]

    def assert_durable(self, path: str, before: int) -> None:
        """Its content, and its name in its folder, were synced before that call."""
        written = self.last(("write", path), ("make", path))
        if os.path.isfile(self.root / path) or ("write", path) in self.made:
            assert written < self.first("sync", path, written) < before, f"the content of {path}"
        folder = os.path.dirname(path) or "."
        assert self.first("sync", folder, self.last(("make", path))) < before, f"the name of {path}"

    def first(self, what: str, path: str, after: int) -> int:
        """The place of the first such call after a place; beyond the end if there is none."""
        places = (at for at in range(after + 1, len(self.made)) if self.made[at] == (what, path))
        return next(places, len(self.made))


def drafts(calls: Calls) -> Iterator[str]:
    return (path for what, path in calls.made if what == "link of")


@pytest.mark.parametrize("before", [0, 1])
def test_what_a_snapshot_refers_to_is_durable_before_it_is_visible(
    lake: PaimonLake, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """Of the first commit, which makes the folders, and of a later one."""
    stream = with_commits(lake, before)
    event, head = lake.event([7]), stream.head(before + 1)
    for name in ("manifest", "snapshot") if before == 0 else ():
        shutil.rmtree(lake.root / name, ignore_errors=True)
    stream.committer = lake.committer()
    stream.committer.inspect()
    calls = Calls(lake.root, monkeypatch)
    assert isinstance(stream.publish(before + 1, head, [event]), Published)
    target = f"snapshot/snapshot-{before + 1}"
    link = calls.last(("link", target))
    assert calls.first("sync", ".", -1) < link, "the names of the folders"
    manifests = calls.made_in("manifest")
    assert len(manifests) == 3
    for path in (*manifests, *calls.made_in(".")):
        calls.assert_durable(path, link)
    (draft,) = drafts(calls)
    assert calls.last(("write", draft)) < calls.first("sync", draft, calls.last(("write", draft))) < link
    assert calls.first("sync", "snapshot", link) < len(calls.made), "the snapshot's own name"
    assert sorted(calls.made_in(".")) == (["manifest", "snapshot"] if before == 0 else [])


@pytest.mark.parametrize("way", ["ask", "publish"])
def test_a_snapshot_that_another_process_left_is_made_durable_before_it_counts(
    lake: PaimonLake, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It was killed between the link and the sync of the folder."""
    dead = Stream(lake, lake.committer(fault=Fault.LANDED))
    event, head = lake.event([1]), dead.head(1)
    dead.publish(1, head, [event])
    successor = Stream(lake)
    successor.recorded = None
    calls = Calls(lake.root, monkeypatch)
    if way == "ask":
        assert isinstance(successor.ask(1), Found)
    else:
        assert isinstance(successor.publish(1, head, [event]), Published)
    assert ("sync", "snapshot") in calls.made


def folders_of(paths: Iterable[str]) -> set[str]:
    """Every folder from the table's down to the files."""
    found = {"."}
    for path in paths:
        parts = path.split("/")[:-1]
        found |= {"/".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
    return found


def assert_all_synced(calls: Calls, event: FilesWritten) -> None:
    synced = {path for what, path in calls.made if what == "sync"}
    files = [file.path for file in event.files]
    assert set(files) <= synced
    assert folders_of(files) <= synced


@pytest.mark.parametrize("keys", [[], ["day"]])
def test_data_files_are_durable_before_they_are_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: list[str]
) -> None:
    lake = PaimonLake(tmp_path, DAYS, keys)
    calls = Calls(lake.root, monkeypatch)
    event = lake.write(pa.record_batch({"id": [1, 2], "day": ["a", "b"]}, DAYS))
    assert len(event.files) == (2 if keys else 1)
    assert_all_synced(calls, event)
    for file in event.files:
        sizes = (lake.root / file.path).stat().st_size
        assert sizes == file.size


def test_adopted_files_are_durable_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = PaimonLake(tmp_path / "source", DAYS, ["day"])
    event = source.write(pa.record_batch({"id": [1, 2], "day": ["a", "b"]}, DAYS))
    copy = PaimonLake(tmp_path / "copy", DAYS, ["day"])
    renamed: list[str] = []
    replace = os.replace

    def noted(draft: str, target: str) -> None:
        assert ("sync", os.path.relpath(draft, copy.root)) in calls.made
        renamed.append(os.path.relpath(target, copy.root))
        replace(draft, target)

    monkeypatch.setattr(os, "replace", noted)
    calls = Calls(copy.root, monkeypatch)
    adopted = copy.maintenance().adopt(event)
    assert sorted(renamed) == sorted(file.path for file in adopted.files)
    assert folders_of(renamed) <= {path for what, path in calls.made if what == "sync"}


def test_a_made_tables_schema_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = PaimonLake(tmp_path / "source", ID_ONLY)
    made = tmp_path / "made"
    calls = Calls(tmp_path, monkeypatch)
    source.maintenance(str(made)).create_like(source.adapter.parse_table(source.location))
    assert calls.made_in("made/schema")
    for path in (*calls.made_in("made/schema"), "made/schema", "made"):
        calls.assert_durable(path, len(calls.made))


def test_a_schema_of_another_writer_is_durable_before_a_snapshot_names_it(
    lake: PaimonLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = with_commits(lake, 1)
    lake.alter("note", pa.string())
    event = lake.event([2])
    head = stream.head(2)
    calls = Calls(lake.root, monkeypatch)
    assert isinstance(stream.publish(2, head, [event]), Published)
    link = calls.last(("link", "snapshot/snapshot-2"))
    for path in ("schema/schema-1", "schema", "."):
        assert calls.first("sync", path, -1) < link, path


def test_a_new_schema_is_durable_before_its_first_file_is_described(
    lake: PaimonLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(lake.root, monkeypatch)
    schema = ID_ONLY.append(pa.field("note", pa.string()))
    evolve(lake.adapter, lake.adapter.parse_table(lake.location), schema)
    (draft,) = drafts(calls)
    link = calls.last(("link", "schema/schema-1"))
    assert calls.first("sync", draft, -1) < link
    assert calls.first("sync", "schema", link) < len(calls.made)
