"""Options of the data files of a writing job, in one vocabulary for all table formats."""

import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, cast

from sluicegate.events.models import LONGEST_METADATA
from sluicegate.lakes.port import Adapter, FileWriter, SchemaMismatch, TableRef, TableRefused
from sluicegate.lakes.sequence import Upserts, upserting

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX: Final = "file."
"""Prefix of the options of a sink that are read here."""
TARGET, ROW_GROUP, OPEN = "target.size", "row.group.size", "open.partitions"
SORT, COMPRESSION, STATISTICS = "sort", "compression", "statistics"
NAMES: Final = tuple(PREFIX + name for name in (TARGET, ROW_GROUP, OPEN, SORT, COMPRESSION, STATISTICS))

DEFAULT_TARGET: Final = 256 << 20
DEFAULT_ROW_GROUP: Final = 64 << 20
DEFAULT_OPEN: Final = 256
DEFAULT_LEVELS: Final[Mapping[str, int]] = {"zstd": 2}
"""By codec. Files are not larger than those of Spark with level 3, and are written faster."""

_SIZE: Final = re.compile(r"([0-9]{1,15})\s*(B|KiB|MiB|GiB)?", re.IGNORECASE)
_UNITS: Final = {"": 0, "b": 0, "kib": 10, "mib": 20, "gib": 30}
_SMALLEST: Final = 64 << 10
_LARGEST: Final = 1 << 40
LARGEST_ROW_GROUP: Final = 1 << 30
_MOST_OPEN: Final = 10_000
_LEVELS: Final[Mapping[str, tuple[int, int] | None]] = {
    "zstd": (1, 22),
    "gzip": (1, 9),
    "snappy": None,
    "lz4": None,
    "uncompressed": None,
}
"""Levels of each codec, None: it has none."""
_DIRECTIONS: Final = {"asc": False, "desc": True}


class BadFileOption(ValueError):
    """An option of data files has an invalid value; the text names the option."""


@dataclass(frozen=True, slots=True)
class SortColumn:
    """One column of a sort order."""

    name: str
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec of Parquet files."""

    codec: str
    level: int | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `pyarrow.parquet.ParquetWriter`."""
        level = DEFAULT_LEVELS.get(self.codec) if self.level is None else self.level
        return {
            "compression": "none" if self.codec == "uncompressed" else self.codec,
            "compression_level": level,
        }


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Values of a writing job, or of a table's properties. None: no value."""

    target_size: int | None = None
    """Bytes of a file after which another one begins."""
    row_group_size: int | None = None
    """Bytes of the rows of a row group in memory, before they are encoded."""
    open_partitions: int | None = None
    sort: tuple[SortColumn, ...] | None = None
    compression: Compression | None = None
    statistics: tuple[str, ...] | Literal["all"] | None = None
    """Columns whose bounds the table's metadata gets."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self | None:
        """Read the options of a sink, by their lower-case names; None if there are none of files.

        Raises BadFileOption with all that is wrong.
        """
        found: dict[str, Any] = {}
        wrong = []
        for name, part, read in _READERS:
            text = given.get(PREFIX + name)
            if text is None:
                continue
            try:
                found[part] = read(PREFIX + name, text.strip())
            except BadFileOption as error:
                wrong.append(str(error))
        if wrong:
            raise BadFileOption("; ".join(wrong))
        return cls(**found) if found else None

    def over(self, other: "FileOptions") -> "FileOptions":
        """Return these values, with those of another one where these have none."""
        missing = {
            field.name: getattr(other, field.name)
            for field in fields(self)
            if getattr(self, field.name) is None
        }
        return replace(self, **missing)

    def without_columns(self) -> "FileOptions":
        """Return the options without those that name columns."""
        return replace(self, sort=None, statistics=None)

    def check_columns(self, location: str, columns: "pa.Schema") -> None:
        """Check that the table has the named columns. Raises TableRefused."""
        bounded = self.statistics if isinstance(self.statistics, tuple) else ()
        named = {SORT: [each.name for each in self.sort or ()], STATISTICS: bounded}
        known = frozenset(columns.names)
        for option, names in named.items():
            unknown = [name for name in names if name not in known]
            if unknown:
                raise TableRefused(
                    f"the option {PREFIX}{option} names {_listed(unknown)}, which {location} does not have. "
                    f"Name some of its columns: {_listed(columns.names)}"
                )
        for each in self.sort or ():
            kind = columns.field(each.name).type
            if not is_sortable(kind):
                raise TableRefused(
                    f"the option {PREFIX}{SORT} names {each.name}, but rows cannot be sorted by its type "
                    f"{kind}. Name columns with plain values"
                )

    def settings(self, of_table: "FileOptions") -> "FileSettings":
        """Return the values for a table with these properties, with the defaults."""
        found = self.over(of_table)
        return FileSettings(
            found.target_size or DEFAULT_TARGET,
            min(found.row_group_size or DEFAULT_ROW_GROUP, LARGEST_ROW_GROUP),
            found.open_partitions or DEFAULT_OPEN,
            found.sort or (),
            found.compression or Compression("zstd"),
        )

    def bounded(self, columns: Collection[str], event_time: str | None) -> frozenset[str] | None:
        """Return the columns that the job wants bounds of; None if it has no such option."""
        if self.statistics is None:
            return None
        names = columns if self.statistics == "all" else self.statistics
        return frozenset(names) | ({event_time} if event_time is not None else set())


NO_OPTIONS: Final = FileOptions()


@dataclass(frozen=True, slots=True)
class FileSettings:
    """Values that a writer follows; see FileOptions."""

    target_size: int
    row_group_size: int
    open_partitions: int
    sort: tuple[SortColumn, ...]
    compression: Compression


class FollowsFileOptions(Adapter, Protocol):
    """Capability: the writer half follows options of files. Its method has one more parameter."""

    def open_writer(
        self,
        table: TableRef,
        event_time_column: str | None,
        label: str | None = None,
        files: FileOptions | None = None,
    ) -> FileWriter:
        """Open the writer half. Raises TableRefused or LakeUnavailable.

        `files` precede the properties of the table.
        """
        ...


def open_writer(
    adapter: Adapter,
    table: TableRef,
    event_time_column: str | None,
    label: str | None = None,
    files: FileOptions | None = None,
    upserts: Upserts | None = None,
) -> FileWriter:
    """Open the writer half of an adapter. Raises TableRefused or LakeUnavailable.

    An adapter without the capability works while the job has no such option.
    """
    more: Any = upserting(adapter, upserts)
    if files is None:
        return adapter.open_writer(table, event_time_column, label, **more)
    if "files" not in inspect.signature(adapter.open_writer).parameters:
        raise TableRefused(
            f"the format {adapter.name} has no options of files. Leave the options {PREFIX}* out, or upgrade "
            "the package of the format"
        )
    return cast(FollowsFileOptions, adapter).open_writer(table, event_time_column, label, files, **more)


def is_sortable(kind: "pa.DataType") -> bool:
    """Return True if rows can be sorted by a column of this type."""
    import pyarrow as pa

    types = pa.types
    return not (types.is_nested(kind) or types.is_dictionary(kind) or types.is_null(kind))


def _size(option: str, text: str, largest: int = _LARGEST) -> int:
    match = _SIZE.fullmatch(text)
    size = int(match[1]) << _UNITS[(match[2] or "").lower()] if match else 0
    if not _SMALLEST <= size <= largest:
        raise BadFileOption(
            f"the option {option} must be a size such as 128MiB, from {_SMALLEST >> 10}KiB to "
            f"{largest >> 30}GiB: {text!r}"
        )
    return size


def _row_group(option: str, text: str) -> int:
    return _size(option, text, LARGEST_ROW_GROUP)


def _count(option: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= _MOST_OPEN:
        raise BadFileOption(f"the option {option} must be a whole number from 1 to {_MOST_OPEN}: {text!r}")
    return int(text)


def _sort(option: str, text: str) -> tuple[SortColumn, ...]:
    found = []
    for part in text.split(","):
        name, _, last = part.strip().rpartition(" ")
        if name and last.lower() in _DIRECTIONS:
            descending = _DIRECTIONS[last.lower()]
        else:
            name, descending = part.strip(), False
        # As Spark does by default: null is below every value.
        found.append(SortColumn(name.strip(), descending, nulls_first=not descending))
    names = [each.name for each in found]
    if "" in names or len(set(names)) != len(names):
        raise BadFileOption(
            f"the option {option} must be a list of different columns, each with asc or desc after it or "
            f"nothing, such as `carrier, time_hour desc`: {text!r}"
        )
    return tuple(found)


def require_short(metadata: bytes, location: str, remedy: str) -> bytes:
    """Return the metadata of a file, unless no event can carry it. Raises SchemaMismatch with the remedy.

    Statistics are most of it, so tables with very many columns need a choice.
    """
    if len(metadata) > LONGEST_METADATA:
        raise SchemaMismatch(
            f"the statistics of a file of {location} have {len(metadata)} bytes, and its event takes "
            f"{LONGEST_METADATA}. Name the columns that need some in the option {PREFIX}{STATISTICS}, or "
            f"{remedy}"
        )
    return metadata


def _compression(option: str, text: str) -> Compression:
    codec, colon, level = text.lower().partition(":")
    levels = _LEVELS.get(codec)
    if codec not in _LEVELS or (colon and levels is None):
        raise BadFileOption(
            f"the option {option} must be one of {', '.join(_LEVELS)}; zstd and gzip take a level after a "
            f"colon, such as zstd:3: {text!r}"
        )
    if not colon or levels is None:
        return Compression(codec)
    if not re.fullmatch(r"[0-9]{1,2}", level) or not levels[0] <= int(level) <= levels[1]:
        raise BadFileOption(
            f"the option {option} must have a level of {codec} from {levels[0]} to {levels[1]}: {text!r}"
        )
    return Compression(codec, int(level))


def _statistics(option: str, text: str) -> tuple[str, ...] | Literal["all"]:
    if text.lower() == "all":
        return "all"
    if text.lower() == "none":
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if "" in names:
        raise BadFileOption(f"the option {option} must be all, none, or a list of columns: {text!r}")
    return names


def _listed(names: Collection[str]) -> str:
    return ", ".join(names)


_READERS: Final = (
    (TARGET, "target_size", _size),
    (ROW_GROUP, "row_group_size", _row_group),
    (OPEN, "open_partitions", _count),
    (SORT, "sort", _sort),
    (COMPRESSION, "compression", _compression),
    (STATISTICS, "statistics", _statistics),
)
"""Names of the options, fields, and functions that read a value."""
