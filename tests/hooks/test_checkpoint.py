"""What is read from a checkpoint location, and what is left there."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sluicegate.events.models import Position
from sluicegate.writer_hooks import BadCheckpointLocation, NotOurs, start_incarnation
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, IncarnationMarker
from tests.hooks.locations import finish, plan


def offsets(folder: Path, batch: int, source: str, *, watermark: int = 0, clock: int = 1) -> None:
    metadata = json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": clock, "conf": {}})
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "offsets" / str(batch)).write_text(f"v1\n{metadata}\n{source}")


def digest(folder: Path, batch: int) -> str:
    return CheckpointLocation(str(folder)).batch_source(batch).digest


def test_digest_is_of_the_range_alone(tmp_path: Path) -> None:
    offsets(tmp_path, 0, '{"t":{"0":5,"1":7}}')
    offsets(tmp_path, 1, '{"t":{"0":9,"1":9}}')
    first, second = digest(tmp_path, 0), digest(tmp_path, 1)
    offsets(tmp_path, 1, '{"t": {"1": 9, "0": 9}}', clock=99, watermark=5)
    assert digest(tmp_path, 1) == second, "clocks, settings and the order of keys do not matter"
    offsets(tmp_path, 0, '{"t":{"0":4,"1":7}}')
    assert digest(tmp_path, 1) != second, "where the range begins does"
    assert digest(tmp_path, 0) != first


def test_watermark_is_there_once_it_moves(tmp_path: Path) -> None:
    offsets(tmp_path, 0, "-")
    assert CheckpointLocation(str(tmp_path)).batch_source(0).watermark is None
    offsets(tmp_path, 0, "-", watermark=1357000000000)
    assert CheckpointLocation(f"file:{tmp_path}").batch_source(0).watermark == 1357000000000


def test_unknown_offset_log_is_refused(tmp_path: Path) -> None:
    offsets(tmp_path, 0, "-")
    log = tmp_path / "offsets" / "0"
    log.write_text(log.read_text().replace("v1", "v9"))
    with pytest.raises(BadCheckpointLocation, match="unknown version"):
        digest(tmp_path, 0)
    offsets(tmp_path, 8, "-")
    with pytest.raises(BadCheckpointLocation, match="offsets/7 does not exist"):
        digest(tmp_path, 8)


def test_a_first_batch_has_no_marker(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "q"}')
    with pytest.raises(NotOurs, match="continuous"):
        CheckpointLocation(str(tmp_path)).ready_marker()
    assert CheckpointLocation(str(tmp_path)).ready_marker(may_be_unplanned=True) is None
    offsets(tmp_path, 0, "-")
    assert CheckpointLocation(str(tmp_path)).ready_marker() is None
    assert CheckpointLocation(str(tmp_path)).known_query() == "q"


def test_a_marker_is_of_its_query_or_of_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "q"}')
    checkpoint = CheckpointLocation(str(tmp_path))
    for query, known in (("q", True), (None, True), ("another", False)):
        marker = IncarnationMarker(query=query, incarnation="i", base=position("a", 3), first=4)
        checkpoint.write_marker(marker)
        assert (checkpoint.marker() == marker) is known
    assert [path.name for path in (tmp_path / "sluicegate").iterdir()] == ["incarnation.json"]


def test_a_malformed_marker_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "q"}')
    (tmp_path / "sluicegate").mkdir()
    (tmp_path / "sluicegate" / "incarnation.json").write_text("{")
    with pytest.raises(BadCheckpointLocation, match="malformed"):
        CheckpointLocation(str(tmp_path)).ready_marker()


def position(incarnation: str, checkpoint: int, digest: str = "d") -> Position:
    return Position(incarnation=incarnation, checkpoint=checkpoint, digest=digest)


def test_the_predecessor_of_the_first_batch_is_the_base(tmp_path: Path) -> None:
    for batch in range(4):
        offsets(tmp_path, batch, json.dumps({"t": {"0": batch}}))
    checkpoint = CheckpointLocation(str(tmp_path))
    marker = IncarnationMarker(query="q", incarnation="i", base=position("a", 1), first=2)
    assert checkpoint.predecessor(marker, 2) == position("a", 1)
    assert checkpoint.predecessor(marker, 3) == position("i", 2, digest(tmp_path, 2))
    (tmp_path / "offsets" / "1").unlink()
    with pytest.raises(BadCheckpointLocation, match="minBatchesToRetain to 2 or more"):
        checkpoint.predecessor(marker, 3)


@pytest.mark.slow
def test_source_offsets_are_json_by_source_and_left_out_if_they_are_long(tmp_path: Path) -> None:
    offsets(tmp_path, 0, '{"t":{"0":5}}\n-')
    found = CheckpointLocation(str(tmp_path)).batch_source(0).offsets
    assert json.loads(found or "") == {"0": {"t": {"0": 5}}, "1": "-"}
    offsets(tmp_path, 0, json.dumps({"t": {str(number): number for number in range(10_000)}}))
    assert CheckpointLocation(str(tmp_path)).batch_source(0).offsets is None


@pytest.mark.parametrize(
    ("location", "says"),
    [("checkpoints/jfk", "relative"), ("dbfs:/jfk", "cannot be reached from Python.*Supported are")],
)
def test_unsupported_locations_are_refused(location: str, says: str) -> None:
    with pytest.raises(BadCheckpointLocation, match=says):
        CheckpointLocation(location)


def test_location_without_a_query(tmp_path: Path) -> None:
    offsets(tmp_path, 0, "-")
    with pytest.raises(BadCheckpointLocation, match="full URI"):
        CheckpointLocation(str(tmp_path)).known_query()


def test_streams_of_one_query_have_markers_of_their_own(tmp_path: Path) -> None:
    plan(tmp_path, 0, 1)
    only, day, night = (
        CheckpointLocation(f"{tmp_path}{name}") for name in ("", "#stream=day", "#stream=night")
    )
    first = IncarnationMarker(query="q7", incarnation="a", stream="day")
    only.write_marker(first)
    assert (only.marker(), day.marker(), night.marker()) == (first, first, None)
    with pytest.raises(BadCheckpointLocation, match=r"no sluicegate/streams/night\.json"):
        night.ready_marker()
    finish(tmp_path, 0)
    start_incarnation(f"{tmp_path}#stream=night", first=1, unwritten=True)
    found = night.marker()
    assert found is not None
    assert (found.first, only.marker()) == (1, first)
    # The query began with one stream, whose marker stays where it is.
    day.write_marker(first.model_copy(update={"base": None, "assignment": 2}))
    assert only.marker() == day.marker()
    (tmp_path / "sluicegate" / "incarnation.json").unlink()
    with pytest.raises(BadCheckpointLocation, match=r"Name one of them with the location.*#stream=night"):
        only.ready_marker()
    assert night.ready_marker() == found


META = '{"batchWatermarkMs":0,"batchTimestampMs":1}'


def plan_batch(root: Path, batch: int, *offsets: str, version: str = "v1") -> None:
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


def digest_of(root: Path, batch: int) -> str:
    return CheckpointLocation(str(root)).batch_source(batch).digest


def files(root: Path, upto: int) -> Path:
    """A location of a query of one file source, each batch of which read one file."""
    root.mkdir()
    for batch in range(upto + 1):
        plan_batch(root, batch, at(batch))
        log(root, "0", str(batch), {batch: [f"{batch}.json"]})
    return root


def test_the_files_of_a_file_source_count(tmp_path: Path) -> None:
    root = files(tmp_path / "c", 2)
    known = digest_of(root, 2)
    log(root, "0", "2", {2: ["2.json", "3.json"]})
    assert digest_of(root, 2) != known, "another file, under the same offsets"
    log(root, "0", "2", {2: ["2.json"]})
    assert digest_of(root, 2) == known


def test_the_files_of_every_source_count(tmp_path: Path) -> None:
    for batch in range(2):
        plan_batch(tmp_path, batch, at(batch), '{"t":{"0":3}}', at(batch))
        for source in ("0", "2"):
            log(tmp_path, source, str(batch), {batch: [f"{source}-{batch}.json"]})
    known = digest_of(tmp_path, 1)
    log(tmp_path, "2", "1", {1: ["other.json"]})
    assert digest_of(tmp_path, 1) != known
    log(tmp_path, "2", "1", {1: ["2-1.json"]})
    assert digest_of(tmp_path, 1) == known
    log(tmp_path, "0", "1", {1: ["other.json"]})
    assert digest_of(tmp_path, 1) != known


def test_what_is_compacted_stays_the_same(tmp_path: Path) -> None:
    root = files(tmp_path / "c", 12)
    every = [digest_of(root, batch) for batch in range(13)]
    (root / "sources" / "0" / "9").unlink()
    log(root, "0", "9.compact", {number: [f"{number}.json"] for number in range(10)})
    assert [digest_of(root, batch) for batch in range(13)] == every
    for number in range(9):
        (root / "sources" / "0" / str(number)).unlink()
    assert [digest_of(root, batch) for batch in range(13)] == every, "only the compacted log has them"
    log(root, "0", "9.compact", {number: [f"{number}{'b' * (number == 4)}.json"] for number in range(10)})
    assert [digest_of(root, batch) == every[batch] for batch in range(13)] == [n != 4 for n in range(13)]


def test_a_batch_may_read_several_entries_of_the_log(tmp_path: Path) -> None:
    """Spark noted files of a batch that it did not plan any more: the next one reads them too."""
    root = files(tmp_path / "c", 1)
    for number in (2, 3, 4):
        log(root, "0", str(number), {number: [f"{number}.json"]})
    plan_batch(root, 2, at(4))
    known = digest_of(root, 2)
    log(root, "0", "3", {3: ["other.json"]})
    assert digest_of(root, 2) != known


def test_a_batch_without_files_of_its_own(tmp_path: Path) -> None:
    root = files(tmp_path / "c", 1)
    plan_batch(root, 2, at(1))
    assert len({digest_of(root, batch) for batch in range(3)}) == 3


def test_the_last_entry_of_a_source_with_nothing_new_counts(tmp_path: Path) -> None:
    """Where it was lost, Spark writes it again with the files that are new, and never reads those."""
    for batch in range(3):
        plan_batch(tmp_path, batch, at(batch), at(min(batch, 1)))
        for source in ("0", "1"):
            log(tmp_path, source, str(batch), {batch: [f"{source}-{batch}.json"]})
    known = digest_of(tmp_path, 2)
    log(tmp_path, "1", "1", {1: ["1-1.json", "new.json"]})
    assert digest_of(tmp_path, 2) != known
    (tmp_path / "sources" / "1" / "1").unlink()
    with pytest.raises(BadCheckpointLocation, match=r"sources/1 lacks files.*Put it back whole"):
        digest_of(tmp_path, 2)


@pytest.mark.parametrize("kept", [3, 2, 1])
def test_the_newest_two_batches_are_told_as_far_as_spark_keeps_them(tmp_path: Path, kept: int) -> None:
    root = files(tmp_path / "c", 2)
    first, second = digest_of(root, 1), digest_of(root, 2)
    for batch in range(3 - kept):
        (root / "offsets" / str(batch)).unlink()
    if kept == 1:
        with pytest.raises(BadCheckpointLocation, match="offsets/1 does not exist"):
            CheckpointLocation(str(root)).planned(0)
    else:
        found = [(each.checkpoint, each.digest) for each in CheckpointLocation(str(root)).planned(0)]
        assert found == [(2, second), (1, first)][: kept - 1]
        assert [each.checkpoint for each in CheckpointLocation(str(root)).planned(2)] == [2]
        assert CheckpointLocation(str(root)).planned(3) == (), "a batch of an earlier incarnation"


def test_what_spark_would_pass_over_is_refused(tmp_path: Path) -> None:
    root = files(tmp_path / "c", 2)
    (root / "sources" / "0" / "2").unlink()
    with pytest.raises(
        BadCheckpointLocation, match=r"sources/0 lacks files .*its entries 2 to 2.*Put it back whole"
    ):
        digest_of(root, 2)


def test_of_a_stream_that_is_read_twice_the_offsets_count(tmp_path: Path) -> None:
    """Two offsets have one log then, and which folder is whose depends on how far the other sources are."""
    for batch in range(2):
        plan_batch(tmp_path, batch, at(batch), at(batch), "-")
        log(tmp_path, "0", str(batch), {batch: [f"{batch}.json"]})
    known = digest_of(tmp_path, 1)
    for number in range(3):
        log(tmp_path, "1", str(number), {number: [f"b{number}.json"]})
        plan_batch(tmp_path, 2 + number, at(1), at(1), at(number))
        assert digest_of(tmp_path, 1) == known
    assert len({digest_of(tmp_path, batch) for batch in range(5)}) == 5


def test_named_sources(tmp_path: Path) -> None:
    for batch in range(2):
        plan_batch(tmp_path, batch, f"alpha:{at(batch)}", 'zeta:{"t":{"0":5}}', version="v2")
        log(tmp_path, "alpha", str(batch), {batch: [f"{batch}.json"]})
    known = digest_of(tmp_path, 1)
    log(tmp_path, "alpha", "1", {1: ["other.json"]})
    assert digest_of(tmp_path, 1) != known


def test_where_other_sources_begin_counts_for_their_first_batch(tmp_path: Path) -> None:
    plan_batch(tmp_path, 0, '{"t":{"0":5}}')
    plan_batch(tmp_path, 1, '{"t":{"0":9}}')
    (tmp_path / "sources" / "0").mkdir(parents=True)
    first = tmp_path / "sources" / "0" / "0"
    first.write_text('v1\n{"t":{"0":0}}')
    known = [digest_of(tmp_path, batch) for batch in range(2)]
    first.write_text('v1\n{"t":{"0":3}}')
    assert [digest_of(tmp_path, batch) == known[batch] for batch in range(2)] == [False, True]


@pytest.fixture(params=[None, "old"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Batches 0 to 2 were planned and completed, for another sink or for the stream `old`."""
    plan(tmp_path, 0, 1, 2)
    finish(tmp_path, 0, 1, 2)
    if request.param is not None:
        query = CheckpointLocation(str(tmp_path)).query_id()
        marker = IncarnationMarker(query=query, incarnation="a", stream=request.param, region="r1")
        CheckpointLocation(str(tmp_path)).write_marker(marker)
    return tmp_path


@pytest.mark.parametrize("first", [1, 2, 4, 7])
def test_another_batch_than_the_next_one_is_refused(root: Path, first: int) -> None:
    """One before is written twice, and one after leaves the rows between out."""
    before = CheckpointLocation(str(root)).marker()
    for unwritten in (False, True):
        with pytest.raises(BadCheckpointLocation, match=r"up to batch 2 be committed there.* first=3\)"):
            start_incarnation(str(root), first=first, unwritten=unwritten)
    assert CheckpointLocation(str(root)).marker() == before
    start_incarnation(str(root), first=3)
    found = CheckpointLocation(str(root)).marker()
    assert found is not None
    assert (found.first, found.stream, found.former) == (3, None, before)


def test_a_text_is_no_number_of_a_batch(root: Path) -> None:
    """It would be recorded, and no batch is equal to it."""
    before = CheckpointLocation(str(root)).marker()
    with pytest.raises(TypeError, match="first is the number of a batch, and not '3'"):
        start_incarnation(str(root), first="3")  # type: ignore[arg-type]
    assert CheckpointLocation(str(root)).marker() == before


def test_a_planned_batch_is_finished_before(root: Path) -> None:
    """The former target may have it: Spark may have ended between the two."""
    plan(root, 3)
    ours = CheckpointLocation(str(root)).marker() is not None
    former = "the stream old" if ours else "the former sink"
    for first in (3, 4):
        told = f"batch 3 is planned and not finished.*once more with {former}.* first=4\\)"
        with pytest.raises(BadCheckpointLocation, match=told) as refused:
            start_incarnation(str(root), first=first)
        assert ("unwritten=True" in str(refused.value)) is not ours
    finish(root, 3)
    named = re.search(r"first=(\d+)", str(refused.value))
    assert named is not None
    start_incarnation(str(root), first=int(named[1]))


def test_only_another_sink_may_be_known_not_to_have_the_batch(root: Path) -> None:
    plan(root, 3)
    if CheckpointLocation(str(root)).marker() is not None:
        with pytest.raises(BadCheckpointLocation, match="once more with the stream old"):
            start_incarnation(str(root), first=3, unwritten=True)
        return
    start_incarnation(str(root), first=3, unwritten=True)
    found = CheckpointLocation(str(root)).marker()
    assert found is not None
    assert (found.first, found.former) == (3, None)


def test_more_batches_than_the_text_knew_are_seen(root: Path) -> None:
    plan(root, 3)
    finish(root, 3)
    plan(root, 4)
    finish(root, 4)
    with pytest.raises(BadCheckpointLocation, match=r"first=5\)"):
        start_incarnation(str(root), first=4)
    start_incarnation(str(root), first=5)
    # A repetition changes the id alone, and the stream before stays known.
    with pytest.raises(BadCheckpointLocation, match="from batch 5 on"):
        start_incarnation(str(root), first=5)
