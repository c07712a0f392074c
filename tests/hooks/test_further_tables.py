"""Further tables of a stream, from the options of a writer to the events of its files."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from sluicegate.events.codec import Flaw, read_attributes
from sluicegate.events.encoding import Message
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import CheckpointCompleted, RegionRegistered
from sluicegate.lakes import adapter
from sluicegate.lakes.capabilities import OpensGroups
from sluicegate.lakes.port import TableRefused
from sluicegate.writer_hooks import BadOption, ForeachBatch, OpenCheckpoint, WriterResult
from sluicegate.writer_hooks import publisher as publisher_module
from sluicegate.writer_hooks.driver_state import completion
from sluicegate.writer_hooks.options import SinkOptions, targets_of, wrong_values
from sluicegate.writer_hooks.publisher import encoded, publish_completion
from sluicegate.writer_hooks.region import Event
from sluicegate.writer_hooks.spark.preflight import table_troubles
from sluicegate.writer_hooks.spark.regions.query import chosen_sink
from sluicegate.writer_hooks.upload.spool import existing_spool, read_entry
from tests.hooks.options import OPTIONS
from tests.integration.shops import FURTHER, Shop, items, orders


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop.make(tmp_path)


def parsed(shop: Shop, **more: str) -> SinkOptions:
    return SinkOptions.parse(shop.options(**more), located=False)


def checkpoint(shop: Shop, **more: str) -> OpenCheckpoint:
    """A checkpoint whose driver publishes the events."""
    return OpenCheckpoint(shop.options(**more), "q1", 7, held=True)


def envelopes(*results: WriterResult) -> list[Envelope]:
    found = [read_attributes(message.headers) for result in results for message in result.held]
    return [each for each in found if not isinstance(each, Flaw)]


# --- options ------------------------------------------------------------------------------------------


def test_the_options_name_the_tables_and_the_registration_too(shop: Shop) -> None:
    options = parsed(shop)
    assert (dict(options.tables), options.only) == (FURTHER, "")
    assert options.table_options == (("uri", shop.uri),)
    body = options.region.registration("q1", None).body
    assert isinstance(body, RegionRegistered)
    assert (body.table, body.tables) == (f"file://{shop.location()}", ("items", "Refunds"))
    assert [each.further for each in options.targets()] == [None, *FURTHER.items()]
    assert pickle.loads(pickle.dumps(options)) == options, "it travels to the executors"  # noqa: S301


def test_a_sink_of_one_table_names_that_alone(shop: Shop) -> None:
    """Spark gives the names of options in lower case, but not their values."""
    given = {name.lower(): value for name, value in shop.options(**{"table.name": "Refunds"}).items()}
    options = SinkOptions.parse(given, located=False)
    assert (options.tables, options.only) == ((("Refunds", "shop.refunds"),), "Refunds")
    assert options.region.tables == ("Refunds",)
    assert options.attempt("q1", 0, "p00000").table == "Refunds"
    assert options.table_options == (("uri", shop.uri),)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tables.a/b": "shop.items"}, "the option tables.a/b must consist of letters"),
        ({"tables.items": " "}, "the option tables.items is missing: the name of the table in the catalog"),
        (
            {"table.name": "itms"},
            "the option table.name is 'itms', and no option tables.itms gives the name",
        ),
        (
            {f"tables.t{each}": f"shop.t{each}" for each in range(500)},
            "name 502 tables, and a stream has at most 499 beside its own",
        ),
    ],
)
def test_wrong_options_are_named(shop: Shop, given: dict[str, str], told: str) -> None:
    (wrong,) = wrong_values(shop.options(**given), located=False)
    assert told in wrong


def test_a_format_whose_tables_have_no_common_catalog_is_refused() -> None:
    (wrong,) = wrong_values(OPTIONS | {"tables.items": "shop.items"}, located=False)
    assert "the format paimon cannot change several tables in one step" in wrong


def test_columns_that_options_name_are_those_of_one_table(shop: Shop) -> None:
    given = {"event.time.column": "at", "file.sort": "at", "file.compression": "snappy"}
    own, further, _ = parsed(shop, **given).targets()
    assert (own.event_time_column, own.files and own.files.sort) != (None, None)
    assert (further.event_time_column, further.files and further.files.sort) == (None, None)
    assert further.files is not None
    assert further.files.compression is not None
    (only,) = parsed(
        shop, **{"table.name": "items", "event.time.column": "text", "file.sort": "text"}
    ).targets()
    assert (only.event_time_column, only.files and bool(only.files.sort)) == ("text", True)


def test_a_further_table_is_found_by_its_name_in_the_catalog(shop: Shop) -> None:
    iceberg = adapter("iceberg")
    assert isinstance(iceberg, OpensGroups)
    anchor = parsed(shop, **{"table.catalog": "default"}).table_ref()
    found = iceberg.further(anchor, "shop.items")
    assert found.location == f"file://{shop.location('items')}"
    assert found.options == {**anchor.options, "identifier": "shop.items"}
    with pytest.raises(TableRefused, match=r"has no table shop\.itms"):
        iceberg.further(anchor, "shop.itms")
    with pytest.raises(TableRefused, match=r"must be NAMESPACE\.TABLE"):
        iceberg.further(anchor, "items")


def test_a_table_that_cannot_be_written_is_found_before_the_start(shop: Shop) -> None:
    options = shop.options(**{"event.time.column": "at", "tables.lost": "shop.lost"})
    (trouble,) = table_troubles(*targets_of({**options, "stream": "a/b"}))
    assert trouble.startswith(
        "its table lost cannot be written from the driver's machine: the option tables.lost"
    )
    assert list(table_troubles(*targets_of(shop.options(**{"table.name": "items"})))) == []


# --- files and events ---------------------------------------------------------------------------------


def test_each_table_has_an_event_and_an_attempt_of_its_own(shop: Shop) -> None:
    opened = OpenCheckpoint.from_json(checkpoint(shop).to_json())
    own, further = opened.write("w0", orders(1)), opened.write("w0", items([10]), table="items")
    (one,), (other,) = envelopes(own), envelopes(further)
    assert (one.table, one.writer) == ("", "w0")
    assert (other.table, other.writer) == ("items", "items.w0")
    bodies = [json.loads(each.held[0].value) for each in (own, further)]
    for name, body in zip(("", "items"), bodies, strict=True):
        assert body["location"] == f"file://{shop.location(name)}"
        (file,) = body["files"]
        assert (Path(shop.location(name)) / file["path"]).is_file()
    assert WriterResult.from_json(further.to_json()) == further
    body = completion(
        ("q1", 7), [own, further], predecessor=None, source_offsets="{}", watermark=None, listeners={}
    )
    assert body.events == (one.id, other.id)


def test_an_unknown_table_is_refused_before_anything_is_written(shop: Shop) -> None:
    with pytest.raises(
        BadOption,
        match=r"known: items, Refunds\. Rows of .* Correct the name, or add the option tables\.itms",
    ):
        checkpoint(shop).write("w0", items([10]), table="itms")
    with pytest.raises(BadOption, match="name no table 'items' of the stream shop; known: Refunds"):
        checkpoint(shop, **{"table.name": "Refunds"}).write("w0", items([10]), table="items")
    with pytest.raises(TableRefused, match=r"the option tables\.lost cannot be used"):
        checkpoint(shop, **{"tables.lost": "shop.lost"}).write("w0", items([10]), table="lost")
    with pytest.raises(BadOption, match="the option writer must consist of"):
        checkpoint(shop, **{f"tables.{'x' * 199}": "shop.items"}).write("w0", items([10]), table="x" * 199)
    assert not list(shop.root.rglob("*.parquet"))


def test_a_result_with_an_event_of_another_table_is_refused(shop: Shop) -> None:
    text = json.loads(checkpoint(shop).write("w0", items([10]), table="items").to_json())
    text["attempt"]["table"] = "Refunds"
    with pytest.raises(BadOption, match="an event is one of another attempt"):
        WriterResult.from_json(json.dumps(text))


class Published:
    """Stand-in for the publisher: the messages of each call."""

    def __init__(self) -> None:
        self.calls: list[list[Message]] = []

    def publish(self, _topic: str, events: list[Event], *_: Any, first: tuple[Message, ...] = ()) -> None:
        self.calls.append([*first, *encoded(events)])


@pytest.mark.parametrize(
    ("tables", "sent"),
    [
        ((None,), [(EventType.CHECKPOINT_COMPLETED, "")]),
        (("items",), [(EventType.CHECKPOINT_COMPLETED, "items")]),
        (
            (None, "items"),
            [
                (EventType.FILES_WRITTEN, ""),
                (EventType.FILES_WRITTEN, "items"),
                (EventType.CHECKPOINT_COMPLETED, ""),
            ],
        ),
    ],
)
def test_a_completion_carries_the_files_of_one_table_alone(
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    tables: tuple[str | None, ...],
    sent: list[tuple[EventType, str]],
) -> None:
    published = Published()
    monkeypatch.setattr(publisher_module, "shared_publisher", lambda _: published)
    options, opened = parsed(shop), checkpoint(shop)
    rows = {None: orders(1), "items": items([10])}
    results = [opened.write("w0", rows[table], table) for table in tables]
    body: CheckpointCompleted = completion(
        ("q1", 7), results, predecessor=None, source_offsets="{}", watermark=None, listeners={}
    )
    event = options.region.event(EventType.CHECKPOINT_COMPLETED, "q1", body, checkpoint=7)
    held = [message for result in results for message in result.held]
    publish_completion(options.region, [event], held, options.message_max_bytes)
    (messages,) = published.calls
    found = [read_attributes(each.headers) for each in messages]
    assert [(each.type, each.table) for each in found if not isinstance(each, Flaw)] == sent


def test_the_spool_keeps_the_table_of_each_event(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.writer_hooks.upload.delivery.ensure_uploader", lambda _: None)
    folder = str(shop.root / "spool")
    opened = checkpoint(shop, upload="async", **{"upload.spool": folder})
    for rows, table in ((orders(1), None), (items([10]), "items")):
        assert opened.write("w0", rows, table).held == ()
    spool = existing_spool(folder)
    entries = [read_entry(spool, name) for name in spool.names()]
    found = [(each.about.table, each.about.writer, each.storage) for each in entries if each is not None]
    assert found == [
        ("", "w0", f"file://{shop.location()}"),
        ("items", "items.w0", f"file://{shop.location('items')}"),
    ]


# --- Spark --------------------------------------------------------------------------------------------


def test_split_needs_the_options_of_further_tables(shop: Shop) -> None:
    location = {"checkpointLocation": str(shop.root / "checkpoint")}
    split = lambda frame, _: {"": frame}  # noqa: E731
    ForeachBatch(shop.options(**location), split)
    with pytest.raises(BadOption, match=r"leave the option table.name out"):
        ForeachBatch(shop.options(**location, **{"table.name": "items"}), split)
    alone = {
        name: value for name, value in shop.options(**location).items() if not name.startswith("tables.")
    }
    with pytest.raises(BadOption, match=r"all tables of the options tables.\*: add an option for each"):
        ForeachBatch(alone, split)
    assert chosen_sink(None, split) == "foreach-batch"
    with pytest.raises(BadOption, match="the data source writes one table"):
        chosen_sink("data-source", split)
