"""What is advised about a checkpoint location is done, and then the same call goes through."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.events.models import Position
from sluicegate.writer_hooks import BadCheckpointLocation, NotOurs, start_lineage
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, LineageMarker
from sluicegate.writer_hooks.spark.rewind import Rewind

LINEAGE = "q7.0"
COMMITTED = Position(lineage=LINEAGE, checkpoint=2)


def plan(root: Path, *batches: int) -> None:
    """Have batches in a location as Spark plans them, each of which read one file."""
    for folder in ("offsets", "commits", "sources/0"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "metadata").write_text('{"id":"q7"}')
    for batch in batches:
        (root / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"logOffset":{batch}}}')
        entry = f'{{"path":"file:///in/{batch}","timestamp":1,"batchId":{batch}}}'
        (root / "sources" / "0" / str(batch)).write_text(f"v1\n{entry}")


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """A location with four batches, the lineage of which is recorded."""
    root = tmp_path / "fs" / "checkpoints" / "jfk"
    plan(root, *range(4))
    Checkpoint(str(root)).write_lineage(LineageMarker(query="q7"))
    return root


def absolute(root: Path) -> str:
    return str(root)


def uri(root: Path) -> str:
    return root.as_uri()


@pytest.mark.parametrize("given", [absolute, uri])
def test_a_relative_location_is_given_as_a_path_or_a_uri(
    location: Path, monkeypatch: pytest.MonkeyPatch, given: Callable[[Path], str]
) -> None:
    monkeypatch.chdir(location.parent)
    with pytest.raises(BadCheckpointLocation, match="give an absolute path or a URI"):
        Checkpoint(location.name)
    assert Checkpoint(given(location)).lineage().lineage == LINEAGE


def test_a_location_that_only_spark_finds_is_given_as_its_uri(tmp_path: Path) -> None:
    """Spark takes a path to be of its default file system, and Python of the machine's own."""
    root, meant = tmp_path / "default-fs" / "checkpoints" / "jfk", tmp_path / "checkpoints" / "jfk"
    plan(root, *range(4))
    with pytest.raises(
        BadCheckpointLocation, match="give the checkpoint location as the full URI that Spark uses"
    ):
        start_lineage(str(meant), first=4)
    assert start_lineage(root.as_uri(), first=4) == LINEAGE


def test_a_query_that_planned_no_batch_runs_in_micro_batches(tmp_path: Path) -> None:
    plan(tmp_path)
    with pytest.raises(NotOurs, match=r"use a micro-batch trigger \(processingTime, availableNow\)"):
        Checkpoint(str(tmp_path)).lineage()
    plan(tmp_path, 0)  # what either trigger does first
    assert Checkpoint(str(tmp_path)).lineage().lineage == LINEAGE


def test_a_location_that_lacks_files_is_put_back_whole(location: Path, tmp_path: Path) -> None:
    known = Checkpoint(str(location)).planned()
    backup = tmp_path / "backup"
    shutil.copytree(location, backup)
    (location / "sources" / "0" / "3").unlink()
    with pytest.raises(BadCheckpointLocation, match=r"partly deleted. Put it back whole"):
        Checkpoint(str(location)).planned()
    shutil.rmtree(location)
    backup.rename(location)
    assert Checkpoint(str(location)).planned() == known


def set_back(root: Path, recorded: str) -> str:
    """Do what a rewind does to a location, and return the lineage that it begins."""
    step = Rewind(str(root), "JFK", COMMITTED)
    step.examine(recorded)
    step.raise_generation()
    assert step.set_back("a test") == 1
    return step.finish().lineage


def test_an_older_location_is_replaced_by_the_newer_one_and_the_rewind_repeated(
    location: Path, tmp_path: Path
) -> None:
    recorded = Rewind(str(location), "JFK", COMMITTED).digest()
    newer = tmp_path / "newer"
    location.rename(newer)
    plan(location, *range(4))
    Checkpoint(str(location)).write_lineage(LineageMarker(query="q7"))
    (location / "sources/0/2").write_text('v1\n{"path":"file:///in/9","timestamp":1,"batchId":2}')
    with pytest.raises(
        BadCheckpointLocation,
        match=r"is committed with other source data than.*Put the newer location back, and repeat",
    ):
        set_back(location, recorded)
    shutil.rmtree(location)
    newer.rename(location)
    assert set_back(location, recorded) == "q7.1"
    assert Checkpoint(str(location)).lineage().first == 3


@pytest.mark.parametrize(
    ("other", "advice"),
    [
        ("nothing", "give the checkpointLocation of region JFK"),
        ("another query's", "give the one of that lineage"),
    ],
)
def test_a_rewind_is_given_the_location_of_the_region(
    location: Path, tmp_path: Path, other: str, advice: str
) -> None:
    recorded = Rewind(str(location), "JFK", COMMITTED).digest()
    wrong = tmp_path / other
    if other != "nothing":
        shutil.copytree(location, wrong)
        (wrong / "metadata").write_text('{"id":"q8"}')
        Checkpoint(str(wrong)).write_lineage(LineageMarker(query="q8"))
    with pytest.raises(BadCheckpointLocation, match=advice):
        set_back(wrong, recorded)
    assert set_back(location, recorded) == "q7.1"
