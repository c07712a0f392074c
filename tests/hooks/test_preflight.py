"""What is wrong with a sink is said in the driver, before its query starts, and without effect."""

import re
import threading
from pathlib import Path

import pytest

from sluicegate.events.models import StreamCommand
from sluicegate.writer_hooks import PreflightFailed, preflight, registration
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.registration import ask
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, IncarnationMarker
from tests.hooks.conftest import make_table
from tests.hooks.log import Log, silent
from tests.hooks.options import OPTIONS
from tests.integration.waiting import BACKSTOP, wait_until


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    make_table(tmp_path)
    return OPTIONS | {
        "table": str(tmp_path / "default.db" / "flights"),
        "kafka.request.timeout.ms": "500",
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }


def failure(options: dict[str, str], seconds: float) -> list[str]:
    """Return the lines of the error."""
    with pytest.raises(PreflightFailed) as caught:
        preflight(options, timeout=seconds)  # time: nothing answers
    return str(caught.value).splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"regoin": "JFK"}, r"unknown option regoin \(did you mean region\?\)"),
        ({"assignment": "one"}, "assignment must be a whole number"),
        ({"registration.timeout": "never"}, "seconds above 0: 'never'; or forever"),
        ({"format": "excel"}, "option format cannot be used: unknown table format 'excel'"),
        ({"checkpointLocation": "relative"}, "give an absolute path"),
        ({"table": "lake/flights"}, "the option table is relative.*give an absolute path"),
        ({"event.time.column": "att"}, "has no column att"),
    ],
)
def test_a_wrong_option_is_an_error_at_once(
    options: dict[str, str], change: dict[str, str], says: str
) -> None:
    assert len([line for line in failure(options | change, 0.1) if re.search(says, line)]) == 1


def test_one_error_lists_all_problems(options: dict[str, str]) -> None:
    del options["region"]
    wrong = {
        "assignment": "one",
        "event.time.column": "att",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.location": "/absent",
    }
    first, *lines = failure(options | wrong, 0.5)
    assert first == "region (none given) of stream flights cannot write as things stand:"
    expected = (
        "the option region is missing",
        "the option assignment must be a whole number",
        "the option kafka.ssl.ca.location",
        "has no column att",
    )
    assert [part for part in expected if not any(part in line for line in lines)] == []


@pytest.mark.slow
def test_a_location_of_another_region_is_told(options: dict[str, str]) -> None:
    marker = IncarnationMarker(query=None, incarnation="i", stream="flights", region="EWR")
    CheckpointLocation(options["checkpointLocation"]).write_marker(marker)
    assert "wrote the region EWR of the stream flights so far, not JFK" in "\n".join(failure(options, 0.5))


@pytest.mark.seam
@pytest.mark.kafka
def test_a_start_that_would_be_refused_is_told_without_effect(
    options: dict[str, str], log: Log, unique: str
) -> None:
    """Kafka is real; the fold of the log judges as a coordinator does."""
    options |= {"kafka.bootstrap.servers": log.bootstrap, "topic.prefix": unique}
    del options["kafka.request.timeout.ms"]
    preflight(options, timeout=BACKSTOP)
    region = SinkOptions.parse(options | {"registration.timeout": str(BACKSTOP)}).region
    assert ask(region, region.registration("i", None)).accepted
    assert "incarnation-live" in "\n".join(failure(options, BACKSTOP))
    log.judges.order("flights", StreamCommand(command="close", number=0))
    assert "region-removed" in "\n".join(failure(options, BACKSTOP))
    newer = options | {"assignment": "1", "assignment.after": "7"}
    assert "assignment-after-other-cut" in "\n".join(failure(newer, BACKSTOP))
    preflight(newer | {"assignment.after": "0"}, timeout=BACKSTOP)
    assert len(log.registrations()) == 1
    assert not Path(options["checkpointLocation"]).exists()


@pytest.mark.slow
def test_what_is_not_there_is_listed(options: dict[str, str]) -> None:
    first, table, kafka = failure(options | {"table": "/nowhere/flights"}, 0.5)
    assert first == "region JFK of stream flights cannot write as things stand:"
    assert "no Paimon table at file:///nowhere/flights" in table
    assert f"Kafka at {options['kafka.bootstrap.servers']} did not answer within 0.5 s" in kafka
    assert "check the options kafka.*" in kafka


def waiting(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        text for text in caplog.messages if text.startswith("no coordinator has answered the registration")
    ]


@pytest.mark.kafka
def test_a_registration_may_wait_for_ever_and_says_so_ever_more_rarely(
    options: dict[str, str],
    log: Log,
    unique: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "_FIRST_WARNING", 0.2)
    log.answer = silent
    there = {"kafka.bootstrap.servers": log.bootstrap, "kafka.request.timeout.ms": "15000"}
    region = SinkOptions.parse(
        options | there | {"topic.prefix": unique, "registration.timeout": "forever"}
    ).region
    event = region.registration("i", None)
    waits = threading.Thread(target=ask, args=(region, event), daemon=True)
    waits.start()
    wait_until(lambda: len(waiting(caplog)) == 4)
    assert "for 0 s" not in waiting(caplog)[3], "after 0.2 s, 0.6 s, 1.4 s and 3.0 s"
    assert "the query waits until one does, and writes nothing before" in waiting(caplog)[0]
    assert "Check that a coordinator runs against" in waiting(caplog)[0]
    assert waits.is_alive()
    log.answer = None
    # A coordinator that comes back reads the registration, which is in the log already.
    shared_publisher(region.kafka).publish(region.events_topic, [event], BACKSTOP)
    wait_until(lambda: not waits.is_alive())
