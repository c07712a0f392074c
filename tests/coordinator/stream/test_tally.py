"""The partitions that an outcome names."""

from sluicegate.coordinator.stream.tally import LONGEST, partitions_of, touched
from sluicegate.events.models import FileInfo, FilesWritten


def event(*partitions: dict[str, str | None]) -> FilesWritten:
    files = tuple(
        FileInfo(path=f"f{number}", size=1, rows=1, partition=each) for number, each in enumerate(partitions)
    )
    return FilesWritten(format="paimon", location="file:/t", schema_id=0, files=files)


def test_each_partition_is_named_once_in_a_fixed_order() -> None:
    found = partitions_of(event({"b": "2", "a": None}, {"a": None, "b": "2"}, {"a": "1", "b": "1"}))
    assert touched(found) == ({"a": "1", "b": "1"}, {"a": None, "b": "2"})


def test_a_null_is_another_value_than_its_text() -> None:
    assert len(partitions_of(event({"a": None}, {"a": "null"}, {"a": ""}))) == 3


def test_a_table_without_partitions_has_one() -> None:
    assert touched(partitions_of(event({}, {}))) == ({},)


def test_more_than_a_message_can_hold_are_unknown() -> None:
    text = "x" * 1_000
    many: list[dict[str, str | None]] = [{"a": f"{number}{text}"} for number in range(LONGEST // 1_000)]
    assert touched(partitions_of(event(*many))) is None
    assert touched(partitions_of(event(*many[:-10]))) is not None
