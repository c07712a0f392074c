"""What is read from a checkpoint location, and what is left there."""

import json
from pathlib import Path

import pytest

from sluicegate.events.models import Assignment
from sluicegate.writer_hooks import BadCheckpointLocation, NotOurs
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, OpenedMarker


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


def test_no_lineage_without_a_batch(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "q"}')
    with pytest.raises(NotOurs, match="continuous"):
        Checkpoint(str(tmp_path)).lineage()
    offsets(tmp_path, 0, "-")
    marker = Checkpoint(str(tmp_path)).lineage()
    assert (marker.lineage, marker.first, marker.parents) == ("q.0", 0, ())
    assert Checkpoint(str(tmp_path)).known_lineage() == marker


def test_broken_lineage_record_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "q"}')
    (tmp_path / "sluicegate").mkdir()
    (tmp_path / "sluicegate" / "lineage.json").write_text("{")
    with pytest.raises(BadCheckpointLocation, match="malformed"):
        Checkpoint(str(tmp_path)).lineage()


def test_openings_are_remembered_by_lineage(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    marker = OpenedMarker(
        stream="s",
        region="r",
        assignment=Assignment(number=2, regions=("r", "q")),
        bounded=False,
        topic_prefix="sluicegate",
    )
    checkpoint.write_opened("q.0", marker)
    assert checkpoint.opened("q.0") == marker
    assert checkpoint.opened("q.1") is None
    assert [path.name for path in (tmp_path / "sluicegate").iterdir()] == ["opened-q.0.json"]


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
        Checkpoint(str(tmp_path)).lineage()
