"""Kafka away: one sentence at once, then ever more rarely, and one when it is back."""

import logging
from itertools import pairwise

import pytest

from sluicegate.events.outages import LONGEST_PAUSE, QUIET, ConnectionNoise, Outage


def test_an_outage_is_told_ever_more_rarely_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    for now in range(1000):
        outage.trouble("refused", float(now))
    told = [float(record.args[1]) for record in caplog.records if isinstance(record.args, tuple)]  # type: ignore[arg-type]
    assert told == [0, 10, 30, 70, 150, 310, 610, 910]
    assert max(late - early for early, late in pairwise(told)) == LONGEST_PAUSE
    assert "refused" in caplog.messages[0]
    caplog.clear()
    outage.answered(1000.0)
    assert caplog.messages == [], "another broker may be the one that answers"
    outage.answered(1000.0 + QUIET)
    outage.answered(1001.0 + QUIET)
    assert caplog.messages == ["Kafka answers again, after 1005 s"]
    caplog.clear()
    outage.trouble("again", 2000.0)
    assert len(caplog.messages) == 1


def test_nothing_is_told_while_kafka_answers(caplog: pytest.LogCaptureFixture) -> None:
    Outage().answered(100.0)
    assert caplog.messages == []


def test_of_the_clients_lines_only_the_noise_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    client = logging.getLogger("aiokafka.test-noise")
    client.setLevel(logging.INFO)
    client.addFilter(ConnectionNoise(Outage()))
    for _ in range(50):
        client.error("Unable connect to node with id %s: %s", 7, "refused")
    client.error("Topic %s is not authorized for this client", "secret")
    first, second = caplog.messages
    assert "Unable connect to node with id 7: refused" in first
    assert "nothing is lost" in first
    assert second == "Topic secret is not authorized for this client"
    client.setLevel(logging.DEBUG)
    client.error("Unable connect to node with id %s: %s", 7, "refused")
    assert caplog.messages[-1] == "Unable connect to node with id 7: refused"
