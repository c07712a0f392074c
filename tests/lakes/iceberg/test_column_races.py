"""New columns of Iceberg tables beside commits of others, and with outcomes that are not known."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluicegate.lakes.iceberg.catalog import Catalog
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import Change, Metadata
from sluicegate.lakes.iceberg.new_columns import add_columns
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import (
    LakeUnavailable,
)
from tests.contracts.lakes.harness import Fault
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.iceberg_rest_lake import ALL_ICEBERG, iceberg_of
from tests.doubles.proxy import Proxy
from tests.iceberg_java.java import RestCatalogServer
from tests.lakes.iceberg.reading import duck_rows

NOTE = pa.schema([("id", pa.int64()), ("note", pa.string())])


def gain(lake: IcebergLake, schema: pa.Schema = NOTE, **options: str) -> None:
    evolve(lake.adapter, lake.adapter.parse_table(lake.location, options), schema)


def rows(lake: IcebergLake) -> list[tuple[Any, ...]]:
    """Return the rows that pyiceberg and DuckDB agree on."""
    names = [field.name for field in lake.table.schema().fields]
    quoted = ", ".join(f'"{name}"' for name in names)
    found = [tuple(row[name] for name in names) for row in lake.rows()]
    assert sorted(duck_rows(lake, quoted), key=repr) == sorted(found, key=repr)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_ICEBERG)
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LANDED])
def test_an_unknown_outcome_is_read_back(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, fault: Fault
) -> None:
    lake = iceberg_of(name, request, tmp_path)
    catalog = lake.faulty(Files(), fault)
    base = catalog.load()

    def change() -> bool:
        return add_columns(catalog, base, TableView(base), [NOTE.field("note")])

    if fault is Fault.LANDED:
        assert change() is True
    else:
        with pytest.raises(LakeUnavailable, match="injected"):
            change()
        assert lake.schemas() == 1
        gain(lake)
    assert lake.schemas() == 2
    # What was seen is not the newest schema any more.
    assert change() is False
    assert lake.schemas() == 2
    catalog.close()


@pytest.fixture
def proxy(iceberg_rest: RestCatalogServer) -> Any:
    with Proxy(iceberg_rest.uri) as found:
        yield found


class Late:
    """A catalog in which something happens right before its first change."""

    def __init__(self, inner: Catalog, act: Callable[[], None]) -> None:
        self._inner = inner
        self._acts = [act]
        self.reads_files = inner.reads_files
        self.load, self.create, self.close = inner.load, inner.create, inner.close

    def commit(self, base: Metadata, change: Change, files: Mapping[str, bytes]) -> bool:
        if self._acts:
            self._acts.pop()()
        return self._inner.commit(base, change, files)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_ICEBERG)
@pytest.mark.parametrize("theirs", ["append", "column", "same"])
def test_a_change_of_others_at_the_same_time_is_kept(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, theirs: str
) -> None:
    lake = iceberg_of(name, request, tmp_path)
    acts: dict[str, Callable[[], None]] = {
        "append": lambda: lake.foreign([1]),
        "column": lambda: lake.alter("theirs", pa.int64()),
        "same": lambda: lake.alter("note", pa.string()),
    }
    catalog = Late(lake.catalog(Files()), acts[theirs])
    base = catalog.load()
    made = add_columns(catalog, base, TableView(base), [NOTE.field("note")])
    # A REST catalog takes a schema beside an append of others.
    assert made is (theirs == "append" and "rest" in name)
    gain(lake, NOTE.append(pa.field("theirs", pa.int64())) if theirs == "column" else NOTE)
    names = [field.name for field in lake.table.schema().fields]
    assert names == (["id", "theirs", "note"] if theirs == "column" else ["id", "note"])
    assert lake.schemas() == len(names)
    assert len(lake.rows()) == (1 if theirs == "append" else 0)
    catalog.close()
