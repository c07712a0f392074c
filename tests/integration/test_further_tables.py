"""Each way in to several tables of one stream, with a real coordinator: one checkpoint is one decision."""

import asyncio
import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from sluicegate.events.models import CheckpointCompleted, FilesWritten, RegionRegistered
from sluicegate.events.notifications import PartitionDone
from sluicegate.writer_hooks import (
    BadOption,
    ForeachBatch,
    Job,
    OpenCheckpoint,
    RegistrationRefused,
    WriterResult,
)
from sluicegate.writer_hooks.spark.regions import RegionRunner, Source, by_column
from sluicegate.writer_hooks.upload.spool import Spool
from tests.integration.coordinator import running
from tests.integration.coroutines import AsyncRegionDriver
from tests.integration.job import make_topics, read_events, read_notifications
from tests.integration.shops import ITEMS, Shop, items, orders
from tests.integration.sparkjob import SparkThread
from tests.integration.test_regions import started
from tests.integration.uploading import spool
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

__all__ = ["spool"]


@pytest.mark.seam
async def test_plain_python_writes_two_tables_in_one_commit(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    shop, names = Shop.make(tmp_path), await make_topics(kafka_bootstrap, unique)
    options = shop.options(kafka_bootstrap, unique)
    async with running(shop.settings(kafka_bootstrap, unique)), AsyncRegionDriver(options) as driver:
        checkpoint = await driver.begin()
        with pytest.raises(BadOption, match="name no table 'itms' of the stream shop; known: items, Refunds"):
            checkpoint.write("w0", items([9]), table="itms")
        # As in another process.
        sent = OpenCheckpoint.from_json(checkpoint.to_json())
        results = [sent.write("w0", orders(1)), sent.write("w0", items([10, 11]), table="items")]
        results = [WriterResult.from_json(each.to_json()) for each in results]
        await driver.complete(checkpoint, results, source_offsets={"at": 1})
        await driver.await_commit(checkpoint)
        assert (shop.ids(), shop.ids("items"), shop.ids("Refunds")) == ([1], [10, 11], [])
        assert (shop.decisions(), shop.decisions("items")) == (["1"], ["1"])
        # A checkpoint of a further table alone is carried by its completion.
        following = await driver.begin()
        alone = [following.write("w0", items([20]), table="Refunds")]
        await driver.complete(following, alone, source_offsets={"at": 2})
        await driver.await_commit(following)
        assert (shop.ids(), shop.ids("items"), shop.ids("Refunds")) == ([1], [10, 11], [20])
        assert (shop.decisions(), shop.decisions("items"), shop.decisions("Refunds")) == (
            ["1", "2"],
            ["1"],
            ["2"],
        )
        vector = shop.vector()
    assert vector["decision"] == 2
    found = {name: (decision, shop.ids_at(name, at)) for name, (decision, at) in vector["tables"].items()}
    assert found == {"items": (1, [10, 11]), "Refunds": (2, [20])}
    log = await read_events(kafka_bootstrap, names.events)
    asked = [each.body for each in log if isinstance(each.body, RegionRegistered)]
    assert {each.tables for each in asked} == {("items", "Refunds")}
    assert {each.table for each in asked} == {f"file://{shop.location()}"}
    files = {each.envelope.table: each.body for each in log if isinstance(each.body, FilesWritten)}
    assert {name: each.location for name, each in files.items()} == {
        name: f"file://{shop.location(name)}" for name in ("", "items")
    }
    first, second = [each.envelope for each in log if isinstance(each.body, CheckpointCompleted)]
    assert (first.table, second.table, second.writer) == ("", "Refunds", "Refunds.w0")


@pytest.mark.seam
async def test_a_job_writes_two_tables_and_an_unknown_table_refuses_it(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    shop = Shop.make(tmp_path)
    await make_topics(kafka_bootstrap, unique)
    options = shop.options(kafka_bootstrap, unique)

    def run(job_id: str, given: dict[str, str]) -> None:
        with Job(given, job_id) as job:
            assert job.start()
            job.finish([job.write("w0", orders(1, 2)), job.write("w0", items([10]), table="items")])

    async with running(shop.settings(kafka_bootstrap, unique, {"items": "shop.items"})):
        with pytest.raises(RegistrationRefused, match="Refunds"):
            await asyncio.to_thread(lambda: run("monday", options))
        known = {name: value for name, value in options.items() if name != "tables.Refunds"}
        await asyncio.to_thread(lambda: run("monday", known))
        assert (shop.ids(), shop.ids("items")) == ([1, 2], [10])
        assert (shop.decisions(), shop.decisions("items")) == (["1"], ["1"])


@pytest.mark.seam
async def test_an_uploader_keeps_the_table_of_each_event(
    kafka_bootstrap: str, unique: str, tmp_path: Path, spool: Spool
) -> None:
    shop = Shop.make(tmp_path)
    await make_topics(kafka_bootstrap, unique)
    uploads = {"upload": "async", "upload.spool": spool.folder}
    options = shop.options(kafka_bootstrap, unique, **uploads)
    async with running(shop.settings(kafka_bootstrap, unique)), AsyncRegionDriver(options) as driver:
        checkpoint = await driver.begin()
        results = [checkpoint.write("w0", orders(1)), checkpoint.write("w0", items([10]), table="items")]
        assert [each.held for each in results] == [(), ()]
        await driver.complete(checkpoint, results, source_offsets={"at": 1})
        await driver.await_commit(checkpoint)
    assert (shop.ids(), shop.ids("items"), shop.ids("Refunds")) == ([1], [10], [])
    assert (shop.decisions(), shop.decisions("items")) == (["1"], ["1"])


def parts(frame: Any, batch: int) -> dict[str, Any]:
    """Divide numbers: the anchor gets all of them, and the first batch has no refunds."""
    rows = frame.selectExpr("id + 10 AS id", "'x' AS text")
    return {"": frame, "items": rows, **({"Refunds": rows.where("id > 11")} if batch else {})}


class Query:
    """A query of Spark that reads numbers, a file for each batch."""

    def __init__(self, spark: SparkThread, root: Path) -> None:
        self._spark = spark
        self._root = root
        self.source, self.checkpoint = root / "in", root / "checkpoint"
        self.source.mkdir(parents=True)

    def feed(self, *ids: int, **more: object) -> None:
        draft, row = self._root / "draft", {"at": "2026-01-01T00:00:00", **more}
        draft.write_text("\n".join(json.dumps({"id": each, **row}) for each in ids))
        os.utime(draft, (ids[0], ids[0]))  # Spark reads the oldest file first
        draft.rename(self.source / f"{ids[0]:06d}.json")

    async def run(self, start: Any) -> None:
        """Run the query that `start` makes of its rows to its end."""

        def work() -> None:
            reader = self._spark.session.readStream.schema("id long, at timestamp_ntz")
            rows = reader.option("maxFilesPerTrigger", 1).json(str(self.source))
            writer = start(rows).option("checkpointLocation", str(self.checkpoint))
            writer.trigger(availableNow=True).start().awaitTermination()

        await self._spark.call(work)


@pytest.mark.seam
@pytest.mark.spark
async def test_a_batch_of_spark_is_one_decision_for_all_tables(
    kafka_bootstrap: str, unique: str, tmp_path: Path, spark: SparkThread
) -> None:
    shop, query = Shop.make(tmp_path), Query(spark, tmp_path / "query")
    names = await make_topics(kafka_bootstrap, unique)
    options = shop.options(kafka_bootstrap, unique, checkpointLocation=str(query.checkpoint))
    query.feed(1, 2)
    query.feed(3)
    async with running(shop.settings(kafka_bootstrap, unique)):
        await query.run(lambda rows: rows.writeStream.foreachBatch(ForeachBatch(options, parts)))
        await until(shop.ids, lambda found: found == [1, 2, 3])
        # All of them are visible together.
        assert (shop.ids("items"), shop.ids("Refunds")) == ([11, 12, 13], [13])
    log = await read_events(kafka_bootstrap, names.events)
    completed = [each for each in log if isinstance(each.body, CheckpointCompleted)]
    assert [each.envelope.checkpoint for each in completed] == [0, 1]
    writers = {
        (each.envelope.table, each.envelope.writer) for each in log if isinstance(each.body, FilesWritten)
    }
    assert writers == {("", "p00000"), ("items", "items.p00000"), ("Refunds", "Refunds.p00000")}
    assert {each.body.tables for each in log if isinstance(each.body, RegionRegistered)} == {
        ("items", "Refunds")
    }


@pytest.mark.spark
async def test_a_query_of_the_data_source_writes_the_table_that_it_names(
    kafka_bootstrap: str, unique: str, tmp_path: Path, spark: SparkThread
) -> None:
    shop, query = Shop.make(tmp_path), Query(spark, tmp_path / "query")
    names = await make_topics(kafka_bootstrap, unique)
    options = shop.options(kafka_bootstrap, unique, **{"table.name": "Refunds"})
    query.feed(1)

    def start(rows: Any) -> Any:
        return rows.selectExpr("id", "'x' AS text").writeStream.format("sluicegate").options(**options)

    async with running(shop.settings(kafka_bootstrap, unique)):
        await query.run(start)
        await until(lambda: shop.ids("Refunds"), lambda found: found == [1])
    assert (shop.ids(), shop.ids("items")) == ([], [])
    log = await read_events(kafka_bootstrap, names.events)
    assert {each.body.tables for each in log if isinstance(each.body, RegionRegistered)} == {("Refunds",)}


@pytest.mark.spark
async def test_a_batch_write_of_spark_writes_the_table_that_it_names(
    kafka_bootstrap: str, unique: str, tmp_path: Path, spark: SparkThread
) -> None:
    shop = Shop.make(tmp_path)
    names = await make_topics(kafka_bootstrap, unique)
    options = shop.options(kafka_bootstrap, unique)

    def save(job_id: str, first: int, name: str) -> None:
        frame = spark.session.range(first, first + 3, 1, 2).selectExpr("id", "'x' AS text")
        given = {**options, "job.id": job_id, "table.name": name}
        frame.write.format("sluicegate").options(**given).mode("append").save()

    async with running(shop.settings(kafka_bootstrap, unique)):
        with pytest.raises(PySparkException, match=r"no option tables\.itms gives the name"):
            await spark.call(lambda: save("sunday", 1, "itms"))
        await spark.call(lambda: save("monday", 1, "Refunds"))
        # The call returns when its job is committed, and a repeated one commits nothing.
        assert (shop.ids(), shop.ids("items"), shop.ids("Refunds")) == ([], [], [1, 2, 3])
        await spark.call(lambda: save("monday", 1, "Refunds"))
        await spark.call(lambda: save("tuesday", 4, "items"))
    assert (shop.ids(), shop.ids("items"), shop.ids("Refunds")) == ([], [4, 5, 6], [1, 2, 3])
    assert (shop.decisions(), shop.decisions("items")) == (["1", "2"], ["2"])
    log = await read_events(kafka_bootstrap, names.events)
    written = {
        (each.envelope.table, each.body.location) for each in log if isinstance(each.body, FilesWritten)
    }
    assert written == {(name, f"file://{shop.location(name)}") for name in ("Refunds", "items")}


@pytest.mark.long
@pytest.mark.spark
async def test_the_regions_of_a_runner_write_all_tables(
    kafka_bootstrap: str, unique: str, tmp_path: Path, spark: SparkThread
) -> None:
    shop, query = Shop.make(tmp_path), Query(spark, tmp_path / "query")
    await make_topics(kafka_bootstrap, unique)
    options = {name: each for name, each in shop.options(kafka_bootstrap, unique).items() if name != "region"}
    query.feed(1, 2, side="left")
    query.feed(3, side="right")
    runner = RegionRunner(
        spark.session,
        options,
        Source("json", {"path": str(query.source)}, "id long, at timestamp_ntz, side string"),
        regions=by_column("side", {"left": ["left"]}, rest="right"),
        base=str(tmp_path / "base"),
        trigger={"processingTime": "200 milliseconds"},
        split=lambda frame, _: parts(frame.drop("side"), 0),
    )
    async with running(shop.settings(kafka_bootstrap, unique)), started(runner):
        await until(shop.ids, lambda found: found == [1, 2, 3])
        assert shop.ids("items") == [11, 12, 13]
    # The first cut of an assignment has all regions.
    assert shop.decisions("items") == ["1"]


async def read_marks(bootstrap: str, topic: str) -> list[PartitionDone]:
    bodies = [each.body for each in await read_notifications(bootstrap, topic)]
    return [each for each in bodies if isinstance(each, PartitionDone)]


@pytest.mark.seam
async def test_tags_and_marks_of_further_tables(kafka_bootstrap: str, unique: str, tmp_path: Path) -> None:
    """Tags keep a whole vector. A partition becomes due by a commit that does not touch its table."""
    shop, names = Shop.make(tmp_path), await make_topics(kafka_bootstrap, unique)
    with closing(shop.catalog()) as catalog, catalog.load_table("shop.items").update_spec() as spec:
        spec.add_identity("text")
    listeners = {
        "tags": {"type": "tags", "period": "daily"},
        "days": {
            "type": "mark-done",
            "table": "items",
            "time_field": "text",
            "timestamp_formatter": "yyyy-MM-dd",
            "interval": "1 d",
            "actions": ["mark-event"],
        },
    }
    options = shop.options(kafka_bootstrap, unique)
    day = 86_400_000

    def dated(*days: str) -> pa.Table:
        return pa.table({"id": range(len(days)), "text": days}, schema=ITEMS)

    settings = shop.settings(kafka_bootstrap, unique, listeners=listeners)
    async with running(settings), AsyncRegionDriver(options) as driver:
        first = await driver.begin()
        written = [first.write("w0", orders(1)), first.write("w0", dated("1970-01-01"), table="items")]
        await driver.complete(first, written, source_offsets={"at": 1}, watermark=1)
        await driver.await_commit(first)
        following = await driver.begin()
        await driver.complete(
            following, [following.write("w0", orders(2))], source_offsets={"at": 2}, watermark=day + 1
        )
        await driver.await_commit(following)
        marks = await until(lambda: read_marks(kafka_bootstrap, names.commits), lambda found: len(found) > 0)
        tags = await until(lambda: asyncio.to_thread(shop.tags), lambda found: len(found["items"]) > 1)
    vector = shop.vector()
    items_at = vector["tables"]["items"][1]
    (mark,) = marks
    assert (mark.table, mark.values) == (f"file://{shop.location('items')}", {"text": "1970-01-01"})
    assert (mark.snapshot, mark.watermark, mark.decision) == (shop.sequence("items", items_at), day + 1, 1)
    assert tags["items"] == {"1969-12-31": items_at, "1970-01-01": items_at}
    assert tags[""]["1970-01-01"] == vector["anchor"]
    assert tags["Refunds"] == {}
