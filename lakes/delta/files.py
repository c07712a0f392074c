"""Data files that are being written: Parquet, with the statistics of the log."""

import posixpath
import re
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from sluicegate.events.models import FileInfo
from sluicegate.lakes.delta.arrow import physical_schema, renamed
from sluicegate.lakes.delta.entries import encode
from sluicegate.lakes.delta.log import State
from sluicegate.lakes.delta.partitions import partition_folder
from sluicegate.lakes.delta.schema import TableSchema
from sluicegate.lakes.delta.statistics import leaves, make_statistics
from sluicegate.lakes.durable import make_inside
from sluicegate.lakes.encodings import Dictionaries
from sluicegate.lakes.event_time import event_time_range
from sluicegate.lakes.file_options import Compression, FileOptions, FileSettings, require_short
from sluicegate.lakes.floats import Counts, Floats
from sluicegate.lakes.partition_layout import refuse_long_path
from sluicegate.lakes.rolling import close_broken
from sluicegate.lakes.storage import Storage

_CODECS: Final = {"none": "uncompressed", "lz4_raw": "lz4"}
"""Names of codecs that differ in options of files."""
_SIZE: Final = re.compile(r"([0-9]{1,15})(k|m|g|t|)b?")
_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DEFAULT_INDEXED: Final = 32
_FEWER: Final = "set the property delta.dataSkippingNumIndexedCols to a lower number"
_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")

Range = tuple[int | None, int | None]


@dataclass(frozen=True)
class Layout:
    """Everything about the files of a table that its metadata decides."""

    schema: TableSchema
    parquet: pa.Schema
    floats: Floats
    settings: FileSettings
    page_version: str
    bounded: frozenset[tuple[str, ...]]
    """Paths of the columns that get bounds."""
    counted: frozenset[tuple[str, ...]]
    """Paths of the columns whose nulls are counted."""
    dictionaries: Dictionaries = field(default_factory=Dictionaries)


def layout_of(
    state: State,
    schema: TableSchema,
    clustering: Collection[tuple[str, ...]],
    files: FileOptions,
    event_time: str | None,
) -> Layout:
    """Return the layout of a table. `clustering` are the paths that it clusters by: they need statistics."""
    configuration = state.metadata.configuration
    pages = configuration.get("delta.parquet.format.version", "1.0.0")
    parquet = physical_schema(schema.data)
    of_table = frozenset({*_indexed(configuration, schema), *clustering})
    wanted = files.bounded([column.name for column in schema.data], event_time)
    bounded = of_table if wanted is None else frozenset({*_paths_of(wanted, schema), *clustering})
    return Layout(
        schema,
        parquet,
        Floats(parquet),
        files.settings(_of_table(configuration)),
        "2.0" if pages.startswith("2.") else "1.0",
        bounded,
        of_table | bounded,
    )


def _of_table(configuration: Mapping[str, str]) -> FileOptions:
    """Return the values of a table's properties."""
    codec = configuration.get("delta.parquet.compression.codec", "zstd").strip().lower()
    size = _SIZE.fullmatch(configuration.get("delta.targetFileSize", "").strip().lower())
    return FileOptions(
        target_size=(int(size[1]) << _UNITS[size[2]] if size else None),
        compression=Compression(_CODECS.get(codec, codec)),
    )


def _paths_of(names: Collection[str], schema: TableSchema) -> list[tuple[str, ...]]:
    tops = {column.physical for column in schema.data if column.name in names}
    return [leaf.path for leaf in leaves(schema.data) if leaf.path and leaf.path[0] in tops]


def _indexed(configuration: Mapping[str, str], schema: TableSchema) -> list[tuple[str, ...]]:
    paths = [leaf.path for leaf in leaves(schema.data)]
    named = configuration.get("delta.dataSkippingStatsColumns")
    if named is not None:
        names = {name.strip().strip("`").split(".")[0].strip("`") for name in named.split(",")}
        return _paths_of(names, schema)
    said = configuration.get("delta.dataSkippingNumIndexedCols", "")
    most = int(said) if _NUMBER.fullmatch(said) else _DEFAULT_INDEXED
    return [path for path in (paths if most < 0 else paths[:most]) if path]


class DataFile:
    """One file that is being written, of one partition."""

    def __init__(
        self,
        storage: Storage,
        layout: Layout,
        texts: Mapping[str, str | None],
        digest: str | None,
        rows: pa.Table,
        counts: Counts,
    ) -> None:
        """Open a file. `rows` are its first ones, `counts` theirs. Raises OSError or SchemaMismatch."""
        self._storage = storage
        self._layout = layout
        self._texts = texts
        self._folder = partition_folder(layout.schema.partitions, texts)
        self._name = f"data-{digest}-{uuid.uuid4()}.parquet" if digest else f"data-{uuid.uuid4()}.parquet"
        self.path = f"{self._folder}/{self._name}" if self._folder else self._name
        refuse_long_path(storage.uri, self.path)
        self._sink = self._open()
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._sink,
            layout.parquet,
            **layout.settings.compression.arguments(),
            use_dictionary=layout.dictionaries.columns(layout.floats.leaves, rows),
            data_page_version=layout.page_version,
            store_schema=False,
            metadata_collector=self._footers,
            write_statistics=layout.floats.with_statistics(counts),
        )
        self._counts = Counts()
        self._times: Range = (None, None)

    @property
    def size(self) -> int:
        """Bytes that were written so far."""
        return int(self._sink.tell())

    def takes(self, counts: Counts) -> bool:
        """True if rows with these counts may come into the file."""
        return not counts.spoils(self._counts)

    def write(self, rows: pa.Table, counts: Counts, event_times: pa.ChunkedArray | None) -> None:
        """Add rows of the partition, with the columns of data files. Raises OSError."""
        self._counts.add(counts)
        if event_times is not None:
            self._times = _joined(self._times, event_time_range(event_times))
        self._writer.write_table(rows, rows.num_rows)

    def finish(self) -> FileInfo:
        """Close the file and describe it. Raises OSError or LakeUnavailable."""
        self._writer.close()
        size = self.size
        if isinstance(self._sink, pa.BufferOutputStream):
            content = self._sink.getvalue().to_pybytes()
            self._storage.write(self._folder or ".", {self._name: content})
        else:
            self._sink.close()
        (footer,) = self._footers
        columns = self._layout.schema.data
        said = make_statistics(footer, columns, self._layout.bounded, self._layout.counted, self._counts.null)
        values = {each.name: self._texts[each.physical] for each in self._layout.schema.partitions}
        line = encode(self.path, self._texts, size, time.time_ns() // 1_000_000, said)
        return FileInfo(
            path=self.path,
            size=size,
            rows=footer.num_rows,
            partition=values,
            min_event_time=self._times[0],
            max_event_time=self._times[1],
            metadata=require_short(line, self._storage.uri, _FEWER),
        )

    def abort(self) -> None:
        """Close the file and delete it."""
        close_broken(self._writer, self._sink)
        self._storage.discard(self._folder or ".", [self._name])

    def _open(self) -> pa.NativeFile:
        """Open the file; of an object store, its content is kept until it is complete. Raises OSError."""
        if self._storage.object_store:
            return pa.BufferOutputStream()
        make_inside(self._storage.root, posixpath.dirname(self.path))
        return pa.OSFile(f"{self._storage.root}/{self.path}", "wb")


def _joined(one: Range, other: Range) -> Range:
    lowest = [value for value in (one[0], other[0]) if value is not None]
    highest = [value for value in (one[1], other[1]) if value is not None]
    return min(lowest, default=None), max(highest, default=None)


def columns_of(rows: pa.Table, layout: Layout) -> pa.Table:
    """Return the rows with the columns of data files, as files name them."""
    return renamed(rows.select([column.name for column in layout.schema.data]), layout.parquet)
