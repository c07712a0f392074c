"""Periods that a watermark has passed, and the names of their tags."""

from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from sluicegate.listeners.tags import FORMATS, Every, Passed, TagsOptions, name_of, passed
from tests.listeners.mark_done.policies import at

NEW_YORK = ZoneInfo("America/New_York")
UTC = ZoneInfo("UTC")


def names(found: Iterable[Passed], every: Every) -> list[str]:
    return [name_of(FORMATS[every], each.label) for each in found]


def newest(time: int, every: Every, zone: ZoneInfo = UTC, count: int = 1) -> list[str]:
    return names(islice(passed(time, every, zone, None), count), every)


@pytest.mark.parametrize(
    ("time", "every", "name"),
    [
        ("2013-01-02 00:00:01", "daily", "2013-01-01"),
        ("2013-01-02", "daily", "2012-12-31"),
        ("2013-03-01 00:00:01", "daily", "2013-02-28"),
        ("2012-03-01 00:00:01", "daily", "2012-02-29"),
        ("2013-01-01 10:00:01", "hourly", "2013-01-01-09"),
        ("2013-01-01 00:59:59", "hourly", "2012-12-31-23"),
        ("2013-03-01 00:00:01", "monthly", "2013-02"),
        ("2013-03-01", "monthly", "2013-01"),
        ("2013-01-15", "monthly", "2012-12"),
    ],
)
def test_the_newest_period_has_ended_before_the_time(time: str, every: Every, name: str) -> None:
    """At the end itself, a row of the period may still come."""
    assert newest(at(time), every) == [name]


def test_a_day_is_one_of_the_zone() -> None:
    time = at("2013-01-02 04:00:01")
    assert newest(time, "daily") == ["2013-01-01"]
    assert newest(time, "daily", NEW_YORK) == ["2012-12-31"]
    assert newest(at("2013-01-02 05:00:01"), "daily", NEW_YORK) == ["2013-01-01"]


def test_an_hour_that_the_clock_shows_twice_has_one_tag_after_its_second_pass() -> None:
    first, second, after = (at(f"2013-11-03 0{hour}:30:00") for hour in (5, 6, 7))
    assert newest(first, "hourly", NEW_YORK) == ["2013-11-03-00"]
    assert newest(second, "hourly", NEW_YORK) == ["2013-11-03-00"]
    assert newest(after, "hourly", NEW_YORK, 2) == ["2013-11-03-01", "2013-11-03-00"]


def test_an_hour_that_the_clock_skips_has_no_tag() -> None:
    assert newest(at("2013-03-10 08:30:00"), "hourly", NEW_YORK, 3) == [
        "2013-03-10-03",
        "2013-03-10-01",
        "2013-03-10-00",
    ]


def test_periods_up_to_the_former_tag_are_not_passed_again() -> None:
    (first,) = islice(passed(at("2013-01-02 00:00:01"), "daily", UTC, None), 1)
    assert list(passed(at("2013-01-02 23:00:00"), "daily", UTC, first.end)) == []
    assert list(passed(at("2013-01-01"), "daily", UTC, first.end)) == []
    later = passed(at("2013-01-05 00:00:01"), "daily", UTC, first.end)
    assert names(later, "daily") == ["2013-01-04", "2013-01-03", "2013-01-02"]


@pytest.mark.parametrize("time", [2**62, -(2**62), -62_135_596_800_000, 253_402_300_799_999])
def test_a_time_outside_of_the_calendar_passes_nothing_that_cannot_be_named(time: int) -> None:
    """Some jobs end with the highest watermark that there is."""
    for every in FORMATS:
        for each in islice(passed(time, every, NEW_YORK, None), 2):
            assert 1 <= each.label.year <= 9999


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("yyyyMMdd", "20130131"),
        ("'day-'yyyy-MM-dd", "day-2013-01-31"),
        ("d.M.yyyy HH", "31.1.2013 05"),
        ("yyyy''MM", "2013'01"),
    ],
)
def test_a_name_has_the_letters_of_the_format(pattern: str, name: str) -> None:
    assert name_of(pattern, datetime(2013, 1, 31, 5)) == name


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, 'no tag would ever be made. Set period, such as period = "daily", or savepoints'),
        ({"savepoints": True, "name": "yyyy"}, "belong to tags of periods. Set period, or remove them"),
        ({"savepoints": True, "fill_gaps": True}, "belong to tags of periods. Set period, or remove them"),
        ({"period": "weekly"}, "'hourly', 'daily' or 'monthly'"),
        ({"period": "daily", "name": "yyyy-MM"}, "lacks the day, so tags of several periods would have one"),
        ({"period": "hourly", "name": "yyyy-MM-dd"}, "Use the letters of yyyy-MM-dd-HH"),
        ({"period": "monthly", "name": "yyyyMM"}, "do not use digits alone"),
        ({"period": "monthly", "name": "yyyy/MM"}, "is no name of a tag. Use letters of ASCII"),
        ({"period": "monthly", "name": "'month' YYYY"}, "have no meaning"),
        ({"period": "daily", "delay": "1 month"}, "has no fixed length"),
        ({"period": "daily", "time_zone": "Mars/Olympus"}, "is no time zone of this machine"),
        ({"period": "daily", "retained": "0 s"}, "Remove it to keep all tags"),
        ({"savepoints": True, "savepoint_name": "fixed"}, "must contain {name} or {decision}"),
        ({"savepoints": True, "savepoint_name": "{name}-{time}"}, "has only the placeholders"),
        ({"savepoints": True, "savepoint_name": "s/{name}"}, "is no name of a tag"),
    ],
)
def test_settings_that_make_no_sense(values: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TagsOptions.model_validate(values)
    assert reason in str(caught.value)
