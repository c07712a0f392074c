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
_ZSTD_LEVEL: Final = re.compile(r"[1-9]|1[0-9]|2[0-2]")
_CODECS: Final[Mapping[str, Mapping[str, str]]] = {
    "parquet": {
        **{name: name for name in ("zstd", "snappy", "gzip", "lz4", "brotli", "none")},
        # The name of Parquet for what Arrow writes as LZ4.
        "lz4_raw": "lz4",
        "uncompressed": "none",
    },
    "orc": {
        **{name: name for name in ("zstd", "snappy", "lz4", "zlib", "uncompressed")},
        "none": "uncompressed",
    },
    "avro": {
        **{name: name for name in ("zstd", "zstandard", "snappy", "deflate", "bzip2", "xz", "null")},
        "none": "null",
    },
}
"""By format of files, codecs of the library by their names in the option."""
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
    else:
        codec = _codec(options)
        if codec != options.get(_CODEC, "zstd"):
            found[_CODEC] = codec
        if not _has_level(options):
            wanted = Compression(codec)
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


def _codec(options: Mapping[str, str]) -> str:
    """Return the table's codec as the library names it. Raises TableRefused for one that it cannot write."""
    text, kind = options.get(_CODEC, "zstd"), options.get("file.format", "parquet").lower()
    codecs = _CODECS[kind]
    found = codecs.get(text.strip().lower())
    if found is None:
        raise TableRefused(
            f"the option {_CODEC} = {text} of the table is not supported for {kind} files. Set it to one of "
            f"{', '.join(codecs)}"
        )
    return found


def _has_level(options: Mapping[str, str]) -> bool:
    """Return True if the table has a level of zstd. Raises TableRefused for one that there is not."""
    text = options.get(_LEVEL)
    if text is None:
        return False
    if not _ZSTD_LEVEL.fullmatch(text.strip()):
        raise TableRefused(
            f"the option {_LEVEL} = {text} of the table is no level of zstd. Set it to a number from 1 to 22"
        )
    return True


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
