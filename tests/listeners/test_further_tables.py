"""Listeners of a stream of several tables: what one of a further table gets, and tags of a whole vector."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from sluicegate.coordinator.listeners.facts import stream_of
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.models import CommitSummary, SnapshotRef, TableSummary, TableVersion
from sluicegate.events.notifications import Committed, NotificationType, SavepointTaken
from sluicegate.listeners.openlineage.events import run_events
from sluicegate.listeners.port import Done, Outcome, Services, as_of_table
from sluicegate.listeners.tags import NO_SNAPSHOT, TYPE, MakeTag, TagsListener, TagsOptions
from tests.listeners.mark_done.policies import at

ANCHOR, OLD, NEW = (SnapshotRef(number, f"s{number}") for number in (30, 21, 31))
ITEMS = "file:/lake/shop/items"
VECTOR = {
    "items": TableVersion(decision=3, snapshot=NEW),
    "fees": TableVersion(decision=2, snapshot=OLD),
    "refunds": TableVersion(),
    "old": TableVersion(decision=1),
}
SUMMARY = CommitSummary(
    table="file:/lake/shop/orders",
    files=2,
    rows=20,
    bytes=200,
    partitions=1,
    touched=({"dt": "a"},),
    tables={
        "items": TableSummary(
            table=ITEMS, files=5, rows=50, bytes=500, partitions=2, touched=({"dt": "b"}, {"dt": "c"})
        )
    },
    moved=("r1",),
    previous=SnapshotRef(29, "s29"),
    visible=7,
)
COMMITTED = Committed(
    decision=3, cut={}, snapshot=ANCHOR, watermark=40, files=7, tables=VECTOR, summary=SUMMARY
)


def outcome(body: Committed | SavepointTaken = COMMITTED) -> Outcome:
    kind = NotificationType.COMMITTED if isinstance(body, Committed) else NotificationType.SAVEPOINT_TAKEN
    return Outcome("id", kind, "shop", 1_000, body)


def seen(name: str, body: Committed | SavepointTaken = COMMITTED) -> Any:
    return as_of_table(outcome(body), name, f"file:/lake/shop/{name}").body


def test_a_table_gets_its_own_files_and_the_watermark_of_the_stream() -> None:
    found = seen("items")
    assert (found.files, found.snapshot, found.watermark, found.tables) == (5, NEW, 40, {})
    summary = found.summary
    assert (summary.table, summary.files, summary.rows, summary.bytes) == (ITEMS, 5, 50, 500)
    assert summary.touched == ({"dt": "b"}, {"dt": "c"})
    assert (summary.moved, summary.visible, summary.tables) == (("r1",), 7, {})
    assert summary.previous is None, "the log knows the heads of the anchor alone"


def test_a_table_that_a_commit_does_not_touch_has_no_files_and_the_snapshot_that_it_had() -> None:
    found = seen("fees")
    assert (found.files, found.snapshot, found.watermark) == (0, OLD, 40)
    assert (found.summary.rows, found.summary.touched) == (0, ())
    assert found.summary.table == "file:/lake/shop/fees"
    assert seen("refunds").snapshot is None


def test_a_table_that_the_vector_lacks_has_nothing() -> None:
    found = seen("new")
    assert (found.files, found.snapshot) == (0, None)


@pytest.mark.parametrize("summary", [None, SUMMARY.model_copy(update={"tables": {}})])
def test_what_nobody_has_seen_of_a_touched_table_is_unknown(summary: CommitSummary | None) -> None:
    """A repair wrote the outcome: a mark must not count the commit as one that touches no partition."""
    found = seen("items", COMMITTED.model_copy(update={"summary": summary}))
    assert (found.files, found.summary) == (7, None)


def test_a_savepoint_has_the_snapshot_of_the_vector() -> None:
    body = SavepointTaken(
        name="s", drained=True, decision=3, cut={}, snapshot=ANCHOR, tables=VECTOR, watermark=40
    )
    assert (seen("items", body).snapshot, seen("items", body).tables) == (NEW, {})


# --- tags -----------------------------------------------------------------------------------------


def settings(tables: Mapping[str, str], **listeners: dict[str, str]) -> Settings:
    stream: Any = {
        "format": "iceberg",
        "table": "/lake/shop/orders",
        "options": {"uri": "sqlite:////lake/catalog.db"},
        "tables": tables,
        "listeners": listeners,
    }
    kafka: Any = {"bootstrap_servers": "k:9092"}
    return Settings(kafka=kafka, streams={"shop": stream})


def tags(**tables: str) -> TagsListener:
    nothing: Any = None
    services = Services(http=nothing, publish=nothing, in_thread=asyncio.to_thread)
    options = TagsOptions(period="daily", savepoints=True)
    return TYPE.open(options, stream_of("shop", settings(tables).streams["shop"]), services)


def made(listener: TagsListener, body: Committed | SavepointTaken) -> list[MakeTag]:
    actions = listener.apply(outcome(body), listener.initial()).actions
    assert len({each.key for each in actions}) == len(actions)
    return [each for each in actions if isinstance(each, MakeTag)]


def test_all_tables_of_a_vector_get_one_name() -> None:
    body = COMMITTED.model_copy(update={"watermark": at("2013-01-02") + 1})
    found = made(tags(items="shop.items", fees="shop.fees"), body)
    assert {each.name for each in found} == {"2013-01-01"}
    assert {each.table: each.snapshot for each in found} == {
        "": ANCHOR,
        "fees": OLD,
        "items": NEW,
        "old": NO_SNAPSHOT,
    }, "no commit has touched the refunds"
    taken = SavepointTaken(
        name="s", drained=False, decision=3, cut={}, snapshot=ANCHOR, tables=VECTOR, watermark=None
    )
    assert {each.table for each in made(tags(), taken)} == {"", "fees", "items", "old"}


async def test_a_table_whose_snapshot_is_unknown_or_that_is_left_out_holds_back_no_tag() -> None:
    listener = tags(old="shop.old")
    body = COMMITTED.model_copy(update={"watermark": at("2013-01-02") + 1})
    skipped = [each for each in made(listener, body) if each.table]
    assert [await listener.run(each) for each in skipped] == [Done()] * 3


# --- lineage --------------------------------------------------------------------------------------


def test_a_run_has_each_touched_table_as_an_output() -> None:
    facts = stream_of("shop", settings({"items": "shop.items"}).streams["shop"])
    (_, (_, event)) = run_events("ns", facts, outcome())
    outputs = {each["name"]: each for each in json.loads(event)["outputs"]}
    assert outputs.keys() == {"/lake/shop/orders", "/lake/shop/items"}
    counts = {name: each["outputFacets"]["outputStatistics"]["fileCount"] for name, each in outputs.items()}
    assert counts == {"/lake/shop/orders": 2, "/lake/shop/items": 5}
    versions = {name: each["facets"]["version"]["datasetVersion"] for name, each in outputs.items()}
    assert versions == {"/lake/shop/orders": "30", "/lake/shop/items": "31"}


def test_a_listener_names_a_table_of_the_settings() -> None:
    own = {"type": "tags", "table": "itms", "period": "daily"}
    with pytest.raises(ValueError, match=r"has no further table 'itms'\. It has: items"):
        settings({"items": "shop.items"}, tags=own)
    own["table"] = "items"
    found = stream_of("shop", settings({"items": "shop.items"}, tags=own).streams["shop"], "items")
    assert (found.table.options["identifier"], found.tables) == ("shop.items", {})
