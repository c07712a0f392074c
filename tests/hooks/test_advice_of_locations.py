"""What is advised about a checkpoint location is done, and then the same call goes through."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.writer_hooks import BadCheckpointLocation, NotOurs, start_incarnation
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from tests.hooks.locations import finish, plan
from tests.hooks.test_reset import Stream


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """A location with four batches, the incarnation of which is recorded."""
    root = tmp_path / "fs" / "checkpoints" / "jfk"
    plan(root, *range(4))
    mark(root)
    return root


def mark(root: Path, region: str = "EWR", query: str = "q7") -> None:
    marker = IncarnationMarker(query=query, incarnation="a", stream="s", region=region)
    Checkpoint(str(root)).write_marker(marker)


def incarnation(root: str) -> str:
    marker = Checkpoint(root).ready_marker()
    assert marker is not None
    return marker.incarnation


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
    assert incarnation(given(location)) == "a"


def test_a_location_that_only_spark_finds_is_given_as_its_uri(tmp_path: Path) -> None:
    """Spark takes a path to be of its default file system, and Python of the machine's own."""
    root, meant = tmp_path / "default-fs" / "checkpoints" / "jfk", tmp_path / "checkpoints" / "jfk"
    plan(root, *range(4))
    finish(root, *range(4))
    with pytest.raises(
        BadCheckpointLocation, match="give the checkpoint location as the full URI that Spark uses"
    ):
        start_incarnation(str(meant), first=4)
    assert start_incarnation(root.as_uri(), first=4) == incarnation(str(root))


def test_a_query_that_planned_no_batch_runs_in_micro_batches(tmp_path: Path) -> None:
    plan(tmp_path)
    with pytest.raises(NotOurs, match=r"use a micro-batch trigger \(processingTime, availableNow\)"):
        Checkpoint(str(tmp_path)).ready_marker()
    plan(tmp_path, 0)  # what either trigger does first
    assert Checkpoint(str(tmp_path)).ready_marker() is None


def test_a_location_that_lacks_files_is_put_back_whole(location: Path, tmp_path: Path) -> None:
    known = Checkpoint(str(location)).planned(0)
    backup = tmp_path / "backup"
    shutil.copytree(location, backup)
    (location / "sources" / "0" / "3").unlink()
    with pytest.raises(BadCheckpointLocation, match=r"partly deleted. Put it back whole"):
        Checkpoint(str(location)).planned(0)
    shutil.rmtree(location)
    backup.rename(location)
    assert Checkpoint(str(location)).planned(0) == known


@pytest.fixture
def stream(location: Path) -> Stream:
    """A region that has committed batch 2."""
    made = Stream(location)
    made.restart(location)
    made.write(location, 0, 1, 2)
    finish(location, 0, 1, 2)
    return made


def test_an_older_location_is_replaced_by_the_newer_one_and_the_reset_repeated(
    stream: Stream, location: Path, tmp_path: Path
) -> None:
    newer = tmp_path / "newer"
    location.rename(newer)
    plan(location, *range(4))
    mark(location)
    (location / "sources/0/2").write_text('v1\n{"path":"file:///in/9","timestamp":1,"batchId":2}')
    with pytest.raises(
        BadCheckpointLocation,
        match=r"is committed with other source data than.*Put the newer location back, and repeat",
    ):
        stream.reset()
    shutil.rmtree(location)
    newer.rename(location)
    assert stream.reset().moved == 1
    marker = Checkpoint(str(location)).ready_marker()
    assert marker is not None
    assert marker.first == 3


def test_a_lost_location_is_reset_with_an_empty_one(stream: Stream, location: Path, tmp_path: Path) -> None:
    (location / "offsets/2").unlink()
    with pytest.raises(BadCheckpointLocation, match="reset the region with an empty location") as refused:
        stream.reset()
    assert "`sluicegate status` shows their source offsets" in str(refused.value)
    done = stream.reset(tmp_path / "empty")
    assert (done.empty, done.source_offsets) == (True, '{"0": {"logOffset": 2}}')


@pytest.mark.parametrize("other", ["of no query", "of another region"])
def test_a_reset_is_given_the_location_of_the_region(stream: Stream, tmp_path: Path, other: str) -> None:
    wrong = tmp_path / "wrong"
    plan(wrong, 0, query="q8")
    if other == "of another region":
        mark(wrong, region="LGA", query="q8")
    with pytest.raises(BadCheckpointLocation, match="give the checkpointLocation of"):
        stream.reset(wrong)
    assert stream.reset().moved == 1
