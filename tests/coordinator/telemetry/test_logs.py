"""Logs are one JSON object or one text line per event, whoever logs, and never show a secret."""

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import structlog

from sluicegate.coordinator.observe.logs import configure_logging
from sluicegate.coordinator.settings.model import LogSettings, RedisSettings

HIDDEN = "hunter2+(="
Format = Literal["json", "text"]


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Put back what `configure_logging` replaces."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    logging.captureWarnings(False)
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def _configure(form: Format = "json", level: Literal["debug", "info"] = "info") -> io.StringIO:
    stream = io.StringIO()
    configure_logging(LogSettings(format=form, level=level), [HIDDEN], stream)
    return stream


def _events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_lines_from_both_kinds_of_loggers() -> None:
    stream = _configure()
    structlog.get_logger("sluicegate.shell").info("assigned", partitions=[1, 2], epoch=3)
    logging.getLogger("some.library").warning("slow: %s ms", 12)
    ours, theirs = _events(stream)
    assert (ours["event"], ours["level"], ours["logger"]) == ("assigned", "info", "sluicegate.shell")
    assert (ours["partitions"], ours["epoch"]) == ([1, 2], 3)
    assert ours["timestamp"].endswith("Z")
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("slow: 12 ms", "warning", "some.library")


def test_level_holds_and_chatty_clients_are_heard_only_when_it_matters() -> None:
    stream = _configure()
    structlog.get_logger("sluicegate").debug("too fine")
    logging.getLogger("aiokafka.consumer").info("joined group")
    logging.getLogger("aiokafka.consumer").error("left group")
    assert [event["event"] for event in _events(stream)] == ["left group"]

    stream = _configure(level="debug")
    structlog.get_logger("sluicegate").debug("fine")
    logging.getLogger("aiokafka.consumer").info("joined group")
    assert [event["event"] for event in _events(stream)] == ["fine", "joined group"]


def test_second_configuration_replaces_the_first() -> None:
    first = _configure()
    second = _configure()
    structlog.get_logger("sluicegate").info("once")
    assert first.getvalue() == ""
    assert len(_events(second)) == 1


def test_warnings_are_logged() -> None:
    stream = _configure()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("this will go", DeprecationWarning, stacklevel=1)
    assert "this will go" in _events(stream)[0]["event"]


def _fail(password: str) -> None:
    """Fail with a secret in the message, in the cause, and in a local variable."""
    raise ConnectionError(f"refused for {password}") from ValueError(password)


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_never_printed(form: Format) -> None:
    stream = _configure(form)
    log = structlog.get_logger("sluicegate")
    redis = RedisSettings.model_validate({"url": f"redis://me:{HIDDEN}@cache:6379/0"})
    log.info(f"connecting with {HIDDEN}", settings=redis)
    log.info("nested", options={"key": {HIDDEN: [HIDDEN, (HIDDEN, {HIDDEN})]}}, raw=HIDDEN.encode())
    log.info("url", address="redis://somebody:other-password@cache:6379/0")
    logging.getLogger("lib").warning("password %s", HIDDEN, extra={"credentials": HIDDEN})
    try:
        _fail(HIDDEN)
    except ConnectionError:
        log.exception("failed", error=ConnectionError(HIDDEN))
        logging.getLogger("lib").exception("failed too")
    shown = stream.getvalue()
    assert "hunter2" not in shown
    assert "other-password" not in shown
    assert "somebody" not in shown
    assert shown.count("[secret]") >= 12
    assert "refused for [secret]" in shown


def test_text_lines_are_plain_where_no_terminal_is() -> None:
    stream = _configure("text")
    structlog.get_logger("sluicegate").info("listening", port=8080)
    line = stream.getvalue()
    assert "listening" in line
    assert "port=8080" in line
    assert "\x1b[" not in line
