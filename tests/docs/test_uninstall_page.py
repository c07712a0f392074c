"""What the product leaves is on the page about its removal, under the name that the code gives it."""

import os
import re
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema

from sluicegate.coordinator.service.members import default_folder
from sluicegate.coordinator.settings.model import KafkaSettings, RedisSettings
from sluicegate.events.models import SnapshotRef
from sluicegate.kafka.topics import TopicNames, TopicRole
from sluicegate.lakes.delta.versions import Mark, transactions
from sluicegate.lakes.iceberg import ancestry
from sluicegate.lakes.iceberg.metadata import MAIN
from sluicegate.lakes.paimon import snapshots
from sluicegate.writer_hooks.options import default_spool
from sluicegate.writer_hooks.spark.checkpoint import FOLDER

PAGE: Final = (Path(__file__).parents[2] / "docs" / "uninstall.md").read_text(encoding="utf-8")
USER: Final = "sluicegate-flights"


def row(beginning: str) -> str:
    """Return the rows of a table on the page, from the one that begins so to the next name."""
    found = re.search(rf"^\| {re.escape(beginning)}.*(?:\n\| \|.*)*", PAGE, re.MULTILINE)
    assert found is not None, beginning
    return found[0]


def test_the_topics_and_the_group_are_deleted_by_their_names() -> None:
    assert f"for topic in {' '.join(TopicRole)}; do" in PAGE
    prefix = TopicNames().prefix
    assert f'--delete --topic "{prefix}.$topic"' in PAGE
    assert {f"{prefix}.{role}" for role in TopicRole} == {
        *(TopicNames().events, TopicNames().commits, TopicNames().state, TopicNames().dead_letters)
    }
    assert f"--delete --group {KafkaSettings.model_fields['group_id'].default}\n" in PAGE


def test_the_keys_of_redis_are_deleted_by_their_names() -> None:
    prefix = RedisSettings.model_fields["key_prefix"].default
    assert f"redis-cli DEL {prefix}:stream:flights {prefix}:streams" in PAGE


def test_what_a_paimon_table_has_is_named() -> None:
    names = {snapshots.DECISION, snapshots.DIGEST, snapshots.ACCOUNT}
    assert names <= set(re.findall(r"`([^`]+)`", row("Paimon")))


def test_what_an_iceberg_table_has_is_named() -> None:
    properties = {
        ancestry.marker_property(USER, MAIN),
        ancestry.account_property(USER, MAIN),
        ancestry.vector_property(USER, MAIN),
        ancestry.watermark_property(MAIN),
    }
    summary = {ancestry.USER, ancestry.DECISION, ancestry.DIGEST, ancestry.WATERMARK}
    assert properties | summary <= set(re.findall(r"`([^`]+)`", row("Iceberg")))


def test_what_a_delta_table_has_is_named() -> None:
    mark = Mark(decision=1, digest="ab" * 32, version=SnapshotRef(1, "1").id, time_ms=0)
    names = [str(each["txn"]["appId"]) for each in transactions(USER, mark, "table", 0)]  # type: ignore[index]
    first = {name for name in names if not re.search(r"\.mark\.[1-9]", name)}
    assert first <= set(re.findall(r"`([^`]+)`", row("Delta")))


def test_the_folders_of_machines_are_named() -> None:
    user = str(os.geteuid())
    assert row(f"the folder `{FOLDER}`")
    assert row(f"`{Path(default_spool()).name.removesuffix(user)}UID`")
    assert row(f"`{default_folder().name.removesuffix(user)}UID`")


def test_only_the_properties_of_this_product_are_removed(tmp_path: Path) -> None:
    found: dict[str, Any] = {}
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(block, found)  # noqa: S102
    kept = {"write.parquet.compression-codec": "zstd", "owner": "sluicegate.team"}
    ours = {ancestry.marker_property(USER, MAIN): "1", ancestry.watermark_property("b1"): "2"}
    catalog = SqlCatalog("default", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    try:
        catalog.create_namespace("db")
        table = catalog.create_table("db.flights", Schema(), properties={**kept, **ours})
        found["remove_marks"](table)
        assert catalog.load_table("db.flights").properties.items() >= kept.items()
        assert not ours.keys() & catalog.load_table("db.flights").properties.keys()
    finally:
        catalog.close()
