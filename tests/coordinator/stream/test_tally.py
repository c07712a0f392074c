"""The partitions, sizes, times and counts that an outcome and the page name."""

import pytest

from sluicegate.coordinator.stream.summary import (
    LONGEST,
    MOST_SIZES,
    Tally,
    Touched,
    _count,
    sizes_of,
    touched,
)
from sluicegate.events.envelope import EventType
from sluicegate.events.models import FileInfo, FilesOfSize, FilesWritten
from sluicegate.kafka.bodies import WrittenEvent
from tests.events.examples import CARRYING

WRITTEN = CARRYING._replace(type=EventType.FILES_WRITTEN, files=1, rows=1)


def event(*partitions: dict[str, str | None], size: int = 1) -> FilesWritten:
    return of_sizes(*[(each, size) for each in partitions])


def of_sizes(*files: tuple[dict[str, str | None], int]) -> FilesWritten:
    infos = tuple(
        FileInfo(path=f"f{number}", size=size, rows=1, partition=each)
        for number, (each, size) in enumerate(files)
    )
    return FilesWritten(format="paimon", location="file:/t", schema_id=0, files=infos)


def touched_alone(written: FilesWritten) -> Touched:
    """Return the partitions of a commit of one event to the stream's own table."""
    return touched({"": sizes_of(written)})[""]


def test_each_partition_is_named_once_in_a_fixed_order() -> None:
    found = touched_alone(event({"b": "2", "a": None}, {"a": None, "b": "2"}, {"a": "1", "b": "1"}))
    assert found.values == ({"a": "1", "b": "1"}, {"a": None, "b": "2"})
    assert found.partitions == 2


def test_a_null_is_another_value_than_its_text() -> None:
    assert touched_alone(event({"a": None}, {"a": "null"}, {"a": ""})).partitions == 3


def test_a_table_without_partitions_has_one() -> None:
    assert touched_alone(event({}, {})).values == ({},)


def test_files_are_counted_by_the_power_of_two_above_their_sizes() -> None:
    a: dict[str, str | None] = {"dt": "a"}
    b: dict[str, str | None] = {"dt": "b"}
    found = touched_alone(of_sizes((b, 1), (a, 1023), (a, 1024), (a, 2047), (b, 0), (b, 2**50)))
    assert found.values == (a, b)
    assert found.sizes == (
        (FilesOfSize(below=1024, files=1, bytes=1023), FilesOfSize(below=2048, files=2, bytes=3071)),
        (
            FilesOfSize(below=1, files=1, bytes=0),
            FilesOfSize(below=2, files=1, bytes=1),
            FilesOfSize(below=2**51, files=1, bytes=2**50),
        ),
    )


def test_the_events_of_a_commit_are_added_up() -> None:
    tally = Tally(1)
    for each in (event({"dt": "a"}, size=5), event({"dt": "a"}, {"dt": "b"}, size=7)):
        tally.add(each, sizes_of(each), "")
    assert (tally.events, tally.rows, tally.size) == (2, 3, 19)
    assert touched({"": tally.tables[""].sizes})[""].sizes == (
        (FilesOfSize(below=8, files=2, bytes=12),),
        (FilesOfSize(below=8, files=1, bytes=7),),
    )


def test_more_than_a_message_can_hold_are_unknown() -> None:
    text = "x" * 1_000
    many: list[dict[str, str | None]] = [{"a": f"{number}{text}"} for number in range(LONGEST // 1_000)]
    unknown = touched_alone(event(*many))
    assert (unknown.partitions, unknown.values, unknown.sizes) == (len(many), None, None)
    known = touched_alone(event(*many[:-10]))
    assert known.values is not None
    assert known.sizes is not None


@pytest.mark.slow
def test_more_sizes_than_a_message_can_hold_are_unknown_and_the_partitions_are_not() -> None:
    many: list[dict[str, str | None]] = [{"a": str(number)} for number in range(MOST_SIZES + 1)]
    found = touched_alone(event(*many))
    assert found.sizes is None
    assert found.values is not None
    assert touched_alone(event(*many[1:])).sizes is not None


def test_partitions_of_a_further_table_are_not_those_of_the_anchor() -> None:
    """A coordinator that takes a stream over reads the events again: a mark must not name another table's."""
    tally = Tally(1)
    events = [
        WrittenEvent(WRITTEN._replace(table=table), body.model_dump_json().encode())
        for table, body in (("", event({"dt": "a"})), ("items", event({"dt": "b"}, size=5)))
    ]
    assert _count(tally, events)
    found = touched({name: each.sizes for name, each in tally.tables.items()})
    assert {name: each.values for name, each in found.items()} == {
        "": ({"dt": "a"},),
        "items": ({"dt": "b"},),
    }
    assert [tally.tables[name].size for name in ("", "items")] == [1, 5]
    assert (tally.rows, tally.size) == (2, 6)


def test_tables_share_the_room_of_a_message() -> None:
    text = "x" * 1_000
    many: list[dict[str, str | None]] = [{"a": f"{number}{text}"} for number in range(LONGEST // 1_900)]
    half = sizes_of(event(*many))
    assert touched({"": half})[""].values is not None
    assert {each.values for each in touched({"": half, "items": half}).values()} == {None}
