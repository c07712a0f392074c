"""The independent reader: what pypaimon wrote comes back, and contradictions are found."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.paimon.independent_reader import TableDamaged, decode_string_row, read_table

MONTHS: Final = [f"2013-{1 + number // 25:02}" for number in range(300)]
ROWS: Final = pa.table({"id": pa.array(range(300), pa.int64()), "month": pa.array(MONTHS)})
PARTS: Final = (ROWS.slice(0, 100), ROWS.slice(100, 50), ROWS.slice(150), ROWS.slice(0, 40))
"""Commits of pypaimon; the last one repeats rows."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lake = PaimonLake(tmp_path, ROWS.schema, ["month"])
    for part in PARTS:
        lake.foreign_write(part)
    return lake.root


@pytest.mark.slow
def test_what_pypaimon_wrote_comes_back(folder: Path) -> None:
    found = read_table(folder)
    expected = pa.concat_tables(PARTS).sort_by("id")
    assert found.rows.sort_by("id").select(ROWS.column_names).cast(ROWS.schema).equals(expected)
    assert [commit.rows for commit in found.commits] == [part.num_rows for part in PARTS]
    assert found.files == len(list(folder.glob("**/*.parquet")))


def test_a_table_without_a_commit_is_empty(tmp_path: Path) -> None:
    found = read_table(PaimonLake(tmp_path, ROWS.schema, ["month"]).root)
    assert (found.rows.num_rows, found.files, found.commits) == (0, 0, ())


def lose_schema(folder: Path) -> None:
    (folder / "schema/schema-0").unlink()


def lose_data(folder: Path) -> None:
    next(folder.glob("**/*.parquet")).unlink()


def lose_snapshot(folder: Path) -> None:
    (folder / "snapshot/snapshot-1").unlink()


def move_rows(folder: Path) -> None:
    first, *_, last = sorted(folder.glob("month=*/bucket-0/*.parquet"))
    shutil.copy(last, first)


def repeat_files(folder: Path) -> None:
    first, second = (folder / f"snapshot/snapshot-{number}" for number in (1, 2))
    of_first = json.loads(first.read_bytes())
    lists = {key: of_first[key] for key in ("deltaManifestList", "deltaManifestListSize")}
    second.write_text(json.dumps({**json.loads(second.read_bytes()), **lists}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lose_schema, "schema-0"),
        (lose_data, "parquet"),
        (lose_snapshot, "snapshots are missing"),
        (move_rows, "another (month|size)"),
        (repeat_files, "and again in snapshot 2"),
    ],
)
def test_a_contradiction_is_an_error(folder: Path, damage: Callable[[Path], None], words: str) -> None:
    damage(folder)
    with pytest.raises(TableDamaged, match=words):
        read_table(folder)


@pytest.mark.parametrize("text", ["", "2013-01", "2013-01-31", "Zürich im Winter"])
def test_decodes_a_row_as_pypaimon_encodes_it(text: str) -> None:
    from pypaimon.schema.data_types import AtomicType, DataField
    from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer

    fields = [DataField(0, "month", AtomicType("STRING"))]
    assert decode_string_row(GenericRowSerializer.to_bytes(GenericRow([text], fields))) == text
    with pytest.raises(TableDamaged, match="not one string"):
        decode_string_row(bytes.fromhex("00000001") + b"\x00\x01" + bytes(14))
