"""What a batch read of each source goes into its digest, and stays the same for every replay of it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sluicegate.writer_hooks import BadCheckpointLocation
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint

META = '{"batchWatermarkMs":0,"batchTimestampMs":1}'


def plan(root: Path, batch: int, *offsets: str, version: str = "v1") -> None:
    (root / "offsets").mkdir(exist_ok=True)
    (root / "offsets" / str(batch)).write_text("\n".join([version, META, *offsets]))


def log(root: Path, source: str, name: str, entries: Mapping[int, Sequence[str]]) -> None:
    """A file source's log; entries of several numbers stand in one that Spark has compacted."""
    folder = root / "sources" / source
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"path": f"file:///in/{path}", "timestamp": 7, "batchId": number}, separators=(",", ":"))
        for number, paths in entries.items()
        for path in paths
    ]
    (folder / name).write_text("\n".join(["v1", *lines]))


def at(number: int) -> str:
    return json.dumps({"logOffset": number}, separators=(",", ":"))


def digest(root: Path, batch: int) -> str:
    return Checkpoint(str(root)).batch_source(batch).digest


def files(root: Path, upto: int) -> Path:
    """A location of a query of one file source, each batch of which read one file."""
    root.mkdir()
    for batch in range(upto + 1):
        plan(root, batch, at(batch))
        log(root, "0", str(batch), {batch: [f"{batch}.json"]})
    return root


def test_the_files_of_a_file_source_count(tmp_path: Path) -> None:
    root = files(tmp_path / "c", 2)
    known = digest(root, 2)
    log(root, "0", "2", {2: ["2.json", "3.json"]})
    assert digest(root, 2) != known, "another file, under the same offsets"
    log(root, "0", "2", {2: ["2.json"]})
    assert digest(root, 2) == known


def test_the_files_of_every_source_count(tmp_path: Path) -> None:
    for batch in range(2):
        plan(tmp_path, batch, at(batch), '{"t":{"0":3}}', at(batch))
        for source in ("0", "2"):
            log(tmp_path, source, str(batch), {batch: [f"{source}-{batch}.json"]})
    known = digest(tmp_path, 1)
    log(tmp_path, "2", "1", {1: ["other.json"]})
    assert digest(tmp_path, 1) != known
    log(tmp_path, "2", "1", {1: ["2-1.json"]})
    assert digest(tmp_path, 1) == known
    log(tmp_path, "0", "1", {1: ["other.json"]})
    assert digest(tmp_path, 1) != known


def test_what_is_compacted_stays_the_same(tmp_path: Path) -> None:
    root = files(tmp_path / "c", 12)
    every = [digest(root, batch) for batch in range(13)]
    (root / "sources" / "0" / "9").unlink()
    log(root, "0", "9.compact", {number: [f"{number}.json"] for number in range(10)})
    assert [digest(root, batch) for batch in range(13)] == every
    for number in range(9):
        (root / "sources" / "0" / str(number)).unlink()
    assert [digest(root, batch) for batch in range(13)] == every, "only the compacted log has them"
    log(root, "0", "9.compact", {number: [f"{number}{'b' * (number == 4)}.json"] for number in range(10)})
    assert [digest(root, batch) == every[batch] for batch in range(13)] == [n != 4 for n in range(13)]


def test_a_batch_may_read_several_entries_of_the_log(tmp_path: Path) -> None:
    """Spark noted files of a batch that it did not plan any more: the next one reads them too."""
    root = files(tmp_path / "c", 1)
    for number in (2, 3, 4):
        log(root, "0", str(number), {number: [f"{number}.json"]})
    plan(root, 2, at(4))
    known = digest(root, 2)
    log(root, "0", "3", {3: ["other.json"]})
    assert digest(root, 2) != known


def test_a_batch_without_files_of_its_own(tmp_path: Path) -> None:
    root = files(tmp_path / "c", 1)
    plan(root, 2, at(1))
    assert len({digest(root, batch) for batch in range(3)}) == 3


def test_the_last_entry_of_a_source_with_nothing_new_counts(tmp_path: Path) -> None:
    """Where it was lost, Spark writes it again with the files that are new, and never reads those."""
    for batch in range(3):
        plan(tmp_path, batch, at(batch), at(min(batch, 1)))
        for source in ("0", "1"):
            log(tmp_path, source, str(batch), {batch: [f"{source}-{batch}.json"]})
    known = digest(tmp_path, 2)
    log(tmp_path, "1", "1", {1: ["1-1.json", "new.json"]})
    assert digest(tmp_path, 2) != known
    (tmp_path / "sources" / "1" / "1").unlink()
    with pytest.raises(BadCheckpointLocation, match=r"sources/1 lacks files.*Put it back whole"):
        digest(tmp_path, 2)


@pytest.mark.parametrize("kept", [3, 2, 1])
def test_the_newest_two_batches_are_told_as_far_as_spark_keeps_them(tmp_path: Path, kept: int) -> None:
    root = files(tmp_path / "c", 2)
    first, second = digest(root, 1), digest(root, 2)
    for batch in range(3 - kept):
        (root / "offsets" / str(batch)).unlink()
    if kept == 1:
        with pytest.raises(BadCheckpointLocation, match="offsets/1 does not exist"):
            Checkpoint(str(root)).planned(0)
    else:
        found = [(each.checkpoint, each.digest) for each in Checkpoint(str(root)).planned(0)]
        assert found == [(2, second), (1, first)][: kept - 1]
        assert [each.checkpoint for each in Checkpoint(str(root)).planned(2)] == [2]
        assert Checkpoint(str(root)).planned(3) == (), "a batch of an earlier incarnation"


def test_what_spark_would_pass_over_is_refused(tmp_path: Path) -> None:
    root = files(tmp_path / "c", 2)
    (root / "sources" / "0" / "2").unlink()
    with pytest.raises(
        BadCheckpointLocation, match=r"sources/0 lacks files .*its entries 2 to 2.*Put it back whole"
    ):
        digest(root, 2)


def test_of_a_stream_that_is_read_twice_the_offsets_count(tmp_path: Path) -> None:
    """Two offsets have one log then, and which folder is whose depends on how far the other sources are."""
    for batch in range(2):
        plan(tmp_path, batch, at(batch), at(batch), "-")
        log(tmp_path, "0", str(batch), {batch: [f"{batch}.json"]})
    known = digest(tmp_path, 1)
    for number in range(3):
        log(tmp_path, "1", str(number), {number: [f"b{number}.json"]})
        plan(tmp_path, 2 + number, at(1), at(1), at(number))
        assert digest(tmp_path, 1) == known
    assert len({digest(tmp_path, batch) for batch in range(5)}) == 5


def test_named_sources(tmp_path: Path) -> None:
    for batch in range(2):
        plan(tmp_path, batch, f"alpha:{at(batch)}", 'zeta:{"t":{"0":5}}', version="v2")
        log(tmp_path, "alpha", str(batch), {batch: [f"{batch}.json"]})
    known = digest(tmp_path, 1)
    log(tmp_path, "alpha", "1", {1: ["other.json"]})
    assert digest(tmp_path, 1) != known


def test_where_other_sources_begin_counts_for_their_first_batch(tmp_path: Path) -> None:
    plan(tmp_path, 0, '{"t":{"0":5}}')
    plan(tmp_path, 1, '{"t":{"0":9}}')
    (tmp_path / "sources" / "0").mkdir(parents=True)
    first = tmp_path / "sources" / "0" / "0"
    first.write_text('v1\n{"t":{"0":0}}')
    known = [digest(tmp_path, batch) for batch in range(2)]
    first.write_text('v1\n{"t":{"0":3}}')
    assert [digest(tmp_path, batch) == known[batch] for batch in range(2)] == [False, True]
