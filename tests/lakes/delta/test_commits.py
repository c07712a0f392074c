"""The content of a commit, compared with that of the library, and with the demands of a table's features."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.delta.adapter import ADAPTER
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.delta.versions import number_of
from sluicegate.lakes.port import BadFiles, CommitRequest, Published, SchemaMismatch
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import USER, Stream
from tests.lakes.delta.making import Fields, column, info, mapped, metadata, protocol, put
from tests.lakes.outcomes import is_refused


def lines(root: Path, version: int) -> list[dict[str, Any]]:
    text = (root / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def of_kind(root: Path, version: int, kind: str) -> list[dict[str, Any]]:
    return [line[kind] for line in lines(root, version) if kind in line]


def written(root: Path, rows: pa.RecordBatch) -> FilesWritten:
    writer = ADAPTER.open_writer(ADAPTER.parse_table(str(root)), None)
    writer.write(rows)
    return FilesWritten(
        format="delta",
        format_version=1,
        location=writer.location,
        schema_id=writer.schema_id,
        files=tuple(writer.finish()),
    )


def commit(root: Path, decision: int, *events: FilesWritten, now: DeltaCommitter | None = None) -> None:
    committer = now or DeltaCommitter(LocalStorage(str(root)), USER)
    head = committer.inspect().head
    committer.check(events)
    outcome = committer.publish(CommitRequest(decision, f"digest-{decision}", head, None, events))
    assert isinstance(outcome, Published), outcome


def numbers(*values: int | None, name: str = "id") -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values, pa.int64())})


def test_a_commit_has_its_decision_twice_and_its_files_as_they_were_sent(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    stream = Stream(lake)
    event = lake.event([1, 2])
    stream.publish(1, stream.head(1), [event], 1_000)
    found = lines(lake.root, 1)
    said = found[0]["commitInfo"]
    assert (said["sluicegate.decision"], said["sluicegate.digest"]) == ("1", "digest-1")
    assert said["operationMetrics"]["numOutputRows"] == "2"
    txns = {line["txn"]["appId"]: line["txn"] for line in found if "txn" in line}
    assert txns[USER]["version"] == 1
    assert txns[USER + ".digest"]["version"] == number_of("digest-1")
    assert len({txn["lastUpdated"] for txn in txns.values()}) == 1
    assert all(isinstance(txn["lastUpdated"], int) for txn in txns.values())
    last = lake.commit_file(1).read_bytes().splitlines()[-1]
    assert last == event.files[0].metadata


def test_the_times_of_transactions_rise_also_under_a_clock_that_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = DeltaLake(tmp_path)
    stream = Stream(lake)
    monkeypatch.setattr("time.time_ns", lambda: 5_000_000_000_000)
    stream.commit(1, [1])
    monkeypatch.setattr("time.time_ns", lambda: 4_000_000_000_000)
    stream.commit(2, [2])
    assert [of_kind(lake.root, version, "txn")[0]["lastUpdated"] for version in (1, 2)] == [
        5_000_000,
        5_000_001,
    ]


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
    commit(lake.root, 1, lake.write(rows))
    lake.foreign_write(pa.Table.from_batches([rows]))
    (ours,), (theirs,) = of_kind(lake.root, 1, "add"), of_kind(lake.root, 2, "add")
    for name in ("partitionValues", "dataChange"):
        assert ours[name] == theirs[name]
    assert set(ours) <= set(theirs)
    assert {key for key in theirs.keys() - ours.keys() if theirs[key] is not None} == set()
    stats, expected = json.loads(ours["stats"]), json.loads(theirs["stats"])
    assert stats == {key: expected[key] for key in stats}
    assert ours["path"].partition("/")[0] == theirs["path"].partition("/")[0]


def test_the_library_reads_each_field_of_an_entry_as_it_was_meant(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path, pa.schema([("id", pa.int64()), ("p", pa.string())]), ["p"])
    values = [
        "plain",
        "a b",
        "ä€😀",
        "x/y",
        "..",
        "a%2Fb",
        "q?#&=:+",
        None,
        "l" * 300,
        "__HIVE_DEFAULT_PARTITION__",
    ]
    rows = pa.record_batch({"id": pa.array(range(len(values)), pa.int64()), "p": pa.array(values)})
    event = lake.write(rows)
    commit(lake.root, 1, event)
    actions = pa.table(lake.table.get_add_actions(flatten=True)).to_pylist()
    found = {each["partition.p"]: (each["num_records"], each["size_bytes"]) for each in actions}
    assert found == {file.partition["p"]: (file.rows, file.size) for file in event.files}
    paths = {uri.removeprefix("file://") for uri in lake.table.file_uris()}
    assert paths == {str(lake.root / file.path) for file in event.files}


def table(root: Path, *actions: Fields) -> Path:
    put(root, 0, info(inCommitTimestamp=1), *actions)
    return root


def test_in_commit_times_rise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"delta.enableInCommitTimestamps": "true"}
    root = table(tmp_path, protocol(["inCommitTimestamp"]), metadata(properties=properties))
    monkeypatch.setattr("time.time_ns", lambda: 5_000_000_000_000)
    for decision in (1, 2):
        commit(root, decision, written(root, numbers(decision)))
    first = [lines(root, version)[0]["commitInfo"]["inCommitTimestamp"] for version in (1, 2)]
    assert first == [5_000_000, 5_000_001]


def test_a_log_that_lacks_the_time_before_refuses_a_commit(tmp_path: Path) -> None:
    properties = {"delta.enableInCommitTimestamps": "true"}
    put(tmp_path, 0, info(), protocol(["inCommitTimestamp"]), metadata(properties=properties))
    committer = DeltaCommitter(LocalStorage(str(tmp_path)), USER)
    committer.inspect()
    outcome = committer.publish(CommitRequest(1, "d", None, None, []))
    assert is_refused(outcome)
    assert "version 0 has none" in outcome.reason


def tracked(root: Path, properties: Mapping[str, str] | None = None) -> Path:
    features = protocol(["rowTracking", "domainMetadata"])
    return table(root, features, metadata(properties=properties or {"delta.enableRowTracking": "true"}))


def test_rows_get_ids_that_no_other_row_has(tmp_path: Path) -> None:
    root = tracked(tmp_path)
    commit(root, 1, written(root, numbers(1, 2, 3)), written(root, numbers(4)))
    commit(root, 2)
    commit(root, 3, written(root, numbers(5, 6)))
    given = {
        version: [
            (each["baseRowId"], each["defaultRowCommitVersion"]) for each in of_kind(root, version, "add")
        ]
        for version in (1, 2, 3)
    }
    assert given == {1: [(0, 1), (3, 1)], 2: [], 3: [(4, 3)]}
    marks = [
        json.loads(each["configuration"])
        for version in (1, 2, 3)
        for each in of_kind(root, version, "domainMetadata")
    ]
    assert marks == [{"rowIdHighWaterMark": 3}, {"rowIdHighWaterMark": 5}]
    assert lines(root, 1)[0]["commitInfo"]["tags"] == {"delta.rowTracking.preserved": "true"}


def test_a_row_id_of_another_writer_is_respected(tmp_path: Path) -> None:
    root = tracked(tmp_path)
    said = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":99}', "removed": False}
    put(root, 1, info(), {"domainMetadata": said})
    commit(root, 1, written(root, numbers(1)))
    assert of_kind(root, 2, "add")[0]["baseRowId"] == 100
    put(root, 3, info(), {"domainMetadata": {**said, "configuration": '{"rowIdHighWaterMark":"?"}'}})
    committer = DeltaCommitter(LocalStorage(str(root)), USER)
    head = committer.inspect().head
    assert is_refused(committer.publish(CommitRequest(2, "d", head, None, [])))


def test_suspended_row_tracking_gives_no_ids(tmp_path: Path) -> None:
    root = tracked(tmp_path, {"delta.rowTrackingSuspended": "true"})
    commit(root, 1, written(root, numbers(1)))
    assert "baseRowId" not in of_kind(root, 1, "add")[0]


def test_a_mapped_table_gets_physical_names_and_ids(tmp_path: Path) -> None:
    nested = {"type": "struct", "fields": [mapped("x", 3), mapped("y", 4, "string")]}
    columns = [mapped("id", 1), mapped("s", 2, nested), mapped("p", 5, "string")]
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "5"}
    root = table(
        tmp_path, protocol(["columnMapping"], ["columnMapping"]), metadata(columns, ["p"], properties)
    )
    struct = pa.array([{"x": 7, "y": "b"}, {"x": 8, "y": None}, None])
    rows = pa.record_batch(
        {"id": pa.array([1, 2, 3], pa.int64()), "s": struct, "p": pa.array(["u", "u", "v"])}
    )
    event = written(root, rows)
    commit(root, 1, event)
    first = next(file for file in event.files if file.partition == {"p": "u"})
    fields = json.loads(first.metadata)["add"]
    assert fields["partitionValues"] == {"col-5": "u"}
    stats = json.loads(fields["stats"])
    assert stats["minValues"] == {"col-1": 1, "col-2": {"col-3": 7, "col-4": "b"}}
    assert stats["nullCount"] == {"col-1": 0, "col-2": {"col-3": 0, "col-4": 1}}
    file = pq.ParquetFile(root / first.path)
    described = [(file.schema.column(each).path, file.schema_arrow.field(0).metadata) for each in range(1)]
    assert described == [("col-1", {b"PARQUET:field_id": b"1"})]
    assert file.schema_arrow.field("col-2").type.field("col-3").metadata == {b"PARQUET:field_id": b"3"}
    assert DeltaTable(str(root)).version() == 1


def evolved(lake: DeltaLake, *columns: Fields) -> None:
    """Give the table another schema, as ALTER TABLE does."""
    (said,) = lake.actions(0, "metaData")
    action = metadata(columns, table=str(said["id"]))
    put(lake.root, lake.versions()[-1] + 1, info(), action)


def test_files_of_an_older_schema_are_taken_where_readers_fill_the_rest(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    stream = Stream(lake)
    event = lake.event([1])
    stream.committer.check([event])
    evolved(lake, column("id"), column("extra", "string"))
    stream.committer.check([event])
    fresh = lake.committer()
    fresh.check([event])
    commit(lake.root, 1, event, lake.write(pa.record_batch({"id": pa.array([2], pa.int64())})))
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
    tmp_path: Path, columns: tuple[Fields, ...]
) -> None:
    lake = DeltaLake(tmp_path)
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


def test_a_column_with_a_default_must_be_written(tmp_path: Path) -> None:
    columns = (column("id"), {**column("extra"), "metadata": {"CURRENT_DEFAULT": "5"}})
    root = table(tmp_path, protocol(["allowColumnDefaults"]), metadata(columns))
    with pytest.raises(SchemaMismatch, match="the column extra are not in the rows"):
        written(root, numbers(1))


def test_a_clone_of_a_table_has_none_of_its_decisions(tmp_path: Path) -> None:
    """A clone takes the transactions of its source along."""
    lake = DeltaLake(tmp_path)
    Stream(lake).commit(1, [1])
    txns = [{"txn": each} for each in lake.actions(1, "txn")]
    clone = tmp_path / "clone"
    put(clone, 0, info(), protocol(), metadata(), *txns)
    put(clone, 1, info())
    committer = DeltaCommitter(LocalStorage(str(clone)), USER)
    state = committer.inspect()
    assert state.newest_made == 0
