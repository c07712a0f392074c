"""Properties of a table that the files of a writer depend on."""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from sluicegate.lakes.file_options import Compression, FileOptions, SortColumn, is_sortable
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.port import TableRefused

_TARGET: Final = "write.target-file-size-bytes"
_ROW_GROUP: Final = "write.parquet.row-group-size-bytes"
_DEFAULT_TARGET: Final = 512 << 20
_LARGEST: Final = (1 << 63) - 1
_CODECS: Final[Mapping[str, str]] = {
    **{name: name for name in ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")},
    # The name of Parquet for what Arrow writes as LZ4.
    "lz4_raw": "lz4",
}
"""Codecs by their names in the property."""
_DIGITS: Final = 19
"""Of that number."""


def file_options(table: TableView, columns: pa.Schema) -> FileOptions:
    """Return the values of the table. Raises TableRefused for those that cannot be followed."""
    properties = table.properties
    return FileOptions(
        target_size=_positive(properties, _TARGET, _DEFAULT_TARGET),
        row_group_size=_positive(properties, _ROW_GROUP, 0) or None,
        sort=_sort_order(table, columns),
        compression=_compression(properties),
    )


def page_options(table: TableView) -> dict[str, Any]:
    """Return the arguments of `ParquetWriter` for pages and dictionaries. Raises TableRefused."""
    properties = table.properties
    return {
        "data_page_size": _positive(properties, "write.parquet.page-size-bytes", 1 << 20),
        "dictionary_pagesize_limit": _positive(properties, "write.parquet.dict-size-bytes", 2 << 20),
        "write_batch_size": _positive(properties, "write.parquet.page-row-limit", 20_000),
    }


def _sort_order(table: TableView, columns: pa.Schema) -> tuple[SortColumn, ...] | None:
    """Return the table's sort order up to its first field that is a transform or inside of a column."""
    names = {column.field_id: column.name for column in table.schema.fields}
    found = []
    for field in table.raw_sort_fields:
        name = names.get(field.get("source-id", -1))
        if name is None or field.get("transform") != "identity" or not is_sortable(columns.field(name).type):
            break
        nulls_first = field.get("null-order") == "nulls-first"
        found.append(SortColumn(name, field.get("direction") == "desc", nulls_first))
    return tuple(found) or None


def _compression(properties: Mapping[str, str]) -> Compression:
    text = properties.get("write.parquet.compression-codec", "zstd")
    codec = _CODECS.get(text.strip().lower())
    if codec is None:
        raise TableRefused(
            f"the property write.parquet.compression-codec = {text} is not supported; use zstd, snappy, "
            "gzip, lz4, brotli or uncompressed"
        )
    level = properties.get("write.parquet.compression-level", "").strip()
    if not level.isdigit() or codec == "uncompressed":
        return Compression(codec)
    _check_level(codec, int(level))
    return Compression(codec, int(level))


def _check_level(codec: str, level: int) -> None:
    try:
        pa.Codec(codec, compression_level=level)
    except (ValueError, OverflowError, OSError) as error:
        raise TableRefused(
            f"the property write.parquet.compression-level = {level} is no level of {codec}: {error}. "
            "Correct or remove it"
        ) from error


def _positive(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "").strip()
    if not text.isdigit():
        return default
    if len(text) > _DIGITS or int(text) > _LARGEST:
        raise TableRefused(f"the property {name} = {text[:64]} is above {_LARGEST}. Give it a lower value")
    return int(text) or default
