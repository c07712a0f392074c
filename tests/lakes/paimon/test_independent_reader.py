"""The independent reader: what pypaimon wrote comes back, and contradictions are found."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

from tests.lakes.paimon.independent_reader import TableDamaged, decode_string_row, read_table


@pytest.fixture(scope="module")
def few() -> pa.Table:
    """Three hundred rows of twelve months, in the order of time."""
    months = [f"2013-{1 + number // 25:02}" for number in range(300)]
    return pa.table({"id": pa.array(range(300), pa.int64()), "month": pa.array(months)})


def new_table(warehouse: Path, schema: pa.Schema, *commits: pa.Table) -> Path:
    """Create a table, and append to it with pypaimon itself, one commit each; return its folder."""
    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database("db", True)
    made = Schema.from_pyarrow_schema(schema, partition_keys=["month"], options={"bucket": "-1"})
    catalog.create_table("db.rows", made, False)
    for rows in commits:
        append(warehouse, rows)
    return warehouse / "db.db" / "rows"


def append(warehouse: Path, rows: pa.Table) -> None:
    """Append rows to the table in one commit."""
    table = CatalogFactory.create({"warehouse": str(warehouse)}).get_table("db.rows")
    builder = table.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(rows)
    commit.commit(write.prepare_commit())
    write.close()
    commit.close()


@pytest.mark.slow
def test_reads_what_pypaimon_wrote(few: pa.Table, tmp_path: Path) -> None:
    folder = new_table(tmp_path, few.schema, few.slice(0, 100), few.slice(100, 50), few.slice(150))
    found = read_table(folder)
    assert found.rows.sort_by("id").select(few.column_names).cast(few.schema).equals(few.combine_chunks())
    assert [commit.rows for commit in found.commits] == [100, 50, 150]
    assert found.files == len(list(folder.glob("**/*.parquet")))


def test_table_without_a_commit_is_empty(few: pa.Table, tmp_path: Path) -> None:
    found = read_table(new_table(tmp_path, few.schema))
    assert (found.rows.num_rows, found.files, found.commits) == (0, 0, ())


@pytest.mark.slow
def test_same_rows_written_twice_come_back_twice(few: pa.Table, tmp_path: Path) -> None:
    folder = new_table(tmp_path, few.schema, few, few.slice(0, 40))
    assert read_table(folder).rows.num_rows == 340


def test_missing_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TableDamaged, match="schema-0"):
        read_table(tmp_path / "nowhere")


@pytest.mark.slow
def test_lost_data_file_is_an_error(few: pa.Table, tmp_path: Path) -> None:
    folder = new_table(tmp_path, few.schema, few)
    next(folder.glob("**/*.parquet")).unlink()
    with pytest.raises(TableDamaged, match="parquet"):
        read_table(folder)


@pytest.mark.slow
def test_lost_snapshot_is_an_error(few: pa.Table, tmp_path: Path) -> None:
    folder = new_table(tmp_path, few.schema, few.slice(0, 10), few.slice(10))
    (folder / "snapshot" / "snapshot-1").unlink()
    with pytest.raises(TableDamaged, match="snapshots are missing"):
        read_table(folder)


@pytest.mark.slow
def test_rows_in_the_wrong_partition_are_an_error(few: pa.Table, tmp_path: Path) -> None:
    folder = new_table(tmp_path, few.schema, few.slice(0, 1), few.slice(299))
    first, second = sorted(folder.glob("month=*/bucket-0/*.parquet"))
    shutil.copy(second, first)
    with pytest.raises(TableDamaged, match=r"another (month|size)"):
        read_table(folder)


def test_snapshot_that_repeats_the_files_of_another_is_an_error(few: pa.Table, tmp_path: Path) -> None:
    folder = new_table(tmp_path, few.schema, few.slice(0, 10))
    append(tmp_path, few.slice(10, 5))
    first = json.loads((folder / "snapshot" / "snapshot-1").read_bytes())
    second = json.loads((folder / "snapshot" / "snapshot-2").read_bytes())
    second |= {key: first[key] for key in ("deltaManifestList", "deltaManifestListSize")}
    (folder / "snapshot" / "snapshot-2").write_text(json.dumps(second))
    with pytest.raises(TableDamaged, match="and again in snapshot 2"):
        read_table(folder)


@pytest.mark.parametrize("text", ["", "2013-01", "2013-01-31", "Zürich im Winter"])
def test_decodes_a_row_as_pypaimon_encodes_it(text: str) -> None:
    from pypaimon.schema.data_types import AtomicType, DataField
    from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer

    fields = [DataField(0, "month", AtomicType("STRING"))]
    assert decode_string_row(GenericRowSerializer.to_bytes(GenericRow([text], fields))) == text


def test_null_partition_is_an_error() -> None:
    with pytest.raises(TableDamaged, match="not one string"):
        decode_string_row(bytes.fromhex("00000001") + b"\x00\x01" + bytes(14))
