"""Kafka away, as a driver tells of it: soon, then ever more rarely, and once when it is over."""

import asyncio
import logging
import re
from pathlib import Path

import pytest

from sluicegate.embedded import EmbeddedKafka
from sluicegate.kafka import outages
from sluicegate.kafka.topics import TopicNames, ensure_topics, topic_specs
from sluicegate.writer_hooks import outcomes
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from sluicegate.writer_hooks.spark.heartbeats import Heartbeats
from sluicegate.writer_hooks.spark.runs import Kind, Signal
from tests.hooks.conftest import make_table
from tests.integration.waiting import BACKSTOP, wait_until

pytestmark = pytest.mark.kafka


def running_query(folder: Path, bootstrap: str) -> dict[str, str]:
    """The options of a query whose location is marked."""
    make_table(folder)
    location = folder / "checkpoint"
    location.mkdir()
    (location / "metadata").write_text('{"id": "q"}')
    options = {
        "stream": "flights",
        "region": "JFK",
        "table": str(folder / "default.db" / "flights"),
        "kafka.bootstrap.servers": bootstrap,
        "kafka.request.timeout.ms": "1000",
        "checkpointlocation": str(location),
    }
    marker = IncarnationMarker(query="q", incarnation="i", stream="flights", region="JFK")
    Checkpoint(str(location)).write_marker(marker)
    return options


def counts(lines: list[str]) -> list[int]:
    """The numbers of failures that the lines tell."""
    return [int(match[1]) for line in lines if (match := re.search(r"\((\d+) in a row\)", line))]


def test_an_outage_is_told_ever_more_rarely_and_its_end_once(
    own_kafka: EmbeddedKafka,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outcomes, "_RETRY", 0.2)
    monkeypatch.setattr(outages, "QUIET", 3.0)
    specs = topic_specs(TopicNames("sluicegate"), partitions=1)
    asyncio.run(ensure_topics(own_kafka.bootstrap, specs))
    options = running_query(tmp_path, own_kafka.bootstrap)
    own_kafka.kill()
    heartbeats = Heartbeats(interval=0.3, idle_after=60.0)

    def said(part: str) -> list[str]:
        return [text for text in caplog.messages if part in text]

    with caplog.at_level(logging.WARNING):
        heartbeats.tell(Signal(Kind.STARTED, "q", "r", lambda: options))
        try:
            wait_until(lambda: len(said("a heartbeat was not sent")) == 4)
            wait_until(lambda: len(said("outcomes cannot be read")) >= 4)
            for part in ("a heartbeat was not sent", "outcomes cannot be read"):
                assert counts(said(part)) == [2**number for number in range(len(said(part)))]
            wait_until(lambda: said("Kafka does not answer"))
            assert len(said("Kafka does not answer")) <= 4
            asyncio.run(asyncio.to_thread(own_kafka.start))
            over = ("heartbeats are sent again", "outcomes are read from", "Kafka answers again")
            wait_until(lambda: all(said(part) for part in over))
        finally:
            heartbeats.stop(BACKSTOP)
        assert [len(said(part)) for part in over] == [1, 1, 1]
    others = [record.name for record in caplog.records if not record.name.startswith("sluicegate.")]
    assert others == [], "the client's own lines"
