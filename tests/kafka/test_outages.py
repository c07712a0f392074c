"""Kafka away: one sentence soon, then ever more rarely, and one when it is back."""

import logging
import time
from itertools import pairwise

import pytest

from sluicegate.kafka.outages import (
    FIRST_PAUSE,
    GRACE,
    LONGEST_PAUSE,
    MOST_TEXTS,
    QUIET,
    ConnectionNoise,
    Outage,
    Repetitions,
)


def test_an_outage_is_told_ever_more_rarely_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outage = Outage()
    for now in range(1000):
        outage.trouble("refused", float(now))
    told = [float(record.args[1]) for record in caplog.records if isinstance(record.args, tuple)]  # type: ignore[arg-type]
    assert told == [2, 12, 32, 72, 152, 312, 612, 912]
    assert max(late - early for early, late in pairwise(told)) == LONGEST_PAUSE
    assert "refused" in caplog.messages[0]
    caplog.clear()
    outage.answered(1000.0)
    assert caplog.messages == [], "another broker may be the one that answers"
    outage.answered(1000.0 + QUIET)
    outage.answered(1001.0 + QUIET)
    assert caplog.messages == ["Kafka answers again, after 1008 s"]
    assert caplog.records[0].levelno == logging.WARNING, "who was told of the outage is told of its end"
    caplog.clear()
    outage.trouble("again", 2000.0)
    outage.trouble("again", 2000.0 + GRACE)
    assert len(caplog.messages) == 1


def test_of_the_clients_lines_only_the_noise_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    client = logging.getLogger("aiokafka.test-noise")
    client.setLevel(logging.INFO)
    outage = Outage()
    client.addFilter(ConnectionNoise(outage))
    outage.trouble("the first sign", time.monotonic() - GRACE)  # time: an input, long ago
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


@pytest.mark.parametrize(
    ("line", "away"),
    [
        ("Heartbeat failed for group %s: coordinator (node 1) is either not started or not valid", True),
        ("Heartbeat failed for group %s because it is rebalancing", False),
        ("Heartbeat failed for group %s: generation id is not  current.", False),
    ],
)
def test_heartbeats_of_a_group_are_quiet_and_a_rebalance_is_no_outage(
    caplog: pytest.LogCaptureFixture, line: str, away: bool
) -> None:
    outage = Outage()
    outage.trouble("the first sign", time.monotonic() - GRACE)  # time: an input, long ago
    noise = ConnectionNoise(outage)
    record = logging.LogRecord("aiokafka", logging.WARNING, __file__, 1, line, ("g",), None)
    caplog.set_level(logging.INFO, "aiokafka")
    assert not noise.filter(record)
    assert len(caplog.messages) == away


MISSING = "Topic %s not found in cluster metadata"


def line(topic: str, level: int = logging.ERROR) -> logging.LogRecord:
    """Return a line of the client about a topic."""
    return logging.LogRecord("aiokafka.cluster", level, __file__, 1, MISSING, (topic,), None)


def test_a_repeated_line_is_shown_at_once_and_then_rarely() -> None:
    repetitions = Repetitions()
    shown = [second for second in range(1000) if repetitions.filter(line("100%d"), float(second))]
    assert shown == [0, 300, 600, 900]


def test_each_text_is_shown_the_first_time_and_a_text_that_always_differs_is_bounded() -> None:
    repetitions = Repetitions()
    first = [repetitions.filter(line(f"topic{number}"), 0.0) for number in range(2 * MOST_TEXTS)]
    assert sum(first) == MOST_TEXTS + 1
    assert all(first[:MOST_TEXTS])
    assert repetitions.filter(line("topic0", logging.INFO), 0.0), "no warning"


def test_a_refused_login_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    outage.trouble("no token", 0.0, refused=True)
    outage.trouble("no token", 1.0, refused=True)
    (told,) = caplog.messages
    assert told.startswith("Kafka refuses the login (no token), for 0 s now; it is tried again")
    outage.trouble("no token", FIRST_PAUSE, refused=True)
    assert len(caplog.messages) == 2
