"""Where a stream's files may stand."""

import pytest

from sluicegate.events.locations import table_problem

ALLOWED = ("file:///lake/flights.db/flights", "s3://bucket/lake/")


@pytest.mark.parametrize(
    "table",
    [
        None,
        "file:///lake/flights.db/flights",
        "file:/lake/flights.db/flights/",
        "/lake/flights.db/./flights",
        "s3://bucket/lake/flights",
    ],
)
def test_tables_inside_the_allowed_locations(table: str | None) -> None:
    assert table_problem(table, ALLOWED) is None


@pytest.mark.parametrize(
    "table",
    [
        "file:///lake/flights.db/flights2",
        "file:///lake/flights.db/flights/../other",
        "file:///lake/flights.db",
        "s3://other/lake/flights",
        "hdfs://lake/flights.db/flights",
    ],
)
def test_another_table_is_named_beside_the_allowed_ones(table: str) -> None:
    problem = table_problem(table, ALLOWED)
    assert problem is not None
    assert table in problem
    assert all(each in problem for each in ALLOWED)
    assert "option `table`" in problem
