"""The light table says what the library's own table says, and is all that a commit imports."""

import datetime
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema
from pypaimon.table.file_store_table import FileStoreTable
from pypaimon.table.row.generic_row import GenericRow

from sluicegate.lakes.paimon.entries import partition_folder
from sluicegate.lakes.paimon.table import Table
from sluicegate.lakes.storage_local import LocalStorage

COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("name", pa.string()), ("on", pa.bool_())])


@pytest.mark.parametrize(
    "options",
    [{}, {"partition.default-name": "nobody"}, {"partition.legacy-name": "false"}],
    ids=["plain", "default name", "no legacy names"],
)
@pytest.mark.parametrize(
    "values",
    [
        [datetime.date(2013, 1, 31), "EWR", True],
        [datetime.date(1969, 12, 31), "a/b=c d", False],
        [None, "", None],
        [datetime.date(2000, 2, 29), "é:%", True],
    ],
    ids=["plain", "escaped", "nothing", "letters"],
)
def test_partitions_are_where_the_library_puts_them(
    tmp_path: Path, options: dict[str, str], values: list[object]
) -> None:
    catalog = CatalogFactory.create({"warehouse": str(tmp_path)})
    catalog.create_database("db", True)
    schema = Schema.from_pyarrow_schema(
        COLUMNS, partition_keys=["day", "name", "on"], options={"bucket": "-1", **options}
    )
    catalog.create_table("db.t", schema, False)
    location = str(tmp_path / "db.db" / "t")
    own, theirs = Table(LocalStorage(location)).newest(), FileStoreTable.from_path(location)
    row = GenericRow(values, theirs.partition_keys_fields)
    assert partition_folder(own, row, 0) == partition_folder(theirs, row, 0)
    assert own.options.manifest_target_size() == theirs.options.manifest_target_size()
    assert own.options.manifest_compression() == theirs.options.manifest_compression()


_COMMITTER = """
import sys
from sluicegate.lakes.registry import adapter
adapter("paimon").open_committer(adapter("paimon").parse_table(sys.argv[1]), "user").inspect()
heavy = {"pandas", "polars", "pyarrow.dataset", "pypaimon.table.file_store_table"}
print(*sorted(heavy & sys.modules.keys()))
"""


@pytest.mark.slow
def test_a_committer_does_without_the_librarys_readers(tmp_path: Path) -> None:
    catalog = CatalogFactory.create({"warehouse": str(tmp_path)})
    catalog.create_database("db", True)
    catalog.create_table("db.t", Schema.from_pyarrow_schema(COLUMNS, options={"bucket": "-1"}), False)
    command = [sys.executable, "-c", _COMMITTER, str(tmp_path / "db.db" / "t")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() == []
