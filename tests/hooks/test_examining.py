"""Sinks that cannot work are told of while their source has no data, and lost news by what they mean."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sluicegate.writer_hooks.spark.heartbeats import Heartbeats, Kind, Signal
from tests.hooks.conftest import make_table
from tests.hooks.options import OPTIONS
from tests.integration.waiting import BACKSTOP, wait_until


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    make_table(tmp_path)
    return OPTIONS | {
        "table": str(tmp_path / "default.db" / "flights"),
        "kafka.request.timeout.ms": "500",
        "checkpointlocation": str(tmp_path / "checkpoint"),
    }


@pytest.fixture
def heartbeats() -> Iterator[Heartbeats]:
    made = Heartbeats(interval=0.2, idle_after=0.0)
    yield made
    made.stop(BACKSTOP)


def wait(look: Callable[[], list[str]]) -> str:
    return wait_until(look)[0]


def told(caplog: pytest.LogCaptureFixture, part: str) -> Callable[[], list[str]]:
    return lambda: [record.getMessage() for record in list(caplog.records) if part in record.getMessage()]


def fails(*_: object) -> None:
    raise OSError("made to fail")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"regoin": "JFK"}, "unknown option regoin"),
        ({"stream": ""}, "option stream is missing"),
        ({"kafka.bootstrap.servers": "broker"}, "must be host:port"),
        ({"format": "excel"}, "option format cannot be used: unknown table format 'excel'"),
        ({"checkpointlocation": "relative"}, "relative"),
    ],
)
def test_wrong_options_are_told_before_any_batch(
    heartbeats: Heartbeats,
    options: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    change: dict[str, str],
    says: str,
) -> None:
    answers = iter([None, None])
    heartbeats.put(Signal(Kind.STARTED, "q", "r", lambda: next(answers, options | change)))
    message = wait(told(caplog, says))
    assert "cannot write" in message
    assert "stop it, correct the options, and start it again" in message
    heartbeats.put(Signal(Kind.ENDED, "q", "r", lambda: None))
    heartbeats.stop(BACKSTOP)
    assert len(told(caplog, says)()) == 1
    assert told(caplog, "was not announced")() == []


@pytest.mark.slow
def test_a_lost_heartbeat_names_its_region_and_what_it_means(
    heartbeats: Heartbeats,
    options: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Heartbeats, "_send", fails)
    heartbeats.put(Signal(Kind.STARTED, "q", "r", lambda: options))
    assert "Its files and commits do not depend on it" in wait(told(caplog, "a heartbeat was not sent (1 in"))
    heartbeats.put(Signal(Kind.IDLE, "q", "r", lambda: options))
    assert "other regions may wait" in wait(told(caplog, "a heartbeat was not sent (4 in"))
    assert told(caplog, "(3 in a row)")() == [], "said ever more rarely"
    assert "made to fail" in caplog.text


def test_a_lost_end_says_how_to_announce_it(
    heartbeats: Heartbeats,
    options: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sluicegate.writer_hooks.spark.heartbeats.end_region", fails)
    bounded = options | {"bounded": "true"}
    heartbeats.put(Signal(Kind.STARTED, "q", "r", lambda: bounded))
    heartbeats.put(Signal(Kind.ENDED, "q", "r", lambda: bounded))
    message = wait(told(caplog, "its end was not announced"))
    assert message.startswith("region JFK of stream flights:")
    assert "made to fail" in message
    assert "close_region(options)" in message
    ours = [record for record in caplog.records if "of stream flights" in record.getMessage()]
    assert [record.levelno for record in ours] == [logging.ERROR]
