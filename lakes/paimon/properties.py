"""Options of a table that the files of a writer depend on, and those that the library gets in their place."""

import re
from collections.abc import Collection, Mapping
from typing import Final

from pypaimon.common.memory_size import MemorySize

from sluicegate.lakes.file_options import PREFIX, Compression, FileOptions
from sluicegate.lakes.port import TableRefused

HELD_BYTES: Final = 256 << 20
"""Rows in memory that have not reached a file, where the table has no `write-buffer-size`."""
_TARGET: Final = "target-file-size"
_ROW_GROUP: Final = "file.block-size"
_BUFFER: Final = "write-buffer-size"
_CODEC: Final = "file.compression"
_LEVEL: Final = "file.compression.zstd-level"
_STATS: Final = "metadata.stats-mode"
_UNBOUNDED: Final = ("none", "counts")
_MODE: Final = re.compile(r"none|counts|full|truncate\(([1-9][0-9]{0,8})\)")
_LONGEST: Final = 128
"""Characters of a bound. Bounds travel in events, and in the manifests that every reader loads."""


def file_options(options: Mapping[str, str]) -> FileOptions:
    """Return the values of the table. Raises TableRefused for those that cannot be followed."""
    return FileOptions(target_size=_size(options, _TARGET), row_group_size=_size(options, _ROW_GROUP))


def held_bytes(options: Mapping[str, str], target: int) -> int:
    """Return the bytes of rows that may be in memory, for files of a target size. Raises TableRefused."""
    return _size(options, _BUFFER) or max(HELD_BYTES, target)


def library_options(files: FileOptions, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the library gets beside those of the table.

    Raises TableRefused for options of Parquet files, if the table has others.
    """
    found = {}
    if files.target_size is not None:
        found[_TARGET] = f"{files.target_size} b"
    if files.compression is not None or files.row_group_size is not None:
        _require_parquet(files, options)
    wanted = files.compression
    if wanted is not None:
        found[_CODEC] = "none" if wanted.codec == "uncompressed" else wanted.codec
    elif _LEVEL not in options:
        wanted = Compression(options.get(_CODEC, "zstd").lower())
    if wanted is not None and wanted.codec == "zstd":
        found[_LEVEL] = str(wanted.arguments()["compression_level"])
    # The statistics of a file contain its range of event times. `none` is an explicit choice of the user.
    if options.get(_STATS, "full") != "none" or files.statistics is not None:
        found[_STATS] = "full"
    return found


def unbounded(
    files: FileOptions, options: Mapping[str, str], columns: Collection[str], event_time: str | None
) -> frozenset[str]:
    """Return the columns that get no bounds. The column of the event time always has some."""
    bounded = files.bounded(columns, event_time)
    if bounded is not None:
        return frozenset(columns) - bounded
    modes = {name: _mode(options, name)[0] for name in columns}
    return frozenset(name for name, mode in modes.items() if mode in _UNBOUNDED and name != event_time)


def bound_lengths(options: Mapping[str, str], columns: Collection[str]) -> dict[str, int]:
    """Return how many characters or bytes a bound of each column has, at most. Raises TableRefused."""
    modes = {name: _mode(options, name) for name in columns}
    return {name: min(int(mode[1] or _LONGEST), _LONGEST) for name, mode in modes.items()}


def _mode(options: Mapping[str, str], column: str) -> re.Match[str]:
    """Return the mode of the statistics of a column. Raises TableRefused for one that Paimon lacks."""
    own = f"fields.{column}.stats-mode"
    name = own if own in options else _STATS
    text = options.get(name, "full")
    found = _MODE.fullmatch(text.strip().lower())
    if found is None:
        raise TableRefused(
            f"the option {name} = {text} of the table is no mode of statistics. Set it to none, counts, full "
            "or truncate(16)"
        )
    return found


def _require_parquet(files: FileOptions, options: Mapping[str, str]) -> None:
    file_format = options.get("file.format", "parquet").lower()
    if file_format != "parquet":
        named = "compression" if files.compression is not None else "row.group.size"
        raise TableRefused(
            f"the option {PREFIX}{named} is for Parquet, but the table has the option file.format = "
            f"{file_format}. Leave the option out, and set file.compression in the table"
        )


def _size(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        return int(MemorySize.parse(text).get_bytes())
    except (ValueError, ArithmeticError) as error:
        raise TableRefused(
            f"the option {name} = {text} of the table is no size: {error}. Correct it, such as 128 mb"
        ) from error
