"""What new queries of a re-split say that they build on."""

from pathlib import Path

import pytest

from sluicegate.events.models import Assignment, Parent
from sluicegate.writer_hooks import BadCheckpointLocation, BadOption, BatchUnfinished
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, LineageMarker, OpenedMarker
from sluicegate.writer_hooks.spark.options import SinkOptions

OPTIONS = {
    "stream": "flights",
    "region": "JFK",
    "table": "/t",
    "kafka.bootstrap.servers": "b:9092",
    "checkpointLocation": "/c",
}


def _location(root: Path, planned: int, completed: int, first: int = 0) -> str:
    for folder, newest in (("offsets", planned), ("commits", completed)):
        (root / folder).mkdir(parents=True)
        for batch in range(newest + 1):
            (root / folder / str(batch)).write_text("v1")
    (root / "metadata").write_text('{"id":"q7"}')
    checkpoint = Checkpoint(str(root))
    parents = (Parent(region="EWR", lineage="q7.0", checkpoint=first - 1),) if first else ()
    marker = LineageMarker(query="q7", generation=1, first=first, parents=parents)
    checkpoint.write_lineage(marker)
    opened = OpenedMarker(
        stream="flights",
        region="EWR",
        assignment=Assignment(number=1, regions=("EWR",)),
        bounded=False,
        topic_prefix="p",
    )
    checkpoint.write_opened("q7.1", opened)
    return str(root)


def test_parents_are_read_from_the_option_and_from_old_locations(tmp_path: Path) -> None:
    old = _location(tmp_path / "old", planned=4, completed=4)
    given = {"parents": "LGA:5a-3b.0:17, EWR:q.2:0, EWR:q.3:-", "parents.from": old}
    assert SinkOptions.parse({**OPTIONS, **given}).named_parents() == (
        Parent(region="LGA", lineage="5a-3b.0", checkpoint=17),
        Parent(region="EWR", lineage="q.2", checkpoint=0),
        Parent(region="EWR", lineage="q.3", checkpoint=None),
        Parent(region="EWR", lineage="q7.1", checkpoint=4),
    )
    assert SinkOptions.parse(OPTIONS).named_parents() == ()


def test_a_location_that_was_set_back_and_did_nothing_since_is_named_itself(tmp_path: Path) -> None:
    old = _location(tmp_path / "old", planned=4, completed=4, first=5)
    found = SinkOptions.parse({**OPTIONS, "parents.from": old}).named_parents()
    assert found == (Parent(region="EWR", lineage="q7.1", checkpoint=None),)


def test_nothing_builds_on_a_query_that_has_not_finished_or_is_none(tmp_path: Path) -> None:
    old = _location(tmp_path / "old", planned=5, completed=4)
    with pytest.raises(BatchUnfinished, match=r"planned batch 5 and completed 4.*start it again, so that"):
        SinkOptions.parse({**OPTIONS, "parents.from": old}).named_parents()
    (Path(old) / "commits" / "5").write_text("v1")
    (parent,) = SinkOptions.parse({**OPTIONS, "parents.from": old}).named_parents()
    assert (parent.lineage, parent.checkpoint) == ("q7.1", 5)
    with pytest.raises(BadCheckpointLocation, match="is no checkpoint location"):
        SinkOptions.parse({**OPTIONS, "parents.from": str(tmp_path / "none")}).named_parents()


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("parents", "EWR:q.0", "region:lineage:checkpoint"),
        ("parents", "E/R:q.0:3", "the option parents"),
        ("sink", "exchange", "independent, all-to-all or shared-files"),
        ("owned", "perhaps", "true or false"),
    ],
)
def test_wrong_options_are_named(option: str, value: str, says: str) -> None:
    with pytest.raises(BadOption, match=says):
        SinkOptions.parse({**OPTIONS, option: value})


def test_sink_and_ownership_are_told() -> None:
    region = SinkOptions.parse({**OPTIONS, "sink": "all-to-all", "owned": "false"}).region
    assert (region.sink, region.owned) == ("all-to-all", False)
    plain = SinkOptions.parse(OPTIONS).region
    assert (plain.sink, plain.owned) == ("independent", True)
