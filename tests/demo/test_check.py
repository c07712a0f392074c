"""The comparison: planted flaws are found and counted, and order does not matter."""

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


@pytest.mark.slow
def test_same_rows_in_another_order_are_exact(few: pa.Table) -> None:
    shuffled = few.take(pc.sort_indices(few, [("tailnum", "ascending"), ("flight_id", "descending")]))
    verdict = compare(shuffled.select(sorted(few.column_names)), few)
    assert verdict.exact
    assert (verdict.rows, verdict.expected, verdict.missing, verdict.duplicated) == (300, 300, 0, 0)


@pytest.mark.slow
def test_missing_rows_are_counted(few: pa.Table) -> None:
    verdict = compare(pa.concat_tables([few.slice(0, 100), few.slice(107)]), few)
    assert (verdict.rows, verdict.missing, verdict.duplicated, verdict.exact) == (293, 7, 0, False)


@pytest.mark.slow
def test_duplicated_rows_are_counted(few: pa.Table) -> None:
    verdict = compare(pa.concat_tables([few, few.slice(0, 5), few.slice(0, 1)]), few)
    assert (verdict.rows, verdict.missing, verdict.duplicated, verdict.exact) == (306, 0, 6, False)


@pytest.mark.slow
def test_a_missing_and_a_duplicated_row_do_not_cancel_out(few: pa.Table) -> None:
    verdict = compare(pa.concat_tables([few.slice(1), few.slice(1, 1)]), few)
    assert (verdict.rows, verdict.missing, verdict.duplicated, verdict.exact) == (300, 1, 1, False)


@pytest.mark.slow
def test_rows_of_no_source_are_counted(few: pa.Table) -> None:
    verdict = compare(_changed(few, "flight_id", 3, -1), few)
    assert (verdict.foreign, verdict.missing, verdict.exact) == (1, 1, False)


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


def test_empty_table_misses_everything(few: pa.Table) -> None:
    verdict = compare(pa.table({}), few)
    assert (verdict.rows, verdict.missing, verdict.duplicated, verdict.exact) == (0, 300, 0, False)
