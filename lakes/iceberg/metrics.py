"""Metrics of data files, from the footers of Parquet files."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from pyarrow.parquet import FileMetaData
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import sanitize_column_names
from pyiceberg.types import BinaryType, StringType

from sluicegate.lakes.iceberg.layout import metric_pairs
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.iceberg.values import stored_bound
from sluicegate.lakes.parquet import Counts, Extremes, extremes_of, shortened_above, shortened_bytes_above
from sluicegate.lakes.port import SchemaMismatch, TableRefused

_FIELDS: Final = (
    *("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"),
    *("lower_bounds", "upper_bounds"),
)
_NONE: Final = MetricsMode(MetricModeTypes.NONE)
_DEFAULT_MODE: Final = "write.metadata.metrics.default"
_COLUMN_MODE: Final = "write.metadata.metrics.column."
_MOST: Final = "write.metadata.metrics.max-inferred-column-defaults"
_DEFAULT_MOST: Final = 100
_MODE: Final = re.compile(r"none|counts|full|truncate\([1-9][0-9]*\)")
_FULL: Final = MetricsMode(MetricModeTypes.FULL)
_COUNTS: Final = MetricsMode(MetricModeTypes.COUNTS)
_TRUNCATE: Final = MetricsMode(MetricModeTypes.TRUNCATE, 16)
"""Iceberg's default."""


class Metrics:
    """Maker of the metrics of one table's files.

    Bounds are made of the numbers and bytes in the footer. Objects of Python would limit them: it has no time
    after the year 9999.
    """

    def __init__(self, table: TableView, bounded: Collection[str] | None = None) -> None:
        """Read the table's properties. Raises TableRefused for values that cannot be followed.

        `bounded` are the columns of the table that get bounds, whatever the properties are; the others get
        counts. None: the properties decide.
        """
        self._plan: dict[int, Any] = _plan(table)
        if bounded is not None:
            self._plan = {
                column: replace(each, mode=_mode(each, bounded)) for column, each in self._plan.items()
            }
        self._columns: dict[str, int] = parquet_path_to_id_mapping(sanitize_column_names(table.schema))

    def of(self, footer: FileMetaData, counts: Counts) -> dict[str, Any]:
        """Return the fields of a file's record with its metrics and split offsets. Raises SchemaMismatch.

        `counts` are those of its columns of floats: those with NaN have no statistics in the footer.
        """
        metrics = self._found(footer, without_nan=True)
        for names, count in counts.nan.items():
            column = self._columns[".".join(names)]
            if self._plan[column].mode != _NONE:
                metrics["value_counts"][column] = footer.num_rows
                metrics["null_value_counts"][column] = counts.null[names]
                metrics["nan_value_counts"][column] = count
        return _fields(metrics, footer)

    def of_footer(self, footer: FileMetaData) -> dict[str, Any]:
        """Return the same fields of a file that another program wrote. Raises SchemaMismatch.

        Columns of floats have no bounds, because the footer does not count NaN.
        """
        return _fields(self._found(footer, without_nan=False), footer)

    def _found(self, footer: FileMetaData, *, without_nan: bool) -> dict[str, dict[int, Any]]:
        """Return metrics from a footer. Raises SchemaMismatch."""
        found: dict[str, dict[int, Any]] = {name: {} for name in _FIELDS}
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        for number in range(footer.num_columns):
            path = footer.schema.column(number).path
            column = self._columns[path]
            planned = self._plan[column]
            chunks = [group.column(number) for group in groups]
            found["column_sizes"][column] = sum(chunk.total_compressed_size for chunk in chunks)
            if planned.mode == _NONE:
                continue
            try:
                extremes = extremes_of(footer, number, without_nan=without_nan)
                bounds = _bounds(planned, extremes)
            except ValueError as error:
                raise SchemaMismatch(f"the column {path} has bounds that cannot be used: {error}") from error
            found["value_counts"][column] = sum(chunk.num_values for chunk in chunks)
            if extremes.nulls is not None:
                found["null_value_counts"][column] = extremes.nulls
            for name, bound in zip(("lower_bounds", "upper_bounds"), bounds, strict=True):
                if bound is not None:
                    found[name][column] = bound
        return found


def _bounds(planned: StatisticsCollector, extremes: Extremes) -> tuple[bytes | None, bytes | None]:
    """Return the bounds of a column as a record has them, shortened as its mode says."""
    kind, mode = planned.iceberg_type, planned.mode
    if mode == _COUNTS or not extremes.bounded:
        return None, None
    lowest, highest = extremes.lowest, extremes.highest
    length = mode.length if mode.type is MetricModeTypes.TRUNCATE else None
    if isinstance(kind, StringType):
        low, high = lowest.decode(), highest.decode()
        above = high if length is None else shortened_above(high, length)
        return low[:length].encode(), None if above is None else above.encode()
    if isinstance(kind, BinaryType):
        return lowest[:length], highest if length is None else shortened_bytes_above(highest, length)
    return stored_bound(kind, lowest), stored_bound(kind, highest)


def _mode(of_table: StatisticsCollector, bounded: Collection[str]) -> MetricsMode:
    """Return the mode of a column if the job names the columns with bounds. Nested columns have none."""
    if of_table.column_name not in bounded or "." in of_table.column_name:
        return _COUNTS
    if of_table.mode.type in (MetricModeTypes.FULL, MetricModeTypes.TRUNCATE):
        return of_table.mode
    return _TRUNCATE if isinstance(of_table.iceberg_type, StringType | BinaryType) else _FULL


def _fields(metrics: Mapping[str, Any], footer: FileMetaData) -> dict[str, Any]:
    pairs = {name: metric_pairs(metrics[name]) for name in _FIELDS}
    firsts = [footer.row_group(number).column(0) for number in range(footer.num_row_groups)]
    return {**pairs, "split_offsets": sorted(map(_start, firsts))}


def _start(chunk: Any) -> int:
    """Return the place where the pages of a column begin."""
    first, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
    return int(first if dictionary is None or not chunk.has_dictionary_page else min(first, dictionary))


def _plan(table: TableView) -> dict[int, Any]:
    """Return the mode of each column, as the properties say. Raises TableRefused.

    As with Iceberg's own library, a table without a default mode has metrics of its first 100 columns, of
    those that it is sorted by, and of those with a mode of their own: the event of each file has them.
    """
    try:
        plan: dict[int, Any] = compute_statistics_plan(table.schema, dict(table.properties))
    except ValueError as error:
        pairs = table.properties.items()
        wrong = [f"{name} = {value}" for name, value in pairs if _is_no_mode(name, value)]
        raise TableRefused(
            f"{table.event_location}: the property {', '.join(wrong) or 'write.metadata.metrics.*'} is no "
            f"mode of statistics ({error}). Set it to none, counts, full or truncate(16)"
        ) from error
    return _limited(table, plan)


def _limited(table: TableView, plan: dict[int, Any]) -> dict[int, Any]:
    if _DEFAULT_MODE in table.properties:
        return plan
    text = table.properties.get(_MOST, "").strip()
    most = int(text) if text.isdigit() else _DEFAULT_MOST
    top = [field.field_id for field in table.schema.fields if field.field_id in plan]
    first = {*list(dict.fromkeys([*top, *plan]))[:most]}
    first.update(field.get("source-id", -1) for field in table.raw_sort_fields)
    return {
        column: each
        if column in first or f"{_COLUMN_MODE}{each.column_name}" in table.properties
        else replace(each, mode=_NONE)
        for column, each in plan.items()
    }


def _is_no_mode(name: str, value: str) -> bool:
    """Return True for a property that states a mode of statistics, with a value that is none."""
    return name.startswith((_DEFAULT_MODE, _COLUMN_MODE)) and _MODE.fullmatch(value.strip().lower()) is None
