"""Tables with features that are not supported are refused at the opening, by the feature's name."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FixedType, LongType, NestedField, TimestampType

from sluicegate.lakes.port import CommitRequest, LakeUnavailable, TableRefused
from tests.contracts.lakes.harness import USER
from tests.contracts.lakes.iceberg_lake import IcebergLake, local
from tests.lakes.outcomes import is_refused

pytestmark = pytest.mark.slow

Fields = dict[str, Any]


def _typed(kind: Any) -> Callable[[Fields], None]:
    def change(fields: Fields) -> None:
        fields["schemas"][0]["fields"].append({"id": 9, "name": "odd", "required": False, "type": kind})

    return change


def _property(key: str, value: str) -> Callable[[Fields], None]:
    return lambda fields: fields["properties"].update({key: value})


def _default(fields: Fields) -> None:
    fields["schemas"][0]["fields"][0]["initial-default"] = 5


CHANGES: dict[str, tuple[Callable[[Fields], Any], str]] = {
    "v1": (lambda fields: fields.update({"format-version": 1}), "format version 1"),
    "v4": (lambda fields: fields.update({"format-version": 4}), "format version 4"),
    "wap": (_property("write.wap.enabled", "true"), r"write\.wap\.enabled"),
    "encryption": (_property("encryption.key-id", "k"), r"encryption\.key-id"),
    "keys": (lambda fields: fields.update({"encryption-keys": [{"key-id": "a"}]}), "encryption keys"),
    "upserts": (_property("write.upsert.enabled", "true"), r"write\.upsert\.enabled"),
    "location": (lambda fields: fields.update({"location": f"{fields['location']}#1"}), "'#' or '\\?'"),
    "data path": (_property("write.data.path", "/lake/what?"), "'#' or '\\?'"),
    "orc": (_property("write.format.default", "orc"), r"write\.format\.default"),
    "identifiers": (
        lambda fields: fields["schemas"][0].update({"identifier-field-ids": [1]}),
        "identifier fields",
    ),
    "default": (_default, "default value"),
    "geometry": (_typed("geometry(srid:4326)"), "geometry"),
    "variant": (_typed("variant"), "variant"),
    "unknown": (_typed("unknown"), "unknown"),
    "nested": (
        _typed({"type": "list", "element-id": 10, "element": "variant", "element-required": False}),
        "variant",
    ),
    "deep": (
        _typed(
            {
                "type": "struct",
                "fields": [{"id": 11, "name": "x", "required": False, "type": "geography"}],
            }
        ),
        "geography",
    ),
    "transform": (
        lambda fields: fields["partition-specs"][0]["fields"].append(
            {"name": "z", "transform": "zorder(3)", "source-id": 1, "field-id": 1000}
        ),
        "transform",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_feature_without_support_is_refused_by_its_name(lake: IcebergLake, name: str) -> None:
    change, words = CHANGES[name]
    lake.edit(change)
    table = lake.adapter.parse_table(lake.location)
    with pytest.raises(TableRefused, match=words):
        lake.adapter.open_committer(table, USER)
    with pytest.raises(TableRefused, match=words):
        lake.adapter.open_writer(table, None)


def test_a_partition_that_products_write_in_two_ways_is_refused(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "code", FixedType(4)))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "by_code"))
    lake = IcebergLake(tmp_path, schema=schema, spec=spec)
    table = lake.adapter.parse_table(lake.location)
    for opened in (
        partial(lake.adapter.open_committer, table, USER),
        partial(lake.adapter.open_writer, table, None),
    ):
        with pytest.raises(TableRefused, match=r"by_code has the type fixed\[4\]"):
            opened()


@pytest.mark.parametrize("kind", ["uuid", "timestamp_ns", "timestamptz_ns"])
def test_a_type_that_only_the_writer_lacks_is_refused_by_the_writer(tmp_path: Path, kind: str) -> None:
    lake = IcebergLake(tmp_path, 3)
    lake.edit(_typed(kind))
    table = lake.adapter.parse_table(lake.location)
    lake.adapter.open_committer(table, USER).close()
    with pytest.raises(TableRefused, match="odd"):
        lake.adapter.open_writer(table, None)


def test_a_table_that_is_not_there_is_refused_with_the_way_out(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    with pytest.raises(TableRefused, match=r"no table db\.others"):
        lake.adapter.open_committer(lake.adapter.parse_table(str(lake.root.parent / "others")), USER)
    options = {"identifier": "db.numbers"}
    with pytest.raises(TableRefused, match="keeps its data in"):
        lake.adapter.open_committer(lake.adapter.parse_table(str(tmp_path), options), USER)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"type": "hive"}, "catalog type hive"),
        ({"uri": ""}, "option uri"),
        ({"uri": "nosuch://x"}, "uri of the catalog"),
        ({"identifier": "numbers"}, "identifier"),
        ({"upsert-mode-enabled": "true"}, "upsert-mode-enabled"),
        ({"type": "rest", "equality-field-columns": "id"}, "equality-field-columns"),
        ({"warehouse": "/w"}, r"option warehouse .*transactions\. Correct or remove it"),
        ({"url": "sqlite://"}, r"option url .*\. Did you mean uri\? Correct or remove it"),
        ({"branch": "audit"}, "no branch audit"),
        ({"catalog": "other"}, "the catalog other has no table"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    lake: IcebergLake, options: dict[str, str], words: str
) -> None:
    with pytest.raises(TableRefused, match=words):
        lake.adapter.open_committer(lake.adapter.parse_table(lake.location, options), USER)


@pytest.mark.parametrize("user", ["", "a@b"])
def test_a_commit_user_that_cannot_be_told_apart_is_refused(lake: IcebergLake, user: str) -> None:
    with pytest.raises(TableRefused, match="commit user"):
        lake.adapter.open_committer(lake.adapter.parse_table(lake.location), user)


def test_metadata_that_cannot_be_read_is_unavailable(lake: IcebergLake) -> None:
    committer = lake.committer()
    table = committer.inspect().identity
    path = local(lake.metadata.location)
    content = path.read_bytes()
    for bad in (b"", b"{}", b"[]", b"\x1f\x8b\x00", content[:100]):
        path.write_bytes(bad)
        with pytest.raises(LakeUnavailable, match="no metadata"):
            lake.committer().ask(1, "d", table, None)
    path.unlink()
    with pytest.raises(LakeUnavailable, match="is not there"):
        lake.committer().ask(1, "d", table, None)


def test_a_table_that_becomes_unfit_refuses_the_commit(tmp_path: Path) -> None:
    lake = IcebergLake(
        tmp_path, schema=Schema(NestedField(1, "id", LongType()), NestedField(2, "t", TimestampType()))
    )
    committer = lake.committer()
    state = committer.inspect()
    lake.edit(_property("write.wap.enabled", "true"))
    outcome = committer.publish(CommitRequest(1, "d", state.head, None, []))
    assert is_refused(outcome)
    assert "write.wap.enabled" in outcome.reason
