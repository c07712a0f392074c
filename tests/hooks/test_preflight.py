"""What is wrong with a sink is said in the driver, before its query starts, and without effect."""

import logging
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluicegate.embedded.ports import free_port
from sluicegate.writer_hooks import (
    BadCheckpointLocation,
    BadOption,
    PreflightFailed,
    attach,
    preflight,
    registration,
)
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.registration import ask, registration_event
from sluicegate.writer_hooks.spark.options import SinkOptions
from tests.hooks.conftest import make_table
from tests.hooks.log import Log, silent
from tests.hooks.unanswered import unanswered
from tests.integration.waiting import BACKSTOP, wait_until


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    make_table(tmp_path)
    return {
        "stream": "flights",
        "region": "JFK",
        "table": str(tmp_path / "default.db" / "flights"),
        "kafka.bootstrap.servers": f"127.0.0.1:{free_port()}",
        "kafka.request.timeout.ms": "500",
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ({"regoin": "JFK"}, BadOption, r"unknown option regoin \(did you mean region\?\)"),
        ({"assignment": "one"}, BadOption, "assignment must be a whole number"),
        ({"registration.timeout": "never"}, BadOption, "seconds above 0: 'never'; or forever"),
        ({"format": "excel"}, BadOption, "unknown table format 'excel'"),
        ({"checkpointLocation": "relative"}, BadCheckpointLocation, "give an absolute path"),
    ],
)
def test_a_wrong_option_is_an_error_at_once(
    options: dict[str, str], change: dict[str, str], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        preflight(options | change)


def test_what_is_not_there_is_listed(options: dict[str, str]) -> None:
    with pytest.raises(PreflightFailed) as caught:
        preflight(options | {"table": "/nowhere/flights"}, timeout=0.5)  # time: nothing answers
    first, table, kafka = str(caught.value).splitlines()
    assert first == "region JFK of stream flights cannot write as things stand:"
    assert "no Paimon table at file:///nowhere/flights" in table
    assert f"Kafka at {options['kafka.bootstrap.servers']} did not answer within 0.5 s" in kafka
    assert "check the options kafka.*" in kafka


@pytest.mark.kafka
def test_a_missing_topic_is_named_with_the_command_that_creates_it(
    options: dict[str, str], kafka_bootstrap: str, unique: str
) -> None:
    there = {"kafka.bootstrap.servers": kafka_bootstrap, "kafka.request.timeout.ms": "15000"}
    with pytest.raises(PreflightFailed, match=rf"{unique}\.events does not exist.*sluicegate topics create"):
        preflight(options | there | {"topic.prefix": unique})


@pytest.mark.kafka
def test_a_coordinator_that_is_not_there_is_told_and_nothing_changes(
    options: dict[str, str], log: Log, unique: str
) -> None:
    there = {"kafka.bootstrap.servers": log.bootstrap, "kafka.request.timeout.ms": "15000"}
    with pytest.raises(
        PreflightFailed, match=rf"no coordinator reads the topic {unique}\.events.*sluicegate run"
    ):
        preflight(options | there | {"topic.prefix": unique}, timeout=3)  # time: nobody comes
    assert log.events == []
    assert not Path(options["checkpointLocation"]).exists()
    assert not list(Path(options["table"]).glob("**/*.parquet"))


@pytest.mark.spark
def test_attach_checks_options_that_it_is_given(spark: SparkSession, options: dict[str, str]) -> None:
    with pytest.raises(BadOption, match="did you mean region"):
        attach(spark, options=options | {"regoin": "JFK"})


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
    event = registration_event(region, "i", None)
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


@pytest.mark.kafka
def test_a_registration_that_waits_for_a_time_says_how_long(
    options: dict[str, str],
    log: Log,
    unique: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "_FIRST_WARNING", 0.2)
    log.answer = silent
    there = {"kafka.bootstrap.servers": log.bootstrap, "kafka.request.timeout.ms": "15000"}
    with caplog.at_level(logging.WARNING):
        limit, error = unanswered(options | there | {"topic.prefix": unique})
        while not waiting(caplog):  # publishing has used the limit up
            limit, error = unanswered(options | there | {"topic.prefix": unique}, 2 * limit)
    assert "(seconds, or forever)" in error
    assert f"the query waits up to {limit} s (registration.timeout)" in waiting(caplog)[-1]
