"""Fixed buckets: where rows go, which tables are in scope, what a commit says about them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.write.table_commit import StreamTableCommit

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.port import BadFiles, CommitRequest, Published, TableRefused
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.outcomes import is_refused
from tests.lakes.paimon import reading
from tests.lakes.paimon.independent_reader import read_table
from tests.lakes.paimon.test_commits import comparable
from tests.lakes.paimon.test_entries import edited

KEYS = pa.schema(
    [
        ("id", pa.int64()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("text", pa.string()),
        ("day", pa.string()),
    ]
)


def fixed(folder: Path, total: int, key: str, partition_keys: Sequence[str] = ()) -> PaimonLake:
    return PaimonLake(folder, KEYS, partition_keys, {"bucket": str(total), "bucket-key": key})


def rows(count: int, start: int = 0, repeated: int | None = None) -> pa.RecordBatch:
    """Rows with keys of both signs, short and long texts, and nulls; `repeated`: how many keys there are."""
    ids = range(start, start + count)
    numbers = [number % repeated if repeated else number for number in ids]
    return pa.record_batch(
        {
            "id": ids,
            "i32": [None if at % 13 == 0 else at * 7_919 * (-1) ** at for at in numbers],
            "i64": [None if at % 17 == 0 else at * 7_919_000_003 * (-1) ** at for at in numbers],
            "text": [None if at % 19 == 0 else f"{'abcdefghiö' * (at % 3)}{at}" for at in numbers],
            "day": [None if at % 5 == 0 else f"d{at % 3}" for at in ids],
        },
        schema=KEYS,
    )


def buckets_on_disk(root: Path) -> dict[int, str]:
    """The folder of each row, by its id."""
    return {
        number: str(path.parent.relative_to(root))
        for path in root.rglob("*.parquet")
        for number in pq.ParquetFile(path).read(["id"]).column("id").to_pylist()
    }


@pytest.mark.slow
@pytest.mark.parametrize("key", ["i32", "i64", "text", "i32,text", "text,i64,i32"])
@pytest.mark.parametrize("repeated", [None, 40])
def test_a_row_lands_where_pypaimon_puts_it(tmp_path: Path, key: str, repeated: int | None) -> None:
    ours = fixed(tmp_path / "ours", 7, key, ["day"])
    theirs = fixed(tmp_path / "theirs", 7, key, ["day"])
    stream = Stream(ours)
    batch = rows(600, repeated=repeated)
    assert isinstance(stream.publish(1, None, [ours.write(batch.slice(0, 250), batch.slice(250))]), Published)
    theirs.foreign_write(pa.Table.from_batches([batch]))
    placed = buckets_on_disk(ours.root)
    assert placed == buckets_on_disk(theirs.root)
    assert len({folder.rsplit("/", 1)[1] for folder in placed.values()}) == 7
    sorted_rows = ours.read().sort_by("id").select(KEYS.names).cast(KEYS)
    assert sorted_rows.equals(pa.Table.from_batches([batch]).combine_chunks())


@pytest.mark.parametrize(
    ("key", "values", "expected"),
    [
        ("i32", [None, -7_919, 15_838, 31_676, 2_012_732_505, 269_502_286], [3, 4, 4, 1, 0, 2]),
        ("i64", [None, -7_919, 15_838, 31_676, -23_757_071_271, 47_514_142_542], [3, 3, 4, 1, 1, 0]),
        ("text", [None, "01", "0123456", "01234567", "0123456789abcdefghijäö22"], [3, 0, 4, 6, 2]),
    ],
)
def test_a_row_lands_where_paimons_java_library_puts_it(
    tmp_path: Path, key: str, values: list[Any], expected: list[int]
) -> None:
    """The buckets were recorded from a table that Paimon 1.3.1 for Java has written."""
    lake = fixed(tmp_path, 7, key)
    column = pa.array(values, KEYS.field(key).type)
    lake.write(pa.record_batch({"id": pa.array(range(len(values)), pa.int64()), key: column}))
    placed = buckets_on_disk(lake.root)
    assert [placed[number] for number in range(len(values))] == [f"bucket-{bucket}" for bucket in expected]


@pytest.mark.slow
def test_a_commit_reads_as_one_of_pypaimon_does(tmp_path: Path) -> None:
    """But for the sequence numbers, of which pypaimon gives all files of a bucket the same."""
    ours, theirs = (
        PaimonLake(
            tmp_path / name,
            KEYS,
            ["day"],
            {"bucket": "4", "bucket-key": "i64", "metadata.stats-mode": "full"},
        )
        for name in ("ours", "theirs")
    )
    stream = Stream(ours)
    for decision in (1, 2):
        # pypaimon's own writer fails at a null partition of a table that has snapshots.
        batch = rows(60, decision * 100).filter(pc.field("day").is_valid())
        table = theirs.table
        write = table.new_stream_write_builder().new_write()
        write.write_arrow(pa.Table.from_batches([batch]))
        StreamTableCommit(table, "stream-a").commit(write.prepare_commit(decision), decision)
        outcome = stream.publish(decision, stream.recorded, [ours.write(batch)])
        assert isinstance(outcome, Published)
        stream.recorded = outcome.snapshot
    for number in (1, 2):
        assert lines(ours, number) == lines(theirs, number)
        assert said(ours, number) == said(theirs, number)


def lines(lake: PaimonLake, number: int) -> list[dict[str, Any]]:
    return comparable(reading.manifests(lake.root, number))


def said(lake: PaimonLake, number: int) -> list[dict[str, Any]]:
    passing = {"_MIN_SEQUENCE_NUMBER", "_MAX_SEQUENCE_NUMBER"}
    found = comparable(reading.entries(lake.root, number))
    kept = [{key: value for key, value in record.items() if key not in passing} for record in found]
    return sorted(kept, key=lambda record: (record["_PARTITION"], record["_BUCKET"]))


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLake:
    return fixed(tmp_path, 4, "i64")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"_BUCKET": 4}, "bucket 4; the table's go from 0 to 3"),
        ({"_BUCKET": -1}, "bucket -1"),
        ({"_BUCKET": -2}, "bucket -2"),
        ({"_TOTAL_BUCKETS": 8}, "total buckets 8 where 4 is expected"),
        ({"_TOTAL_BUCKETS": -1}, "total buckets -1 where 4 is expected"),
    ],
)
def test_only_the_tables_own_buckets_are_accepted(
    lake: PaimonLake, changes: dict[str, int], words: str
) -> None:
    bad = edited(lake.write(rows(1, 1)), **changes)
    stream = Stream(lake)
    with pytest.raises(BadFiles, match=words):
        stream.committer.check([bad])
    assert is_refused(stream.publish(1, None, [bad]))


def test_a_file_must_be_in_the_folder_of_its_bucket(lake: PaimonLake) -> None:
    event = lake.write(rows(1, 1))
    bucket = int(event.files[0].path.split("/")[0].removeprefix("bucket-"))
    stream = Stream(lake)
    stream.committer.check([event])
    with pytest.raises(BadFiles, match="where readers would look"):
        stream.committer.check([edited(event, _BUCKET=(bucket + 1) % 4)])


def alter(lake: PaimonLake, *changes: SchemaChange) -> None:
    lake.catalog.alter_table("db.numbers", list(changes), False)


def test_a_changed_number_of_buckets_is_refused(lake: PaimonLake) -> None:
    """By both halves when they open, and by a committer that was there before."""
    stream = Stream(lake)
    early = lake.write(rows(9, 1))
    outcome = stream.publish(1, None, [early])
    assert isinstance(outcome, Published)
    late = lake.write(rows(9, 10))
    alter(lake, SchemaChange.set_option("bucket", "8"))
    refused = stream.publish(2, outcome.snapshot, [late])
    assert is_refused(refused)
    for text in (refused.reason, refusal_of_committer(lake), refusal_of_writer(lake)):
        assert "number of buckets was changed from 4 to 8 after schema 0" in text
        assert "Make a new table" in text


def refusal_of_committer(lake: PaimonLake) -> str:
    with pytest.raises(TableRefused) as refused:
        ADAPTER.open_committer(ADAPTER.parse_table(lake.location), "user")
    return str(refused.value)


def refusal_of_writer(lake: PaimonLake) -> str:
    with pytest.raises(TableRefused) as refused:
        ADAPTER.open_writer(ADAPTER.parse_table(lake.location), None)
    return str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        SchemaChange.set_option("bucket-key", "i32"),
        SchemaChange.update_column_type("i32", AtomicType("BIGINT")),
    ],
)
def test_a_changed_bucket_key_is_refused(tmp_path: Path, change: SchemaChange) -> None:
    lake = fixed(tmp_path, 4, "i64,i32")
    alter(lake, change)
    assert "its bucket-key was changed after schema 0" in refusal_of_writer(lake)
    assert "its bucket-key was changed after schema 0" in refusal_of_committer(lake)


@pytest.mark.slow
def test_sequence_numbers_follow_the_order_of_writing(tmp_path: Path) -> None:
    lake = PaimonLake(
        tmp_path, KEYS, ["day"], {"bucket": "2", "bucket-key": "id", "target-file-size": "16kb"}
    )
    stream = Stream(lake)
    for decision in (1, 2):
        outcome = stream.publish(decision, stream.recorded, [lake.write(rows(4_000, decision * 10_000))])
        assert isinstance(outcome, Published)
        stream.recorded = outcome.snapshot
    files: dict[tuple[bytes, int], list[dict[str, Any]]] = {}
    for entry in reading.entries(lake.root, 2):
        files.setdefault((entry["_PARTITION"], entry["_BUCKET"]), []).append(entry["_FILE"])
    assert min(len(found) for found in files.values()) > 2
    for found in files.values():
        for file in found:
            assert file["_MAX_SEQUENCE_NUMBER"] - file["_MIN_SEQUENCE_NUMBER"] + 1 == file["_ROW_COUNT"]
        for one, next_one in pairwise(found):
            assert one["_MAX_SEQUENCE_NUMBER"] < next_one["_MIN_SEQUENCE_NUMBER"]


@pytest.mark.slow
def test_concurrent_attempts_and_another_product_fill_the_same_buckets(tmp_path: Path) -> None:
    """Some attempts lose and are never committed; pypaimon and an independent reader see just the others."""
    schema = pa.schema([("id", pa.int64()), ("key", pa.string()), ("day", pa.string())])
    lake = PaimonLake(tmp_path, schema, ["day"], {"bucket": "3", "bucket-key": "key"})

    def batch(start: int) -> pa.RecordBatch:
        ids = range(start, start + 50)
        days = [f"d{number % 2}" for number in ids]
        return pa.record_batch({"id": ids, "key": [f"key-{at % 20}" for at in ids], "day": days}, schema)

    def attempt(start: int) -> FilesWritten:
        return lake.write(batch(start))

    stream = Stream(lake)
    expected: list[int] = []
    with ThreadPoolExecutor(4) as tasks:
        for decision in range(1, 7):
            starts = [decision * 1_000 + task * 100 for task in range(4)]
            events = list(tasks.map(attempt, [*starts, starts[0]]))
            winners = events[1:]
            stream.committer.check(winners)
            request = CommitRequest(decision, f"digest-{decision}", stream.head(decision), None, winners)
            outcome = stream.committer.publish(request)
            assert isinstance(outcome, Published)
            stream.recorded = outcome.snapshot
            lake.foreign_write(pa.Table.from_batches([batch(100_000 * decision)]))
            expected += [start + at for start in (*starts, 100_000 * decision) for at in range(50)]
    contents = read_table(lake.root)
    assert contents.commits[-1].snapshot == 12
    for found in (lake.read(), contents.rows):
        assert sorted(found.column("id").to_pylist()) == sorted(expected)
    of_key: dict[str, set[int]] = {}
    for entry in reading.entries(lake.root, 12):
        (path,) = lake.root.rglob(entry["_FILE"]["_FILE_NAME"])
        assert path.parent.name == f"bucket-{entry['_BUCKET']}"
        for key in pq.ParquetFile(path).read(["key"]).column("key").to_pylist():
            of_key.setdefault(key, set()).add(entry["_BUCKET"])
    assert len(of_key) == 20
    assert all(len(buckets) == 1 for buckets in of_key.values())
