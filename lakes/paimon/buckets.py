"""Bucket layouts of tables: the supported ones, and the assignment of rows to buckets."""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pypaimon.schema.table_schema import TableSchema

UNAWARE: Final = -1
"""Number of buckets of a table without fixed buckets, whose files are all in bucket 0."""

_KEY_TYPES: Final = re.compile(
    r"(STRING|CHAR\b.*|VARCHAR\b.*|BOOLEAN|TINYINT|SMALLINT|INT|INTEGER|BIGINT|DATE)( NOT NULL)?"
)
"""Types whose hash is known to be equal in Paimon's Java library and in pypaimon."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Properties of a table that determine the bucket of a row."""

    total: int
    """Number of buckets, as in every manifest entry. UNAWARE: any writer puts any row into bucket 0."""
    key: tuple[tuple[int, str], ...] = ()
    """Id and type of each field of the bucket key, in order. Names are left out, because renaming moves no
    row."""
    function: str = "default"

    @property
    def fixed(self) -> bool:
        return self.total != UNAWARE

    @property
    def numbers(self) -> range:
        """Bucket numbers that files can have."""
        return range(self.total if self.fixed else 1)

    @property
    def joined(self) -> str | None:
        """Reason why all writers of such a table are one region; None if they are not."""
        if not self.fixed:
            return None
        return f"the table has {self.total} fixed bucket{'s' * (self.total > 1)}, which all writers share"


def layout(schema: TableSchema) -> Layout:
    """Return the layout of a schema. It is only meaningful for a schema without a `refusal`."""
    options = schema.options
    total = int(options.get("bucket", UNAWARE))
    if total == UNAWARE:
        return Layout(UNAWARE)
    fields = {field.name: field for field in schema.fields}
    key = ((fields[name].id, _type(fields[name])) for name in _key(schema) if name in fields)
    return Layout(total, tuple(key), str(options.get("bucket-function.type", "default")).lower())


def refusal(schema: TableSchema) -> str | None:
    """Return the first unsupported property of a schema's buckets, None if there is none."""
    options = schema.options
    found = layout(schema)
    if not found.fixed:
        return None
    if found.total < 1:
        return f"the option bucket = {options['bucket']} is not supported; only -1 and fixed numbers are"
    if found.function != "default":
        return f"the option bucket-function.type = {options['bucket-function.type']} is not supported"
    fields = {field.name: field for field in schema.fields}
    names = _key(schema)
    if not names:
        return f"it has fixed buckets (bucket = {found.total}), but no bucket-key that says what goes where"
    for name in names:
        if name not in fields:
            return f"its bucket-key names the column {name}, which it does not have"
        if not _KEY_TYPES.fullmatch(str(fields[name].type).upper()):
            return f"its bucket-key is {name}, and keys of the type {_type(fields[name])} are not supported"
    return None


def changed(older: Layout, newer: Layout) -> str | None:
    """Return the difference between two layouts of a table, None if they are equal."""
    if older.total != newer.total:
        before = f"from {older.total}" if older.fixed else "from none"
        return f"its number of buckets was changed {before} to {newer.total}"
    return None if older == newer else "its bucket-key was changed"


def hash_once(extractor: Any) -> Any:
    """Make pypaimon's bucket assignment hash each distinct key of a batch only once; return the extractor.

    The hash function itself stays pypaimon's, which takes about ten microseconds for each key.
    """
    of_each = extractor._extract_buckets_batch

    def assign(data: pa.RecordBatch) -> list[int]:
        codes = np.zeros(data.num_rows, np.int64)
        for column in extractor._input_columns(data, extractor.bucket_key_indices):
            encoded = column.dictionary_encode(null_encoding="encode")
            codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
            # Replace the combined codes by their ranks, so that the product with the next column cannot
            # overflow.
            _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
        buckets = of_each(data.take(pa.array(first)))
        placed: list[int] = np.asarray(buckets, np.int32)[codes].tolist()
        return placed

    extractor._extract_buckets_batch = assign
    return extractor


def one_group(extractor: Any) -> Any:
    """Make pypaimon leave all rows together, for a table without partitions and fixed buckets."""
    extractor.extract_partition_bucket_groups = lambda rows: [((), 0, None)] if rows.num_rows else []
    return extractor


def _key(schema: TableSchema) -> list[str]:
    parts = str(schema.options.get("bucket-key") or "").split(",")
    return [part.strip() for part in parts if part.strip()]


def _type(field: Any) -> str:
    return str(field.type).upper().removesuffix(" NOT NULL")
