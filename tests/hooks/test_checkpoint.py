"""What is read from a checkpoint location, and what is left there."""

import json
from pathlib import Path

import pytest

from sluicegate.events.models import Position
from sluicegate.writer_hooks import BadCheckpointLocation, NotOurs, start_incarnation
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from tests.hooks.locations import finish, plan


def offsets(folder: Path, batch: int, source: str, *, watermark: int = 0, clock: int = 1) -> None:
    metadata = json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": clock, "conf": {}})
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "offsets" / str(batch)).write_text(f"v1\n{metadata}\n{source}")


def digest(folder: Path, batch: int) -> str:
    return Checkpoint(str(folder)).batch_source(batch).digest


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
    assert Checkpoint(str(tmp_path)).batch_source(0).watermark is None
    offsets(tmp_path, 0, "-", watermark=1357000000000)
    assert Checkpoint(f"file:{tmp_path}").batch_source(0).watermark == 1357000000000


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
        Checkpoint(str(tmp_path)).ready_marker()
    assert Checkpoint(str(tmp_path)).ready_marker(may_be_unplanned=True) is None
    offsets(tmp_path, 0, "-")
    assert Checkpoint(str(tmp_path)).ready_marker() is None
    assert Checkpoint(str(tmp_path)).known_query() == "q"


def test_a_marker_is_of_its_query_or_of_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "q"}')
    checkpoint = Checkpoint(str(tmp_path))
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
        Checkpoint(str(tmp_path)).ready_marker()


def position(incarnation: str, checkpoint: int, digest: str = "d") -> Position:
    return Position(incarnation=incarnation, checkpoint=checkpoint, digest=digest)


def test_the_predecessor_of_the_first_batch_is_the_base(tmp_path: Path) -> None:
    for batch in range(4):
        offsets(tmp_path, batch, json.dumps({"t": {"0": batch}}))
    checkpoint = Checkpoint(str(tmp_path))
    marker = IncarnationMarker(query="q", incarnation="i", base=position("a", 1), first=2)
    assert checkpoint.predecessor(marker, 2) == position("a", 1)
    assert checkpoint.predecessor(marker, 3) == position("i", 2, digest(tmp_path, 2))
    (tmp_path / "offsets" / "1").unlink()
    with pytest.raises(BadCheckpointLocation, match="minBatchesToRetain to 2 or more"):
        checkpoint.predecessor(marker, 3)


@pytest.mark.slow
def test_source_offsets_are_json_by_source_and_left_out_if_they_are_long(tmp_path: Path) -> None:
    offsets(tmp_path, 0, '{"t":{"0":5}}\n-')
    found = Checkpoint(str(tmp_path)).batch_source(0).offsets
    assert json.loads(found or "") == {"0": {"t": {"0": 5}}, "1": "-"}
    offsets(tmp_path, 0, json.dumps({"t": {str(number): number for number in range(10_000)}}))
    assert Checkpoint(str(tmp_path)).batch_source(0).offsets is None


@pytest.mark.parametrize(
    ("location", "says"),
    [("checkpoints/jfk", "relative"), ("dbfs:/jfk", "cannot be reached from Python.*Supported are")],
)
def test_unsupported_locations_are_refused(location: str, says: str) -> None:
    with pytest.raises(BadCheckpointLocation, match=says):
        Checkpoint(location)


def test_location_without_a_query(tmp_path: Path) -> None:
    offsets(tmp_path, 0, "-")
    with pytest.raises(BadCheckpointLocation, match="full URI"):
        Checkpoint(str(tmp_path)).known_query()


def test_streams_of_one_query_have_markers_of_their_own(tmp_path: Path) -> None:
    plan(tmp_path, 0, 1)
    only, day, night = (Checkpoint(f"{tmp_path}{name}") for name in ("", "#stream=day", "#stream=night"))
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
