"""Fixed buckets: where rows go, which tables are in scope, what a commit says about them."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.port import Published, TableRefused
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.outcomes import is_refused
from tests.lakes.paimon import reading
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
    batch = rows(600, repeated=repeated)
    Stream(ours).add(1, ours.write(batch.slice(0, 250), batch.slice(250)))
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


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLake:
    return fixed(tmp_path, 4, "i64")


def test_only_fixed_buckets_make_all_writers_one_region(lake: PaimonLake, tmp_path: Path) -> None:
    """The coordinator makes every cut of such a stream full: `basics/fixed_buckets_make_every_cut_full`."""
    expected = "the table has 4 fixed buckets, which all writers share"
    assert lake.committer().inspect().joined == expected
    Stream(lake).add(1, lake.write(rows(10)))
    assert lake.committer().inspect().joined == expected
    assert PaimonLake(tmp_path / "unaware", KEYS).committer().inspect().joined is None


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
    Stream(lake).refuses(bad, words)


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
    for decision in (1, 2):
        Stream(lake).add(decision, lake.write(rows(4_000, decision * 10_000)))
    files: dict[tuple[bytes, int], list[dict[str, Any]]] = {}
    for entry in reading.entries(lake.root, 2):
        files.setdefault((entry["_PARTITION"], entry["_BUCKET"]), []).append(entry["_FILE"])
    assert min(len(found) for found in files.values()) > 2
    for found in files.values():
        for file in found:
            assert file["_MAX_SEQUENCE_NUMBER"] - file["_MIN_SEQUENCE_NUMBER"] + 1 == file["_ROW_COUNT"]
        for one, next_one in pairwise(found):
            assert one["_MAX_SEQUENCE_NUMBER"] < next_one["_MIN_SEQUENCE_NUMBER"]
