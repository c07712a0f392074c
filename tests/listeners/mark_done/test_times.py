"""Times of partitions: patterns, formats, calendars and zones."""

from collections.abc import Mapping
from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from sluicegate.lakes.capabilities import PartitionField
from sluicegate.listeners.intervals import DAY, HOUR, MONTH, Interval, parse_interval
from sluicegate.listeners.mark_done.formats import Rule, default_parser, parser, period_of
from tests.listeners.mark_done.policies import at

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
BY_DAY = Rule(None, default_parser, DAY, UTC)


def found(values: Mapping[str, str | None], rule: Rule, *fields: PartitionField) -> tuple[int, int]:
    return period_of(values, {field.name: field for field in fields}, rule)


def reason(values: Mapping[str, str | None], rule: Rule, *fields: PartitionField) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        found(values, rule, *fields)
    return str(caught.value)


def test_the_only_column_has_the_time() -> None:
    assert found({"dt": "2024-02-29"}, BY_DAY) == (at("2024-02-29"), at("2024-03-01"))


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("2024-2-1", "2024-02-01"),
        ("2024-02-01 05:06:07", "2024-02-01 05:06:07"),
        ("2024-02-01T05:06:07.123456", "2024-02-01 05:06:07"),
        ("0099-01-01", "0099-01-01"),
    ],
)
def test_a_text_without_a_format(text: str, start: str) -> None:
    assert found({"dt": text}, BY_DAY)[0] == at(start)


def test_a_text_with_a_zone_needs_none() -> None:
    rule = BY_DAY._replace(zone=BERLIN)
    assert found({"dt": "2024-07-01T00:00:00.000000Z"}, rule)[0] == at("2024-07-01")


def test_a_pattern_of_several_columns() -> None:
    rule = Rule("$year-$month-$day $hour:00:00", default_parser, HOUR, UTC)
    values = {"year": "2024", "month": "2", "day": "29", "hour": "7", "airport": None}
    assert found(values, rule) == (at("2024-02-29 07:00"), at("2024-02-29 08:00"))


def test_the_longest_name_of_a_pattern_counts() -> None:
    rule = Rule("$dt2-01", default_parser, MONTH, UTC)
    assert found({"dt": "x", "dt2": "2024-01"}, rule) == (at("2024-01-01"), at("2024-02-01"))


def test_a_format_in_letters_of_java() -> None:
    rule = Rule("$dt$hh", parser("yyyyMMdd'T'HH"), HOUR, UTC)
    assert found({"dt": "20240229T", "hh": "23"}, rule) == (at("2024-02-29 23:00"), at("2024-03-01"))


@pytest.mark.parametrize("text", ["yyyyMMdd hh", "QQ", "MMdd", "yyyy-yyyy"])
def test_a_format_without_a_meaning_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"format|letters"):
        parser(text)


@pytest.mark.parametrize(
    "text", ["2024-02-30", "2023-02-29", "2024-13-01", "today", "", "\uff12\uff10\uff12\uff14-02-01"]
)
def test_a_text_that_is_no_time_has_a_reason(text: str) -> None:
    assert text in reason({"dt": text}, BY_DAY)


@pytest.mark.parametrize("value", [None, "__DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"])
def test_a_null_has_a_reason(value: str | None) -> None:
    assert reason({"dt": value}, BY_DAY) == "the partition value dt is null"
    assert reason({"dt": value}, BY_DAY._replace(pattern="$dt")) == "the partition value dt is null"


def test_a_pattern_with_another_column_has_a_reason() -> None:
    assert "names a column that the partition lacks; it has dt" in reason(
        {"dt": "2024-01-01"}, BY_DAY._replace(pattern="$day")
    )


def test_two_columns_without_a_pattern_have_a_reason() -> None:
    assert "(dt, airport) leave open" in reason({"dt": "2024-01-01", "airport": "JFK"}, BY_DAY)
    rule = BY_DAY._replace(field="dt")
    assert found({"dt": "2024-01-01", "airport": "JFK"}, rule)[0] == at("2024-01-01")


@pytest.mark.parametrize(
    ("kind", "text", "start", "end"),
    [
        ("year", "2024", "2024-01-01", "2025-01-01"),
        ("month", "2024-12", "2024-12-01", "2025-01-01"),
        ("day", "2024-02-29", "2024-02-29", "2024-03-01"),
        ("hour", "2024-02-29-23", "2024-02-29 23:00", "2024-03-01"),
        ("days", "19782", "2024-02-29", "2024-03-01"),
    ],
)
def test_a_transform_has_the_time_itself(kind: str, text: str, start: str, end: str) -> None:
    field = PartitionField("ts_x", kind)  # type: ignore[arg-type]
    assert found({"ts_x": text}, BY_DAY, field) == (at(start), at(end))


def test_the_transform_of_a_time_with_a_zone_is_in_utc() -> None:
    rule = BY_DAY._replace(zone=NEW_YORK)
    assert found({"m": "2024-01"}, rule, PartitionField("m", "month", True))[1] == at("2024-02-01")
    assert found({"m": "2024-01"}, rule, PartitionField("m", "month", False))[1] == at("2024-02-01 05:00")


def test_a_bucket_beside_a_transform_does_not_matter() -> None:
    fields = (
        PartitionField("b", "opaque"),
        PartitionField("airport", "identity"),
        PartitionField("m", "month"),
    )
    assert found({"b": "3", "airport": "JFK", "m": "2024-01"}, BY_DAY, *fields)[1] == at("2024-02-01")


def test_a_bucket_alone_has_no_time() -> None:
    assert "leave open which one has the time" in reason({"b": "2024"}, BY_DAY, PartitionField("b", "opaque"))
    rule = BY_DAY._replace(field="b")
    assert reason({"b": "2024"}, rule, PartitionField("b", "opaque")) == "the partition field b has no time"


@pytest.mark.parametrize(
    ("kind", "text"), [("year", "12024"), ("month", "2024-13"), ("hour", "2024-01-01-24")]
)
def test_a_part_of_a_time_outside_of_the_calendar_has_a_reason(kind: str, text: str) -> None:
    assert text in reason({"x": text}, BY_DAY, PartitionField("x", kind))  # type: ignore[arg-type]


# --- zones ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("day", "start", "end"),
    [
        ("2024-03-31", "2024-03-30 23:00", "2024-03-31 22:00"),
        ("2024-10-27", "2024-10-26 22:00", "2024-10-27 23:00"),
        ("2024-07-01", "2024-06-30 22:00", "2024-07-01 22:00"),
    ],
)
def test_a_day_with_a_change_of_the_clock_has_23_or_25_hours(day: str, start: str, end: str) -> None:
    assert found({"dt": day}, BY_DAY._replace(zone=BERLIN)) == (at(start), at(end))


@pytest.mark.parametrize(
    ("label", "end"),
    [
        ("2024-10-27 01:00:00", "2024-10-27 00:00"),
        # The clock shows this hour twice, and both passes have one label.
        ("2024-10-27 02:00:00", "2024-10-27 02:00"),
        ("2024-10-27 03:00:00", "2024-10-27 03:00"),
        ("2024-03-31 01:00:00", "2024-03-31 01:00"),
        ("2024-03-31 03:00:00", "2024-03-31 02:00"),
    ],
)
def test_an_hour_ends_after_the_last_row_with_its_label(label: str, end: str) -> None:
    rule = Rule(None, default_parser, HOUR, BERLIN)
    assert found({"dt": label}, rule)[1] == at(end)


def test_half_an_hour_that_the_clock_shows_twice_ends_at_the_second() -> None:
    rule = Rule(None, default_parser, Interval(0, 1_800), BERLIN)
    assert found({"dt": "2024-10-27 02:00:00"}, rule)[1] == at("2024-10-27 01:30")
    assert found({"dt": "2024-10-27 01:30:00"}, rule)[1] == at("2024-10-27 00:00")


def test_an_hour_that_the_clock_skips_does_not_end_before_it_begins() -> None:
    start, end = found({"dt": "2024-03-31 02:00:00"}, Rule(None, default_parser, HOUR, BERLIN))
    assert start <= end


def test_a_month_is_one_of_the_calendar() -> None:
    rule = Rule("$m-01", default_parser, MONTH, UTC)
    lengths = [
        (lambda each: (each[1] - each[0]) // 86_400_000)(found({"m": f"2024-{month:02}"}, rule))
        for month in range(1, 13)
    ]
    assert lengths == [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


def test_the_end_of_the_calendar_has_a_reason() -> None:
    assert "ends after the year 9999" in reason({"m": "9999-12"}, Rule("$m-01", default_parser, MONTH, UTC))


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
