"""Values that commands take and show: times in UTC, streams of the settings, ages."""

from typing import Any

import click
import pytest

from sluicegate.cli.errors import UserError
from sluicegate.cli.options import parse_timeout, require_stream
from sluicegate.cli.status import _ago
from sluicegate.cli.wait import _parse_time
from sluicegate.coordinator.settings.model import Settings

NONE: Any = None


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("2013-02-01T00:00:00Z", 1_359_676_800_000),
        ("2013-02-01T00:00:00", 1_359_676_800_000),
        ("2013-02-01T01:00:00+01:00", 1_359_676_800_000),
        ("2013-02-01", 1_359_676_800_000),
        ("1969-12-31T23:59:59Z", -1_000),
    ],
)
def test_a_time_without_a_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch, text: str, millis: int) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    __import__("time").tzset()
    try:
        assert _parse_time(NONE, NONE, text) == millis
    finally:
        monkeypatch.undo()
        __import__("time").tzset()


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="write it as"):
        _parse_time(NONE, NONE, "tomorrow")


def test_only_streams_of_the_settings_are_taken() -> None:
    settings = Settings.model_validate(
        {"kafka": {"bootstrap_servers": "nowhere:1"}, "streams": {"flights": {"table": "/t"}}}
    )
    require_stream(settings, "flights")
    with pytest.raises(UserError, match="stream hotels is not configured; configured are: flights"):
        require_stream(settings, "hotels")


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("1h", 3_600.0), ("500ms", 0.5)])
def test_timeouts_have_units(text: str, seconds: float) -> None:
    assert parse_timeout(NONE, NONE, text) == seconds


def test_ages_are_of_the_past() -> None:
    now = 10_000_000
    assert _ago(now - 5_000, now) != _ago(now, now)
    assert _ago(now - 5_000, now).startswith("5")
    assert "-" not in _ago(now - 90_000, now)
