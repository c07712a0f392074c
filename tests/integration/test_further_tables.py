"""Each way in to several tables of one stream, with a real coordinator: one checkpoint is one decision."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sluicegate.events.models import CheckpointCompleted, FilesWritten, RegionRegistered
from sluicegate.events.problems import Code
from sluicegate.writer_hooks import BadOption, ForeachBatch, Job, OpenCheckpoint, RegistrationRefused, WriterResult
from sluicegate.writer_hooks.upload.spool import Spool
from tests.integration.coordinator import running
from tests.integration.coroutines import AsyncRegionDriver
from tests.integration.job import make_topics, read_events
from tests.integration.shops import STREAM, Shop, items, orders
from tests.integration.sparkjob import SparkThread
from tests.integration.uploading import end_uploader, spool

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
