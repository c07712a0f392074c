"""Times of partitions: patterns, formats, calendars and zones."""

from collections.abc import Mapping
from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sluicegate.lakes.capabilities import PartitionField
from sluicegate.listeners.intervals import DAY, HOUR, MONTH, Interval, parse_interval
from sluicegate.listeners.mark_done.formats import Rule, default_parser, parser, period_of
from tests.listeners.mark_done.policies import at

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
BY_DAY = Rule(None, default_parser, DAY, UTC)
IN_BERLIN = Rule(None, default_parser, DAY, BERLIN)
IN_NEW_YORK = Rule(None, default_parser, DAY, NEW_YORK)
IN_JAVA = Rule("$dt$hh", parser("yyyyMMdd'T'HH"), HOUR, UTC)
OF_HOURS = Rule("$year-$month-$day $hour:00:00", default_parser, HOUR, UTC)


def found(values: Mapping[str, str | None], rule: Rule, *fields: PartitionField) -> tuple[int, int]:
    return period_of(values, {field.name: field for field in fields}, rule)


def field(kind: Any, name: str = "x", *, zoned: bool = False) -> PartitionField:
    return PartitionField(name, kind, zoned)


def monthly(pattern: str) -> Rule:
    return Rule(pattern, default_parser, MONTH, UTC)


SEVEN: dict[str, str | None] = {"year": "2024", "month": "2", "day": "29", "hour": "7", "airport": None}
WITH_BUCKET = (field("opaque", "b"), field("identity", "airport"), field("month"))
PERIODS: list[tuple[dict[str, str | None], Rule, tuple[PartitionField, ...], str, str]] = [
    ({"dt": "2024-02-29"}, BY_DAY, (), "2024-02-29", "2024-03-01"),
    ({"dt": "2024-2-1"}, BY_DAY, (), "2024-02-01", "2024-02-02"),
    ({"dt": "2024-02-01 05:06:07"}, BY_DAY, (), "2024-02-01 05:06:07", "2024-02-02 05:06:07"),
    ({"dt": "2024-02-01T05:06:07.123456"}, BY_DAY, (), "2024-02-01 05:06:07", "2024-02-02 05:06:07"),
    ({"dt": "0099-01-01"}, BY_DAY, (), "0099-01-01", "0099-01-02"),
    # A text with a zone needs none.
    ({"dt": "2024-07-01T00:00:00.000000Z"}, IN_BERLIN, (), "2024-07-01", "2024-07-02"),
    (SEVEN, OF_HOURS, (), "2024-02-29 07:00", "2024-02-29 08:00"),
    # The longest name of a pattern counts.
    ({"dt": "x", "dt2": "2024-01"}, monthly("$dt2-01"), (), "2024-01-01", "2024-02-01"),
    ({"dt": "20240229T", "hh": "23"}, IN_JAVA, (), "2024-02-29 23:00", "2024-03-01"),
    ({"dt": "2024-01-01", "airport": "JFK"}, BY_DAY._replace(field="dt"), (), "2024-01-01", "2024-01-02"),
    # A transform has the time itself.
    ({"x": "2024"}, BY_DAY, (field("year"),), "2024-01-01", "2025-01-01"),
    ({"x": "2024-12"}, BY_DAY, (field("month"),), "2024-12-01", "2025-01-01"),
    ({"x": "2024-02-29"}, BY_DAY, (field("day"),), "2024-02-29", "2024-03-01"),
    ({"x": "2024-02-29-23"}, BY_DAY, (field("hour"),), "2024-02-29 23:00", "2024-03-01"),
    ({"x": "19782"}, BY_DAY, (field("days"),), "2024-02-29", "2024-03-01"),
    # That of a time with a zone is in UTC.
    ({"x": "2024-01"}, IN_NEW_YORK, (field("month", zoned=True),), "2024-01-01", "2024-02-01"),
    ({"x": "2024-01"}, IN_NEW_YORK, (field("month"),), "2024-01-01 05:00", "2024-02-01 05:00"),
    # A bucket beside it does not matter.
    ({"b": "3", "airport": "JFK", "x": "2024-01"}, BY_DAY, WITH_BUCKET, "2024-01-01", "2024-02-01"),
    # A day with a change of the clock has 23 or 25 hours.
    ({"dt": "2024-03-31"}, IN_BERLIN, (), "2024-03-30 23:00", "2024-03-31 22:00"),
    ({"dt": "2024-10-27"}, IN_BERLIN, (), "2024-10-26 22:00", "2024-10-27 23:00"),
    ({"dt": "2024-07-01"}, IN_BERLIN, (), "2024-06-30 22:00", "2024-07-01 22:00"),
]


@pytest.mark.parametrize(("values", "rule", "fields", "start", "end"), PERIODS)
def test_the_period_of_a_partition(
    values: dict[str, str | None], rule: Rule, fields: tuple[PartitionField, ...], start: str, end: str
) -> None:
    assert found(values, rule, *fields) == (at(start), at(end))


NULL = "the partition value dt is null"


@pytest.mark.parametrize(
    ("values", "rule", "fields", "reason"),
    [
        *(
            ({"dt": text}, BY_DAY, (), text)
            for text in (
                "2024-02-30",
                "2023-02-29",
                "2024-13-01",
                "today",
                "",
                "\uff12\uff10\uff12\uff14-02-01",
            )
        ),
        *(({"dt": value}, BY_DAY, (), NULL) for value in (None, "__DEFAULT_PARTITION__")),
        ({"dt": "__HIVE_DEFAULT_PARTITION__"}, BY_DAY._replace(pattern="$dt"), (), NULL),
        (
            {"dt": "2024-01-01"},
            BY_DAY._replace(pattern="$day"),
            (),
            "a column that the partition lacks; it has dt",
        ),
        ({"dt": "2024-01-01", "airport": "JFK"}, BY_DAY, (), "(dt, airport) leave open"),
        ({"b": "2024"}, BY_DAY, (field("opaque", "b"),), "leave open which one has the time"),
        ({"b": "2024"}, BY_DAY._replace(field="b"), (field("opaque", "b"),), "partition field b has no time"),
        ({"x": "12024"}, BY_DAY, (field("year"),), "12024"),
        ({"x": "2024-13"}, BY_DAY, (field("month"),), "2024-13"),
        ({"x": "2024-01-01-24"}, BY_DAY, (field("hour"),), "2024-01-01-24"),
        ({"m": "9999-12"}, monthly("$m-01"), (), "ends after the year 9999"),
    ],
)
def test_a_partition_without_a_time_has_a_reason(
    values: dict[str, str | None], rule: Rule, fields: tuple[PartitionField, ...], reason: str
) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        found(values, rule, *fields)
    assert reason in str(caught.value)


@pytest.mark.parametrize("text", ["yyyyMMdd hh", "QQ", "MMdd", "yyyy-yyyy"])
def test_a_format_without_a_meaning_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"format|letters"):
        parser(text)


HALF = Interval(0, 1_800)


@pytest.mark.parametrize(
    ("label", "length", "end"),
    [
        ("2024-10-27 01:00:00", HOUR, "2024-10-27 00:00"),
        # The clock shows this hour twice, and both passes have one label.
        ("2024-10-27 02:00:00", HOUR, "2024-10-27 02:00"),
        ("2024-10-27 03:00:00", HOUR, "2024-10-27 03:00"),
        ("2024-03-31 01:00:00", HOUR, "2024-03-31 01:00"),
        ("2024-03-31 03:00:00", HOUR, "2024-03-31 02:00"),
        ("2024-10-27 02:00:00", HALF, "2024-10-27 01:30"),
        ("2024-10-27 01:30:00", HALF, "2024-10-27 00:00"),
    ],
)
def test_an_hour_ends_after_the_last_row_with_its_label(label: str, length: Interval, end: str) -> None:
    assert found({"dt": label}, Rule(None, default_parser, length, BERLIN))[1] == at(end)


def test_an_hour_that_the_clock_skips_does_not_end_before_it_begins() -> None:
    start, end = found({"dt": "2024-03-31 02:00:00"}, Rule(None, default_parser, HOUR, BERLIN))
    assert start <= end


def test_a_month_is_one_of_the_calendar() -> None:
    periods = [found({"m": f"2024-{month:02}"}, monthly("$m-01")) for month in range(1, 13)]
    lengths = [(end - start) // 86_400_000 for start, end in periods]
    assert lengths == [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("1 month", Interval(1, 0)),
        ("3 months", Interval(3, 0)),
        ("1 y", Interval(12, 0)),
        ("1 d", Interval(0, 86_400)),
        ("2h", Interval(0, 7_200)),
        ("15 min", Interval(0, 900)),
        ("1 week", Interval(0, 604_800)),
    ],
)
def test_a_length_of_time(text: str, interval: Interval) -> None:
    assert parse_interval(text) == interval


@pytest.mark.parametrize("text", ["", "1", "month", "0 d", "1 M", "1 m", "-1 d", "1.5 d"])
def test_no_length_of_time(text: str) -> None:
    with pytest.raises(ValueError, match="Write a number and a unit"):
        parse_interval(text)
