"""Metrics of data files, from the footers of Parquet files."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from pyarrow.parquet import FileMetaData
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import sanitize_column_names
from pyiceberg.types import BinaryType, StringType

from sluicegate.lakes.extremes import unbounded
from sluicegate.lakes.floats import Counts, Floats
from sluicegate.lakes.iceberg.layout import metric_pairs
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.port import SchemaMismatch, TableRefused

_FIELDS: Final = (
    *("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"),
    *("lower_bounds", "upper_bounds"),
)
_NONE: Final = MetricsMode(MetricModeTypes.NONE)
_FULL: Final = MetricsMode(MetricModeTypes.FULL)
_COUNTS: Final = MetricsMode(MetricModeTypes.COUNTS)
_TRUNCATE: Final = MetricsMode(MetricModeTypes.TRUNCATE, 16)
"""Iceberg's default."""
_LAST: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


class Metrics:
    """Maker of the metrics of one table's files."""

    def __init__(self, table: TableView, floats: Floats, bounded: Collection[str] | None = None) -> None:
        """Read the table's properties. Raises TableRefused for values that cannot be followed.

        `bounded` are the columns of the table that get bounds, whatever the properties are; the others get
        counts. None: the properties decide.
        """
        self._floats = floats
        self._plan: dict[int, Any] = _plan(table)
        if bounded is not None:
            self._plan = {
                column: replace(each, mode=_mode(each, bounded)) for column, each in self._plan.items()
            }
        self._columns: dict[str, int] = parquet_path_to_id_mapping(sanitize_column_names(table.schema))
        self._lengths = {
            column: each.mode.length
            for column, each in self._plan.items()
            if isinstance(each.iceberg_type, StringType) and each.mode.type is MetricModeTypes.TRUNCATE
        }
        """Characters of the bounds of texts."""
        self._plan |= {column: replace(self._plan[column], mode=_FULL) for column in self._lengths}

    def of(self, footer: FileMetaData, counts: Counts) -> dict[str, Any]:
        """Return the fields of a file's record with its metrics and split offsets. Raises SchemaMismatch.

        `counts` are those of its columns of floats.
        """
        bare = self._floats.without_statistics(counts)
        metrics = self._found(footer, dict.fromkeys(bare, _NONE))
        for names, count in counts.nan.items():
            column = self._columns[".".join(names)]
            if self._plan[column].mode != _NONE:
                metrics["value_counts"][column] = footer.num_rows
                metrics["null_value_counts"][column] = counts.null[names]
                metrics["nan_value_counts"][column] = count
        return _fields(metrics)

    def of_footer(self, footer: FileMetaData) -> dict[str, Any]:
        """Return the same fields of a file that another program wrote. Raises SchemaMismatch.

        Columns of floats have no bounds, because the footer does not count NaN.
        """
        bare = {path: _NONE if found.nulls is None else _COUNTS for path, found in unbounded(footer)}
        return _fields(self._found(footer, bare))

    def _found(self, footer: FileMetaData, modes: Mapping[str, MetricsMode]) -> dict[str, Any]:
        """Return metrics from a footer, of some columns in another mode. Raises SchemaMismatch."""
        # The library warns of each column whose footer has no statistics, unless none are wanted.
        wanted = self._plan | {
            column: replace(self._plan[column], mode=modes[path])
            for path, column in self._columns.items()
            if path in modes and self._plan[column].mode != _NONE
        }
        try:
            found = data_file_statistics_from_parquet_metadata(footer, wanted, self._columns)
            metrics: dict[str, Any] = found.to_serialized_dict()
        except (OverflowError, ValueError) as error:
            raise SchemaMismatch(f"a value of the rows is out of range: {error}") from error
        self._limit_bounds(metrics["lower_bounds"], metrics["upper_bounds"], footer)
        return metrics

    def _limit_bounds(self, lower: dict[int, bytes], upper: dict[int, bytes], footer: FileMetaData) -> None:
        """Take bounds away that cover only a part of the rows, and shorten those of texts."""
        for path in _partly_bounded(footer):
            lower.pop(self._columns[path], None)
            upper.pop(self._columns[path], None)
        for column in self._lengths.keys() & lower.keys():
            lower[column] = lower[column].decode()[: self._lengths[column]].encode()
        for column in self._lengths.keys() & upper.keys():
            above = shortened_above(upper.pop(column).decode(), self._lengths[column])
            if above is not None:
                upper[column] = above.encode()


def _mode(of_table: StatisticsCollector, bounded: Collection[str]) -> MetricsMode:
    """Return the mode of a column if the job names the columns with bounds. Nested columns have none."""
    if of_table.column_name not in bounded or "." in of_table.column_name:
        return _COUNTS
    if of_table.mode.type in (MetricModeTypes.FULL, MetricModeTypes.TRUNCATE):
        return of_table.mode
    return _TRUNCATE if isinstance(of_table.iceberg_type, StringType | BinaryType) else _FULL


def _fields(metrics: Mapping[str, Any]) -> dict[str, Any]:
    pairs = {name: metric_pairs(metrics[name]) for name in _FIELDS}
    return {**pairs, "split_offsets": metrics["split_offsets"]}


def shortened_above(text: str, length: int) -> str | None:
    """Return a text of so many characters, at most, that is not below another one; None if there is none."""
    if len(text) <= length:
        return text
    start = text[:length].rstrip(chr(_LAST))
    if not start:
        return None
    following = ord(start[-1]) + 1
    # They are no characters, so no text in UTF-8 has one.
    return start[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _partly_bounded(footer: FileMetaData) -> set[str]:
    """Return the columns with values in a row group that has no bounds of them.

    Parquet leaves out bounds of more than 4,096 bytes.
    """
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(footer.num_columns)]
    found = [(chunk.path_in_schema, chunk.statistics) for chunk in chunks]
    return {path for path, part in found if part is None or (part.num_values and not part.has_min_max)}


def _plan(table: TableView) -> Any:
    try:
        return compute_statistics_plan(table.schema, dict(table.properties))
    except ValueError as error:
        raise TableRefused(
            f"a property write.metadata.metrics.* of {table.event_location} has no valid value: {error}. "
            "Correct it"
        ) from error
