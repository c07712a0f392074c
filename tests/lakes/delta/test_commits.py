"""The content of a commit, compared with that of the library, and with the demands of a table's features."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluicegate.lakes.delta.versions import number_of
from sluicegate.lakes.port import BadFiles
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import USER, Stream
from tests.lakes.delta.making import Fields, HandMade, column, info, mapped, metadata, protocol, put
from tests.lakes.outcomes import is_refused


def numbers(*values: int | None) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(values, pa.int64())})


def test_a_commit_has_its_decision_twice_and_its_files_as_they_were_sent(lake: DeltaLake) -> None:
    event = lake.event([1, 2])
    Stream(lake).add(1, event, watermark=1_000)
    (said,) = lake.actions(1, "commitInfo")
    assert (said["sluicegate.decision"], said["sluicegate.digest"]) == ("1", "digest-1")
    assert said["operationMetrics"]["numOutputRows"] == "2"
    txns = {each["appId"]: each for each in lake.actions(1, "txn")}
    assert txns[USER]["version"] == 1
    assert txns[USER + ".digest"]["version"] == number_of("digest-1")
    (updated,) = {each["lastUpdated"] for each in txns.values()}
    assert isinstance(updated, int)
    assert lake.commit_file(1).read_bytes().splitlines()[-1] == event.files[0].metadata


def test_times_rise_also_under_a_clock_that_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = metadata(properties={"delta.enableInCommitTimestamps": "true"})
    lake = HandMade(tmp_path, protocol(["inCommitTimestamp"]), times)
    for decision, now in ((1, 5_000_000), (2, 4_000_000)):
        monkeypatch.setattr("time.time_ns", lambda now=now: now * 1_000_000)
        Stream(lake).commit(decision, [decision])
    expected = [5_000_000, 5_000_001]
    assert [lake.actions(version, "txn")[0]["lastUpdated"] for version in (1, 2)] == expected
    assert [lake.actions(version, "commitInfo")[0]["inCommitTimestamp"] for version in (1, 2)] == expected


def test_a_log_that_lacks_the_time_before_refuses_a_commit(tmp_path: Path) -> None:
    lake = HandMade(tmp_path, protocol())
    times = metadata(properties={"delta.enableInCommitTimestamps": "true"})
    put(lake.root, 0, info(), protocol(["inCommitTimestamp"]), times)
    stream = Stream(lake)
    outcome = stream.publish(1, stream.head(1), [])
    assert is_refused(outcome)
    assert "version 0 has none" in outcome.reason


def test_entries_equal_those_of_the_library(tmp_path: Path) -> None:
    """The library writes the same rows; its lines have the same fields with the same values."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("v", pa.float64()), ("dt", pa.string())])
    rows = pa.record_batch(
        {
            "id": pa.array([3, 1, 2], pa.int64()),
            "name": pa.array(["b", None, "a"]),
            "v": pa.array([0.5, -1.25, None]),
            "dt": pa.array(["2026-07-01"] * 3),
        }
    )
    lake = DeltaLake(tmp_path, schema, ["dt"])
    Stream(lake).add(1, lake.write(rows))
    lake.foreign_write(pa.Table.from_batches([rows]))
    (ours,), (theirs,) = lake.actions(1, "add"), lake.actions(2, "add")
    for name in ("partitionValues", "dataChange"):
        assert ours[name] == theirs[name]
    assert set(ours) <= set(theirs)
    assert {key for key in theirs.keys() - ours.keys() if theirs[key] is not None} == set()
    stats, expected = json.loads(ours["stats"]), json.loads(theirs["stats"])
    assert stats == {key: expected[key] for key in stats}
    assert ours["path"].partition("/")[0] == theirs["path"].partition("/")[0]


def tracked(folder: Path) -> HandMade:
    said = metadata(properties={"delta.enableRowTracking": "true"})
    return HandMade(folder, protocol(["rowTracking", "domainMetadata"]), said)


def test_rows_get_ids_that_no_other_row_has(tmp_path: Path) -> None:
    lake = tracked(tmp_path)
    stream = Stream(lake)
    stream.add(1, lake.write(numbers(1, 2, 3)), lake.write(numbers(4)))
    stream.add(2)
    stream.add(3, lake.write(numbers(5, 6)))
    given = {
        version: [
            (each["baseRowId"], each["defaultRowCommitVersion"]) for each in lake.actions(version, "add")
        ]
        for version in (1, 2, 3)
    }
    assert given == {1: [(0, 1), (3, 1)], 2: [], 3: [(4, 3)]}
    marks = [
        each["configuration"] for version in (1, 2, 3) for each in lake.actions(version, "domainMetadata")
    ]
    assert [json.loads(each) for each in marks] == [{"rowIdHighWaterMark": 3}, {"rowIdHighWaterMark": 5}]
    assert lake.actions(1, "commitInfo")[0]["tags"] == {"delta.rowTracking.preserved": "true"}


def test_a_row_id_of_another_writer_is_respected(tmp_path: Path) -> None:
    lake = tracked(tmp_path)
    said = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":99}', "removed": False}
    lake.put({"domainMetadata": said})
    Stream(lake).add(1, lake.write(numbers(1)))
    assert lake.actions(2, "add")[0]["baseRowId"] == 100
    lake.put({"domainMetadata": {**said, "configuration": '{"rowIdHighWaterMark":"?"}'}})
    stream = Stream(lake)
    assert is_refused(stream.publish(2, stream.head(2), []))


def test_a_mapped_table_gets_physical_names_and_ids(tmp_path: Path) -> None:
    nested = {"type": "struct", "fields": [mapped("x", 3), mapped("y", 4, "string")]}
    columns = [mapped("id", 1), mapped("s", 2, nested), mapped("p", 5, "string")]
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "5"}
    features = protocol(["columnMapping"], ["columnMapping"])
    lake = HandMade(tmp_path, features, metadata(columns, ["p"], properties))
    struct = pa.array([{"x": 7, "y": "b"}, {"x": 8, "y": None}, None])
    rows = pa.record_batch(
        {"id": pa.array([1, 2, 3], pa.int64()), "s": struct, "p": pa.array(["u", "u", "v"])}
    )
    event = lake.write(rows)
    Stream(lake).add(1, event)
    first = next(file for file in event.files if file.partition == {"p": "u"})
    fields = json.loads(first.metadata)["add"]
    assert fields["partitionValues"] == {"col-5": "u"}
    stats = json.loads(fields["stats"])
    assert stats["minValues"] == {"col-1": 1, "col-2": {"col-3": 7, "col-4": "b"}}
    assert stats["nullCount"] == {"col-1": 0, "col-2": {"col-3": 0, "col-4": 1}}
    file = pq.ParquetFile(lake.root / first.path)
    assert (file.schema.column(0).path, file.schema_arrow.field(0).metadata[b"PARQUET:field_id"]) == (
        "col-1",
        b"1",
    )
    assert file.schema_arrow.field("col-2").type.field("col-3").metadata == {b"PARQUET:field_id": b"3"}
    assert lake.table.version() == 1


def evolved(lake: DeltaLake, *columns: Fields) -> None:
    """Give the table another schema, as ALTER TABLE does."""
    (said,) = lake.actions(0, "metaData")
    action = metadata(columns, table=str(said["id"]))
    put(lake.root, lake.versions()[-1] + 1, info(), action)


def test_files_of_an_older_schema_are_taken_where_readers_fill_the_rest(lake: DeltaLake) -> None:
    stream, event = Stream(lake), lake.event([1])
    stream.committer.check([event])
    evolved(lake, column("id"), column("extra", "string"))
    stream.committer.check([event])
    Stream(lake).add(1, event, lake.write(numbers(2)))
    assert lake.ids() == [1, 2]


REFUSED: tuple[tuple[Fields, ...], ...] = (
    (column("other"),),
    (column("id", "string"),),
    (column("id", "double"),),
    (column("id", nullable=False),),
    (column("id"), column("extra", nullable=False)),
    (column("id"), {**column("extra"), "metadata": {"CURRENT_DEFAULT": "5"}}),
)


@pytest.mark.parametrize("columns", REFUSED, ids=str)
def test_files_of_an_older_schema_are_refused_where_readers_could_not_read_them(
    lake: DeltaLake, columns: tuple[Fields, ...]
) -> None:
    event = lake.event([1])
    committer = lake.committer()
    committer.inspect()
    committer.check([event])
    evolved(lake, *columns)
    with pytest.raises(BadFiles, match="older schema"):
        committer.check([event])
    with pytest.raises(BadFiles, match="older schema"):
        lake.committer().check([event])


def test_a_wider_type_needs_the_feature(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path, pa.schema([("id", pa.int32())]))
    event = lake.write(pa.record_batch({"id": pa.array([1], pa.int32())}))
    evolved(lake, column("id", "long"))
    with pytest.raises(BadFiles, match="is long now instead of integer"):
        lake.committer().check([event])
    put(lake.root, 2, info(), protocol(["typeWidening"], ["typeWidening"]))
    lake.committer().check([event])
