"""A stream with two tables, by the real service: what its operators see."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sluicegate.cli.history import read_outcomes
from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.envelope import EventType
from sluicegate.events.models import StreamPolicy
from sluicegate.events.notifications import Committed
from sluicegate.events.problems import Code
from sluicegate.state_store import ConditionView, StreamView
from tests.cli.deployment import Deployment, as_json, findings
from tests.integration.coordinator import running
from tests.integration.job import make_topics, read_events
from tests.integration.waiting import until
from tests.shop import STREAM, Shop, ShopJob

pytestmark = [pytest.mark.kafka, pytest.mark.seam]


def view(service: Service) -> StreamView:
    return StreamView.model_validate(service.status()["streams"][STREAM])


def of_table(service: Service) -> list[ConditionView]:
    return [each for each in view(service).conditions if each.code == Code.TABLE_UNUSABLE]


def deployment(settings: Settings, shop: Shop, tmp_path: Path) -> Deployment:
    """Return the command line with these settings."""
    config = tmp_path / "sluicegate.toml"
    kafka = settings.kafka
    lines = [
        "[kafka]",
        f'bootstrap_servers = "{kafka.bootstrap_servers}"',
        f'topic_prefix = "{kafka.topic_prefix}"',
        f'group_id = "{kafka.group_id}"',
        "partitions = 3",
        f"[streams.{STREAM}]",
        'format = "iceberg"',
        f'table = "{shop.place("orders")}"',
        'tables.items = "shop.items"',
        f"[streams.{STREAM}.options]",
        *(f'{name} = "{value}"' for name, value in shop.options().items()),
    ]
    config.write_text("\n".join(lines), encoding="utf-8")
    return Deployment(config, {})


async def committed(settings: Settings, decision: int) -> Committed:
    """Wait for the announcement of a decision."""
    found = await until(
        lambda: read_outcomes(settings, STREAM, 10),
        lambda seen: any(each.body.decision == decision for each in seen),
    )
    body = next(each.body for each in found if each.body.decision == decision)
    assert isinstance(body, Committed)
    return body


async def run(where: Deployment, *arguments: str) -> Any:
    return await asyncio.to_thread(where.run, *arguments)


async def test_commands_show_the_tables_and_the_vector(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    shop, topics = Shop(tmp_path / "lake"), await make_topics(kafka_bootstrap, unique)
    settings = shop.settings(kafka_bootstrap, unique)
    where = deployment(settings, shop, tmp_path)
    async with ShopJob(shop, kafka_bootstrap, topics) as job:
        async with running(settings) as service:
            assert (await job.register()).accepted
            await job.sell(2)
            first = await committed(settings, 1)
            await job.complete(await job.put("orders", {"id": [1], "total": [0]}))
            second = await committed(settings, 2)
            assert second.tables == first.tables
            vector = shop.vector()
            anchor = second.snapshot
            assert anchor is not None
            assert (vector["decision"], vector["anchor"]) == (2, int(anchor.identity))
            shown = await until(lambda: view(service), lambda found: found.committed == 2)
            items = shown.tables["items"]
            assert (items.identifier, items.decision) == ("shop.items", 1)
            assert items.snapshot is not None
            assert vector["tables"] == {"items": [1, int(items.snapshot.identity)]}
        # Everything else comes from Kafka.
        given = as_json(await run(where, "history", "--stream", STREAM, "--vector", "--json"))
        tables = {"items": {"decision": 1, "snapshot": items.snapshot.identity}}
        assert given == {"stream": STREAM, "decision": 2, "snapshot": anchor.identity, "tables": tables}
        assert (await run(where, "history", "--stream", STREAM, "--vector")).stdout.splitlines() == [
            f"decision 2: snapshot {anchor.identity}",
            f"  table items: snapshot {items.snapshot.identity}, of decision 1",
        ]
        outcomes = (await run(where, "history", "--stream", STREAM)).stdout.splitlines()
        assert ", also in items" in outcomes[0]
        assert ", also in items" not in outcomes[1]
        status = (await run(where, "status", "--stream", STREAM)).stdout
        snapshot = f"{items.snapshot.id}:{items.snapshot.identity}"
        assert f"\n  table items (shop.items): commit 1, snapshot {snapshot}\n" in status
        checked = findings(await run(where, "check"))
        assert {name: verdict for name, (verdict, _) in checked.items() if verdict == "PROBLEM"} == {}
        named = "table items of shop"
        assert [each for each in checked if each.startswith(named)] == [
            named,
            f"{named}, history",
            f"{named}, files",
            f"{named}, writing",
            f"{named}, cleaning",
        ]
        assert checked[f"{named}, history"] == ("OK", "agrees with the record, up to decision 1")
        # A foreign commit is no contradiction; a table in the place of another one is.
        shop.drop("items")
        assert "has no table shop.items" in findings(await run(where, "check"))[named][1]
        shop.make("items")
        assert "is the table" in findings(await run(where, "check"))[f"{named}, history"][1]


@pytest.mark.matrix
async def test_trouble_of_one_table_shows_before_a_touch_and_holds_no_other_region(
    kafka_bootstrap: str, unique: str, tmp_path: Path, impatient: None
) -> None:
    shop, topics = Shop(tmp_path / "lake"), await make_topics(kafka_bootstrap, unique)
    settings = shop.settings(kafka_bootstrap, unique, table_check_interval="300ms")
    regions = ("r1", "r2")
    stream = settings.streams[STREAM].model_copy(update={"partial": "allow"})
    settings = settings.model_copy(update={"streams": {STREAM: stream}})
    async with (
        running(settings) as service,
        ShopJob(shop, kafka_bootstrap, topics, regions=regions) as both,
        ShopJob(shop, kafka_bootstrap, topics, region="r2", regions=regions, incarnation="q2") as plain,
    ):
        for job in (both, plain):
            assert (await job.register()).accepted
        await both.sell(1)
        await plain.complete(await plain.put("orders", {"id": [1], "total": [0]}))
        await committed(settings, 1)
        metadata = shop.metadata("items")
        written = await both.put("items", {"order": [1], "price": [2]})
        shop.drop("items")
        (found,) = await until(lambda: of_table(service))
        assert (found.kind, found.table, found.region) == ("stall", "items", None)
        assert "has no table shop.items" in found.message
        await both.complete(written)
        await plain.complete(await plain.put("orders", {"id": [2], "total": [0]}))
        assert (await committed(settings, 2)).fallbacks.keys() == {"r1"}
        excluded = await until(lambda: of_table(service), lambda seen: any(each.region for each in seen))
        assert [(each.table, each.region) for each in excluded if each.region] == [("items", "r1")]
        shop.register("items", metadata)
        assert "r1" not in (await committed(settings, 3)).fallbacks
        await until(lambda: of_table(service), lambda seen: not seen)


async def test_a_table_of_the_settings_that_appears_later_becomes_one_of_the_stream(
    kafka_bootstrap: str, unique: str, tmp_path: Path, impatient: None
) -> None:
    shop, topics = Shop(tmp_path / "lake"), await make_topics(kafka_bootstrap, unique)
    shop.drop("items")
    settings = shop.settings(kafka_bootstrap, unique, table_check_interval="300ms")

    async def tables() -> set[str]:
        events = await read_events(kafka_bootstrap, topics.events)
        bodies = [each.body for each in events if each.envelope.type is EventType.STREAM_POLICY]
        return {name for each in bodies if isinstance(each, StreamPolicy) for name in each.tables}

    async with running(settings) as service, ShopJob(shop, kafka_bootstrap, topics) as job:
        assert (await job.register()).accepted
        (found,) = await until(lambda: of_table(service))
        assert (found.table, await tables()) == ("items", set())
        assert "has no table shop.items" in json.dumps(found.arguments)
        shop.make("items")
        await until(tables, lambda seen: seen == {"items"})
        await until(lambda: of_table(service), lambda seen: not seen)
        await job.sell(1)
        assert (await committed(settings, 1)).tables["items"].decision == 1
