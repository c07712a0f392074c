"""What setting a checkpoint location back does to its files, and what it refuses before it changes any."""

import json
from pathlib import Path

import pytest

from sluicegate.events.models import Position
from sluicegate.writer_hooks import BadCheckpointLocation
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, LineageMarker
from sluicegate.writer_hooks.spark.rewind import Rewind

AT = Position(lineage="q7.0", checkpoint=2)
OFFSETS = 'v1\n{{"batchWatermarkMs":{mark}}}\n{{"logOffset":{batch}}}'

FILES = 'v1\n{{"path":"file:///in/{batch}","timestamp":1,"batchId":{batch}}}'


def _location(root: Path, batches: int, finished: int) -> Path:
    for folder in ("offsets", "commits"):
        (root / folder).mkdir(parents=True)
    for batch in range(batches):
        (root / "offsets" / str(batch)).write_text(OFFSETS.format(mark=batch * 1000, batch=batch))
        (root / "offsets" / f".{batch}.crc").write_text("sum")
        (root / "sources" / "0").mkdir(parents=True, exist_ok=True)
        (root / "sources" / "0" / str(batch)).write_text(FILES.format(batch=batch))
    for batch in range(finished):
        (root / "commits" / str(batch)).write_text(f"own {batch}")
    (root / "metadata").write_text('{"id":"q7"}')
    Checkpoint(str(root)).write_lineage(LineageMarker(query="q7"))
    return root


def _all(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def _set_back(root: Path) -> int:
    step = Rewind(str(root), "EWR", AT)
    step.examine(step.digest())
    step.raise_generation()
    moved = step.set_back("a test")
    step.finish()
    return moved


def test_what_is_beyond_is_moved_away_with_its_checksums_and_nothing_is_lost(tmp_path: Path) -> None:
    root = _location(tmp_path / "c", batches=6, finished=5)
    before = _all(root)
    assert _set_back(root) == 3
    after = _all(root)
    backup = "sluicegate/rewound-1/"
    for name, content in before.items():
        if name != "sluicegate/lineage.json":
            assert content in (after.get(name), after.get(backup + name)), name
    assert sorted(path.name for path in (root / "offsets").iterdir()) == sorted(
        ["0", "1", "2", ".0.crc", ".1.crc", ".2.crc"]
    )
    marker = Checkpoint(str(root)).known_lineage()
    assert marker is not None
    assert (marker.lineage, marker.first, marker.rewinding) == ("q7.1", 3, False)
    assert [(each.region, each.lineage, each.checkpoint) for each in marker.parents] == [("EWR", "q7.0", 2)]


def test_a_committed_batch_that_spark_did_not_note_counts_as_finished(tmp_path: Path) -> None:
    root = _location(tmp_path / "c", batches=3, finished=2)
    assert _set_back(root) == 0
    assert (root / "commits" / "2").read_text() == 'v1\n{"nextBatchWatermarkMs":2000}'


def test_a_file_that_came_again_does_not_replace_the_one_put_aside(tmp_path: Path) -> None:
    root = _location(tmp_path / "c", batches=4, finished=3)
    step = Rewind(str(root), "EWR", AT)
    step.raise_generation()
    step.set_back("first")
    (root / "offsets" / "3").write_text("planned anew")
    again = Rewind(str(root), "EWR", AT)
    assert again.marker.rewinding
    assert again.raise_generation().generation == 1
    again.set_back("second")
    held = {path.name: path.read_text() for path in (root / "sluicegate/rewound-1/offsets").iterdir()}
    assert held["3.later"] == "planned anew"
    assert json.loads(held["3"].splitlines()[2]) == {"logOffset": 3}


def test_no_batch_runs_before_it_is_finished(tmp_path: Path) -> None:
    root = _location(tmp_path / "c", batches=4, finished=3)
    step = Rewind(str(root), "EWR", AT)
    step.raise_generation()
    with pytest.raises(BadCheckpointLocation, match="is being set back"):
        Checkpoint(str(root)).lineage()
    step.set_back("")
    step.finish()
    assert Checkpoint(str(root)).lineage().generation == 1


def test_state_goes_back_too_and_is_refused_where_it_is_gone(tmp_path: Path) -> None:
    root = _location(tmp_path / "c", batches=5, finished=5)
    state = root / "state" / "0" / "1"
    state.mkdir(parents=True)
    for name in ("1.delta", "2.delta", "3.delta", "4.delta", "5.snapshot", ".5.snapshot.crc"):
        (state / name).write_text(name)
    (root / "state" / "0" / "_metadata").mkdir()
    (root / "state" / "0" / "_metadata" / "metadata").write_text("kept")
    assert _set_back(root) == 2
    assert sorted(path.name for path in state.iterdir()) == ["1.delta", "2.delta", "3.delta"]
    aside = root / "sluicegate/rewound-1/state/0/1"
    assert sorted(path.name for path in aside.iterdir()) == [".5.snapshot.crc", "4.delta", "5.snapshot"]

    for name in ("2.delta", "3.delta"):
        (state / name).unlink()
    before = _all(root)
    with pytest.raises(BadCheckpointLocation, match=r"batch 2 is not there any more \(state/0/1\)"):
        Rewind(str(root), "EWR", AT).examine(None)
    assert _all(root) == before


def test_offsets_that_spark_has_purged_and_foreign_locations_are_refused(tmp_path: Path) -> None:
    root = _location(tmp_path / "c", batches=5, finished=5)
    (root / "offsets" / "2").unlink()
    with pytest.raises(BadCheckpointLocation, match="minBatchesToRetain"):
        Rewind(str(root), "EWR", AT).examine(None)
    for lineage in ("other.0", "q7.1", "q7"):
        with pytest.raises(BadCheckpointLocation, match="give the one of that lineage"):
            Rewind(str(root), "EWR", Position(lineage=lineage, checkpoint=2))
    with pytest.raises(BadCheckpointLocation, match="is no checkpoint location"):
        Rewind(str(tmp_path / "nothing"), "EWR", AT)


def test_a_location_with_another_batch_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    root = _location(tmp_path / "c", batches=4, finished=3)
    recorded = Rewind(str(root), "EWR", AT).digest()
    (root / "sources/0/2").write_text(FILES.format(batch=2).replace("/in/2", "/in/9"))
    before = _all(root)
    with pytest.raises(BadCheckpointLocation, match=r"with other source data than.*Put the newer location"):
        Rewind(str(root), "EWR", AT).examine(recorded)
    for name in ("offsets/3", "offsets/2"):
        (root / name).unlink()
    with pytest.raises(BadCheckpointLocation, match=r"up to 1 only.*Put the newer location"):
        Rewind(str(root), "EWR", AT).examine(recorded)
    assert {*before} - {*_all(root)} == {"offsets/3", "offsets/2"}
