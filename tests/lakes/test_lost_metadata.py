"""A table whose metadata is lost: its files go into a new table only if they have that one's columns."""

import shutil
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from sluicegate.events.models import FilesWritten
from sluicegate.kafka.topics import TopicNames
from sluicegate.lakes.capabilities import CopiesFiles, capable
from sluicegate.lakes.port import BadFiles, TableRefused
from sluicegate.lakes.registry import adapter
from tests.faults import iceberg_tables, tables
from tests.integration.job import SCHEMA, Job

pytestmark = pytest.mark.slow

WRONG: Final = {
    "another name": [SCHEMA.field("id"), SCHEMA.field("origin"), pa.field("time", pa.timestamp("ms"))],
    "another type": [pa.field("id", pa.int32()), SCHEMA.field("origin"), SCHEMA.field("at")],
    "another order": [SCHEMA.field("origin"), SCHEMA.field("id"), SCHEMA.field("at")],
    "one more": [*SCHEMA, pa.field("more", pa.string())],
}
METADATA: Final = ("_delta_log", "metadata", "schema", "snapshot", "manifest")


def event_of(table: Path, lake: str) -> FilesWritten:
    """Write a file of a table, and describe it."""
    options = dict(tables.kind_of(table).options(table))
    return Job("", TopicNames("none"), "flights", str(table), lake=lake, lake_options=options).write_files(
        [1]
    )


def lose_metadata(table: Path, *, catalog: bool = True) -> None:
    """Delete everything of a table but its data files. `catalog`: also the entry of a catalog."""
    for name in METADATA:
        shutil.rmtree(table / name, ignore_errors=True)
    if catalog and iceberg_tables.owns(table):
        (table.parents[1] / iceberg_tables.DATABASE).unlink()


def maintenance_of(table: Path, lake: str) -> CopiesFiles:
    found = adapter(lake)
    opened = found.open_maintenance(found.parse_table(str(table), tables.kind_of(table).options(table)))
    return capable(opened, CopiesFiles, "a rebuild")


@pytest.mark.parametrize("catalog", [True, False])
@pytest.mark.parametrize("lake", tables.FORMATS)
def test_a_stream_does_not_begin_with_a_table_without_metadata(
    tmp_path: Path, lake: str, catalog: bool
) -> None:
    """`table-unfit` names the way out of a loss; an outage does not."""
    table = tables.create_table(tmp_path, "flights", lake)
    found = adapter(lake)
    place = found.parse_table(str(table), tables.kind_of(table).options(table))
    lose_metadata(table, catalog=catalog)
    with pytest.raises(TableRefused):
        found.open_committer(place, "u")


@pytest.mark.parametrize("lake", tables.FORMATS)
def test_files_go_into_a_new_table_with_the_same_columns(tmp_path: Path, lake: str) -> None:
    table = tables.create_table(tmp_path, "flights", lake)
    event = event_of(table, lake)
    again = tables.create_table(tmp_path, "again", lake)
    lose_metadata(table)
    adopted = maintenance_of(again, lake).adopt(event, lost=True)
    found = adapter(lake)
    committer = found.open_committer(found.parse_table(str(again), tables.kind_of(again).options(again)), "u")
    committer.check([adopted.model_copy(update={"table_identity": committer.identity()})])
    committer.close()


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("lake", tables.FORMATS)
def test_files_do_not_go_into_a_table_with_other_columns(tmp_path: Path, lake: str, wrong: str) -> None:
    table = tables.create_table(tmp_path, "flights", lake)
    event = event_of(table, lake)
    schema = pa.schema(WRONG[wrong])
    other = tables.create_table(tmp_path, "other", lake, schema)
    lose_metadata(table)
    with pytest.raises(BadFiles):
        maintenance_of(other, lake).adopt(event, lost=True)
    assert not [*other.rglob("*.parquet")]
