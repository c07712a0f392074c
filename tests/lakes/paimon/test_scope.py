"""Tables that are out of scope are refused by name, by both halves."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.port import BadFiles, TableRefused
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.paimon_lake import ID_ONLY, PaimonLake
from tests.lakes.outcomes import is_refused


def table(
    warehouse: Path,
    options: Mapping[str, str],
    schema: pa.Schema = ID_ONLY,
    primary_keys: list[str] | None = None,
    partition_keys: list[str] | None = None,
) -> str:
    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database("db", True)
    made = Schema.from_pyarrow_schema(
        schema, partition_keys=partition_keys or [], primary_keys=primary_keys or [], options=dict(options)
    )
    catalog.create_table("db.t", made, False)
    return str(warehouse / "db.db" / "t")


def refused_by_both(location: str, *words: str) -> None:
    with pytest.raises(TableRefused) as by_committer:
        ADAPTER.open_committer(ADAPTER.parse_table(location), "user")
    with pytest.raises(TableRefused) as by_writer:
        ADAPTER.open_writer(ADAPTER.parse_table(location), None)
    for refusal in (by_committer, by_writer):
        assert all(word in str(refusal.value) for word in words)


@pytest.mark.parametrize(
    "options",
    [
        {"bucket": "-2", "bucket-key": "id"},
        {"bucket": "0", "bucket-key": "id"},
        {"bucket-function.type": "mod", "bucket": "4", "bucket-key": "id"},
        {"bucket-key": "absent", "bucket": "4"},
        {"bucket-key": " ", "bucket": "4"},
        {"deletion-vectors.enabled": "true"},
        {"row-tracking.enabled": "true"},
        {"data-file.external-paths": "file:///elsewhere"},
        {"file.format": "lance"},
    ],
)
def test_features_that_cannot_be_written_are_named(tmp_path: Path, options: dict[str, str]) -> None:
    location = table(tmp_path, options)
    refused_by_both(location, next(iter(options)))


def test_an_option_that_means_nothing_is_refused(tmp_path: Path) -> None:
    refused_by_both(table(tmp_path, {"bucket": "many"}), "schema 0 cannot be read", "many")


def test_a_changelog_producer_is_refused(tmp_path: Path) -> None:
    """pypaimon does not make such an append table; another product may have."""
    location = table(tmp_path, {"a": "b"})
    schema = Path(location) / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace('"a": "b"', '"changelog-producer": "input"'))
    refused_by_both(location, "changelog-producer = input")


def test_a_primary_key_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    refused_by_both(table(tmp_path, {"bucket": "1"}, schema, primary_keys=["id"]), "primary key")


@pytest.mark.parametrize("kind", [pa.float64(), pa.decimal128(20, 2), pa.timestamp("us"), pa.binary()])
def test_a_bucket_key_whose_hash_is_not_checked_is_refused(tmp_path: Path, kind: pa.DataType) -> None:
    schema = pa.schema([("id", pa.int64()), ("odd", kind)])
    options = {"bucket": "4", "bucket-key": "id,odd"}
    refused_by_both(table(tmp_path, options, schema), "bucket-key", "odd", "type")


def test_a_partition_type_whose_path_depends_on_the_zone_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    refused_by_both(table(tmp_path, {}, schema, partition_keys=["at"]), "at", "TIMESTAMP")


@pytest.mark.parametrize(
    ("file", "sign", "format"),
    [
        (f"_delta_log/{0:020d}.json", "_delta_log", "delta"),
        ("metadata/00000-a.metadata.json", "metadata/00000-a.metadata.json", "iceberg"),
    ],
)
def test_a_table_of_another_format_is_named(tmp_path: Path, file: str, sign: str, format: str) -> None:
    root = tmp_path / "flights"
    (root / file).parent.mkdir(parents=True)
    (root / file).write_text("{}")
    refused_by_both(str(root), "no Paimon table", f"it has {sign}", f"set `format` to {format}")


def test_no_table_and_other_stores_are_refused(tmp_path: Path) -> None:
    refused_by_both(str(tmp_path / "nothing"), "no Paimon table")
    refused_by_both("hdfs://host/db.db/t", "put-if-absent")
    with pytest.raises(TableRefused, match="commit user"):
        ADAPTER.open_committer(ADAPTER.parse_table(table(tmp_path, {})), "")


def test_a_path_and_its_uri_are_the_same_table(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path / "with space and %")
    for location in (lake.location, lake.root.as_uri(), lake.location + "/"):
        assert ADAPTER.open_writer(ADAPTER.parse_table(location), None).location == lake.root.as_uri()
    stream = Stream(lake)
    stream.commit(1, [1])
    assert lake.ids() == [1]


def alter(lake: PaimonLake, *changes: SchemaChange) -> None:
    lake.catalog.alter_table("db.numbers", list(changes), False)


def test_a_new_schema_changes_the_premises_of_checks(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path)
    committer = lake.committer()
    before = committer.premises()
    alter(lake, SchemaChange.add_column("more", AtomicType("STRING")))
    assert committer.premises() != before


def test_a_schema_that_the_table_lacks_is_refused(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path)
    stream = Stream(lake)
    event = lake.event([1]).model_copy(update={"schema_id": 9})
    with pytest.raises(BadFiles, match="schema 9"):
        stream.committer.check([event])
    assert is_refused(stream.publish(1, None, [event]))
