"""Tables that are out of scope are refused by name, by both halves."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.port import TableRefused
from tests.contracts.lakes.harness import Stream, with_commits
from tests.contracts.lakes.paimon_lake import ID_ONLY, PaimonLake


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


ODD = [
    pytest.param({"bucket": "4", "bucket-key": "id,odd"}, kind, [], "bucket-key odd type", id=f"key {kind}")
    for kind in (pa.float64(), pa.decimal128(20, 2), pa.timestamp("us"), pa.binary())
]
"""Types whose hash is not checked."""


@pytest.mark.parametrize(
    ("options", "odd", "partitions", "words"),
    [
        ({"bucket": "-2", "bucket-key": "id"}, None, [], "bucket"),
        ({"bucket": "0", "bucket-key": "id"}, None, [], "bucket"),
        ({"bucket": "many"}, None, [], "schema 0 cannot be read many"),
        (
            {"bucket-function.type": "mod", "bucket": "4", "bucket-key": "id"},
            None,
            [],
            "bucket-function.type",
        ),
        ({"bucket-key": "absent", "bucket": "4"}, None, [], "bucket-key"),
        ({"bucket-key": " ", "bucket": "4"}, None, [], "bucket-key"),
        ({"deletion-vectors.enabled": "true"}, None, [], "deletion-vectors.enabled"),
        ({"row-tracking.enabled": "true"}, None, [], "row-tracking.enabled"),
        ({"data-file.external-paths": "file:///elsewhere"}, None, [], "data-file.external-paths"),
        ({"file.format": "lance"}, None, [], "file.format"),
        *ODD,
        # Its path depends on the zone of the writer.
        ({}, pa.timestamp("us", tz="UTC"), ["odd"], "odd TIMESTAMP"),
    ],
)
def test_what_cannot_be_written_is_named(
    tmp_path: Path, options: dict[str, str], odd: pa.DataType | None, partitions: list[str], words: str
) -> None:
    schema = pa.schema([("id", pa.int64()), *([("odd", odd)] if odd is not None else [])])
    refused_by_both(table(tmp_path, options, schema, partition_keys=partitions), *words.split())


def test_a_changelog_producer_is_refused(tmp_path: Path) -> None:
    """pypaimon does not make such an append table; another product may have."""
    location = table(tmp_path, {"a": "b"})
    schema = Path(location) / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace('"a": "b"', '"changelog-producer": "input"'))
    refused_by_both(location, "changelog-producer = input")


def test_a_primary_key_with_dynamic_buckets_is_refused(tmp_path: Path) -> None:
    """Others are in `test_keys`."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    refused_by_both(table(tmp_path, {"bucket": "-1"}, schema, primary_keys=["id"]), "primary key")


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
    refused_by_both("oss://host/db.db/t", "put-if-absent")
    with pytest.raises(TableRefused, match="commit user"):
        ADAPTER.open_committer(ADAPTER.parse_table(table(tmp_path, {})), "")


def test_a_path_and_its_uri_are_the_same_table(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path / "with space and %")
    for location in (lake.location, lake.root.as_uri(), lake.location + "/"):
        assert ADAPTER.open_writer(ADAPTER.parse_table(location), None).location == lake.root.as_uri()
    with_commits(lake, 1)
    assert lake.ids() == [1]


def test_a_schema_that_the_table_lacks_is_refused(lake: PaimonLake) -> None:
    event = lake.event([1]).model_copy(update={"schema_id": 9})
    Stream(lake).refuses(event, "schema 9")


@pytest.mark.parametrize("name", ["metastore", "uri", "warehouse", "token", "token.provider", "dlf.region"])
def test_a_catalog_is_refused_by_name(tmp_path: Path, name: str) -> None:
    """test_rest_catalog.py has the reasons."""
    with pytest.raises(TableRefused, match="REST catalog are not supported") as refused:
        ADAPTER.parse_table(table(tmp_path, {}), {name: "hidden-word"})
    assert f"the option {name} " in str(refused.value)
    assert "hidden-word" not in str(refused.value)
