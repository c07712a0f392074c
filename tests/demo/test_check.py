"""The comparison: planted flaws are found and counted, and order does not matter."""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sluicegate.cli.local.flights import compare

pytestmark = pytest.mark.slow


def _changed(table: pa.Table, column: str, at: int, value: object) -> pa.Table:
    values = table.column(column).to_pylist()
    values[at] = value
    place = table.column_names.index(column)
    return table.set_column(place, column, pa.array(values, table.schema.field(column).type))


def _shuffled(few: pa.Table) -> pa.Table:
    order = pc.sort_indices(few, [("tailnum", "ascending"), ("flight_id", "descending")])
    return few.take(order).select(sorted(few.column_names))


FLAWS: Final[dict[str, tuple[Callable[[pa.Table], pa.Table], tuple[int, int, int, int]]]] = {
    "another order": (_shuffled, (300, 0, 0, 0)),
    "missing rows": (lambda few: pa.concat_tables([few.slice(0, 100), few.slice(107)]), (293, 7, 0, 0)),
    "doubled rows": (lambda few: pa.concat_tables([few, few.slice(0, 5), few.slice(0, 1)]), (306, 0, 6, 0)),
    "a missing and a doubled row": (
        lambda few: pa.concat_tables([few.slice(1), few.slice(1, 1)]),
        (300, 1, 1, 0),
    ),
    "a row of no source": (lambda few: _changed(few, "flight_id", 3, -1), (300, 1, 0, 1)),
    "an empty table": (lambda few: pa.table({}), (0, 300, 0, 0)),
}
"""Flaws of a table of 300 rows, each with the rows, and with those that are missing, doubled and foreign."""


@pytest.mark.parametrize("flaw", FLAWS)
def test_flaws_are_counted(flaw: str, few: pa.Table) -> None:
    damage, counts = FLAWS[flaw]
    verdict = compare(damage(few), few)
    assert (verdict.rows, verdict.missing, verdict.duplicated, verdict.foreign) == counts
    assert verdict.exact is (flaw == "another order")


@pytest.mark.slow
def test_changed_values_are_found_in_every_column(few: pa.Table) -> None:
    for name in few.column_names:
        if name == "flight_id":
            continue
        other = next(value for value in few.column(name).to_pylist() if value != few.column(name)[0].as_py())
        verdict = compare(_changed(few, name, 0, other), few)
        assert (verdict.altered, verdict.missing, verdict.exact) == (1, 0, False), name


def test_null_is_another_value(few: pa.Table) -> None:
    assert compare(_changed(few, "tailnum", 0, None), few).altered == 1


@pytest.mark.slow
def test_lost_column_is_found(few: pa.Table) -> None:
    assert compare(few.drop_columns(["tailnum"]), few).altered == 300


def test_swapped_values_are_two_changed_rows(few: pa.Table) -> None:
    first, second = few["distance"][0].as_py(), few["distance"][1].as_py()
    assert first != second, "the sample has two flights of different length"
    swapped = _changed(_changed(few, "distance", 0, second), "distance", 1, first)
    assert compare(swapped, few).altered == 2
