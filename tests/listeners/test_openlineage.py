"""Lineage: the events of a run, their ids, and what each answer of a server means."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.serde import Serde

from sluicegate.events.notifications import NotificationType
from sluicegate.listeners.openlineage.events import dataset_name
from sluicegate.listeners.openlineage.listener import TYPE, OpenLineage, OpenLineageOptions
from sluicegate.listeners.port import Done, Failed, ListenerRefused, Unknown
from tests.listeners import hosting
from tests.listeners.hosting import outcome, send, stream
from tests.listeners.reporting import Server

pytestmark = pytest.mark.seam


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[OpenLineage]:
    async with hosting.opened(TYPE, OpenLineageOptions.model_validate(settings)) as found:
        yield found


async def test_a_commit_is_a_run_with_a_start_and_an_end(server: Server) -> None:
    async with opened(url=server.base) as listener:
        assert await send(listener, outcome()) == [Done(), Done()]
    body: Any = outcome().body
    start, end = (event for event, _ in server.got)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["eventTime"] <= end["eventTime"]
    assert start["run"] == end["run"]
    assert (end["job"]["namespace"], end["job"]["name"]) == ("sluicegate", "flights")
    (output,) = end["outputs"]
    assert (output["namespace"], output["name"]) == ("file", "/lake/db.db/flights")
    assert output["facets"]["version"]["datasetVersion"] == str(body.snapshot.id)
    statistics = output["outputFacets"]["outputStatistics"]
    assert statistics["rowCount"] == body.summary.rows
    assert statistics["size"] == body.summary.bytes
    assert statistics["fileCount"] == body.files
    commit = end["run"]["facets"]["sluicegate_commit"]
    assert (commit["decision"], commit["full"]) == (body.decision, not body.fallbacks)


async def test_a_reverted_decision_is_an_aborted_run_without_a_version(server: Server) -> None:
    async with opened(url=server.base) as listener:
        assert await send(listener, outcome(NotificationType.REVERTED)) == [Done(), Done()]
        assert await send(listener, outcome(NotificationType.SAVEPOINT_TAKEN)) == []
    (start, _), (end, _) = server.got
    assert (start["eventType"], end["eventType"]) == ("START", "ABORT")
    assert "version" not in end["outputs"][0].get("facets", {})


async def test_each_decision_has_one_run_in_every_process(tmp_path: Path) -> None:
    ids = set()
    for namespace in ("sluicegate", "sluicegate", "other"):
        async with opened(url="http://127.0.0.1:9", namespace=namespace) as listener:
            (first, second) = listener.apply(outcome(), listener.initial()).actions
            assert first.key != second.key
            ids.add(json.loads(Serde.to_json(first.event))["run"]["runId"])  # type: ignore[attr-defined]
    assert len(ids) == 2


@pytest.mark.parametrize("status", [500, 422, 302])
async def test_an_answer_other_than_success_is_a_failure_after_one_request(
    server: Server, status: int
) -> None:
    server.status = status
    async with opened(url=server.base) as listener:
        action = listener.apply(outcome(), listener.initial()).actions[0]
        result = await listener.run(action)
    assert isinstance(result, Failed)
    assert f"answered {status}" in result.reason
    assert len(server.got) == 1


async def test_a_server_that_is_away_may_have_the_event() -> None:
    async with opened(url="http://127.0.0.1:9") as listener:
        result = await listener.run(listener.apply(outcome(), listener.initial()).actions[0])
    assert isinstance(result, Unknown)
    assert "Start it, or correct `url`" in result.reason


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("file:///lake/db.db/a%20b/", ("file", "/lake/db.db/a b")),
        ("s3://bucket/lake/t", ("s3://bucket", "lake/t")),
        ("s3a://bucket/lake/t", ("s3://bucket", "lake/t")),
        ("gs://bucket/lake/t/", ("gs://bucket", "lake/t")),
        ("abfss://box@account.dfs.core.windows.net/t", ("abfss://box@account.dfs.core.windows.net", "t")),
    ],
)
def test_a_table_has_the_name_that_openlineage_gives_it(location: str, name: tuple[str, str]) -> None:
    assert dataset_name(location) == name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("transport: [", "cannot be read"),
        ("facets: {}", "has no section `transport`"),
        (
            "transport: {type: file, log_file_path: /x}\nfilters: []",
            "sections without effect here: ['filters']",
        ),
        ("transport: {type: console}", "cannot report a failure"),
        ("transport: {type: http}", "http is not usable"),
        ("transport: {type: kafka, topic: lineage}", "kafka is not usable"),
    ],
)
def test_an_unusable_file_is_refused_with_the_way_out(tmp_path: Path, text: str | None, words: str) -> None:
    config = tmp_path / "openlineage.yml"
    if text is not None:
        config.write_text(text)
    with pytest.raises(ListenerRefused) as refused:
        TYPE.check(OpenLineageOptions(config_file=config), stream())
    assert words in str(refused.value)


@pytest.mark.kafka
async def test_events_go_to_kafka(kafka_bootstrap: str, unique: str, tmp_path: Path) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    from sluicegate.kafka.clients import started

    async with started(AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)) as admin:
        await admin.create_topics([NewTopic(unique, 1, 1)])
    config = tmp_path / "openlineage.yml"
    config.write_text(
        f"transport: {{type: kafka, topic: {unique}, config: {{bootstrap.servers: '{kafka_bootstrap}'}}}}\n"
    )
    async with opened(config_file=config) as listener:
        assert await send(listener, outcome()) == [Done(), Done()]
    consumer = AIOKafkaConsumer(unique, bootstrap_servers=kafka_bootstrap, auto_offset_reset="earliest")
    async with started(consumer):
        records = [await consumer.getone() for _ in range(2)]
    assert [json.loads(each.value)["eventType"] for each in records] == ["START", "COMPLETE"]
    assert {each.key for each in records} == {b"run:sluicegate/flights"}


@pytest.mark.slow
async def test_an_event_that_kafka_does_not_take_is_not_done(tmp_path: Path) -> None:
    config = tmp_path / "openlineage.yml"
    config.write_text(
        "transport: {type: kafka, topic: lineage, config: "
        "{bootstrap.servers: '127.0.0.1:9', delivery.timeout.ms: 500, log_level: 0}}\n"
    )
    async with opened(config_file=config) as listener:
        result = await listener.run(listener.apply(outcome(), listener.initial()).actions[0])
    assert isinstance(result, Unknown)
    assert "Kafka has not acknowledged the event" in result.reason
