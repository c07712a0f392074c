"""Lines of the log that add data files. The writer half encodes them, the committer half checks and copies
them.

The committer half never encodes such a line, so no field can be lost. A line comes from outside: a bad one in
the log would make the table unreadable for everybody.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.delta.actions import is_whole
from sluicegate.lakes.delta.canonical import from_text, to_bytes, to_text
from sluicegate.lakes.delta.partitions import is_partition_text, partition_folder
from sluicegate.lakes.delta.schema import TableSchema
from sluicegate.lakes.delta.statistics import StatisticsCheck
from sluicegate.lakes.port import BadFiles

FORMAT: Final = "delta"
FORMAT_VERSION: Final = 1
"""Version of the metadata blobs. 1: a line `{"add":{...}}` without its end, as `encode` makes it."""

_FIELDS: Final = ("path", "partitionValues", "size", "modificationTime", "dataChange", "stats")
_LONGEST: Final = 1 << 20
"""Bytes of a line."""
_LONGEST_TEXT: Final = 600
"""Characters of an error."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,200}\.parquet")
"""Names that are the same in a path, in a URI, and for every reader."""
_AFTER_SIZE: Final = re.compile(rb',"modificationTime":(0|[1-9][0-9]{0,17}),"dataChange":true,"stats":"')
_END: Final = b'"}}'


def encode(
    path: str, values: Mapping[str, str | None], size: int, time_ms: int, statistics: Mapping[str, Any]
) -> bytes:
    """Return the line of a file. `values` are the partition's, by physical name.

    `path` is relative to the table, and not encoded. `time_ms` is the file's, since the Unix epoch.
    """
    fields = (encoded(path), dict(values), size, time_ms, True, to_text(statistics))
    return to_bytes({"add": dict(zip(_FIELDS, fields, strict=True))})


def with_row_ids(line: bytes, first: int, version: int) -> bytes:
    """Return a checked line with the id of its first row, and the version that it is added in."""
    return b'%b,"baseRowId":%d,"defaultRowCommitVersion":%d}}' % (line[:-2], first, version)


def encoded(path: str) -> str:
    """Return a path as the log has it: a relative URI, without a colon that could end a scheme."""
    return quote(path, safe="/=")


class Entries(NamedTuple):
    """The entries of an event that was examined, as they are published."""

    lines: bytes
    """One for each file, with a line feed between them."""
    rows: tuple[int, ...]
    """Of each file."""


class _Place(NamedTuple):
    """A partition whose files have been examined."""

    folder: str
    """Of its files, with a slash at its end; empty for a table without partitions."""
    start: bytes
    """Beginning of the lines of its files, up to their names."""
    middle: bytes
    """Bytes after the name, up to the size."""


class Examiner:
    """Validator of events against one schema of one table. It caches the folders of partitions."""

    def __init__(self, schema: TableSchema, location: str) -> None:
        self._schema = schema
        self._statistics = StatisticsCheck(schema.data)
        self._places: dict[tuple[tuple[str, str | None], ...], _Place] = {}
        """By the partition, in the order of the event."""
        self._location = location
        self._names = [(column.name, column.physical) for column in schema.partitions]
        self._folders: dict[tuple[str | None, ...], str] = {}

    def examine(self, event: FilesWritten) -> Entries:
        """Check all properties that the event itself can prove. Raises BadFiles with the first problem."""
        if event.location != self._location:
            raise BadFiles(f"the files are in {event.location}, but the table is in {self._location}")
        if (event.format, event.format_version) != (FORMAT, FORMAT_VERSION):
            raise BadFiles(
                f"metadata of {event.format} version {event.format_version} cannot be read; this release "
                f"reads {FORMAT} version {FORMAT_VERSION}"
            )
        for file in event.files:
            try:
                self._examine(file)
            except BadFiles as error:
                # The text shows what was sent, which may be long.
                raise BadFiles(str(error)[:_LONGEST_TEXT]) from error
        lines = b"\n".join([file.metadata for file in event.files])
        return Entries(lines, tuple(file.rows for file in event.files))

    def _examine(self, file: FileInfo) -> None:
        statistics = self._plain_statistics(file)
        if statistics is None:
            statistics = self._parsed_statistics(file)
        problem = self._statistics.problem(statistics, file.rows)
        if problem is not None:
            raise BadFiles(f"the entry of {file.path}: {problem}")

    def _plain_statistics(self, file: FileInfo) -> Any:
        """Return the statistics of a line whose other fields are as expected, in their one form.

        None if it is not of a known partition, or if something differs: parsing it shows what is wrong.
        """
        line, place = file.metadata, self._places.get(tuple(file.partition.items()))
        if place is None or not file.path.startswith(place.folder) or len(line) > _LONGEST:
            return None
        name = _NAME.fullmatch(file.path, len(place.folder))
        if name is None:
            return None
        start = b"%b%b%b%d" % (place.start, name[0].encode(), place.middle, file.size)
        found = _AFTER_SIZE.match(line, len(start)) if line.startswith(start) else None
        if found is None or not line.endswith(_END, found.end()):
            return None
        try:
            quoted = line[found.end() : -len(_END)].decode()
            text = quoted.replace('\\"', '"')
            # Without other escapes, and with no quote outside of one, it is the one form of the text.
            if "\\" in text or text.replace('"', '\\"') != quoted:
                return None
            return from_text(text)
        except ValueError:
            return None

    def _parsed_statistics(self, file: FileInfo) -> Any:
        """Return the statistics of a line, after checks of its other fields. Raises BadFiles."""
        added = _decode(file)
        self._examine_place(file, added["partitionValues"])
        claims: Sequence[tuple[str, object, object]] = (
            ("the path", added["path"], encoded(file.path)),
            ("the size", added["size"], file.size),
            ("dataChange", added["dataChange"], True),
        )
        for what, found, expected in claims:
            if found != expected or type(found) is not type(expected):
                raise BadFiles(
                    f"the entry of {file.path} has {what} {found!r} where {expected!r} is expected"
                )
        if not is_whole(added["modificationTime"]) or added["modificationTime"] < 0:
            raise BadFiles(f"the entry of {file.path} has no time: {added['modificationTime']!r}")
        try:
            statistics = from_text(added["stats"]) if isinstance(added["stats"], str) else None
        except ValueError as error:
            raise BadFiles(f"the statistics in the entry of {file.path} cannot be read: {error}") from error
        self._learn(file, added["partitionValues"])
        return statistics

    def _learn(self, file: FileInfo, values: Mapping[str, str | None]) -> None:
        folder = file.path[: file.path.rfind("/") + 1]
        self._places[tuple(file.partition.items())] = _Place(
            folder,
            b'{"add":{"path":"%b' % encoded(folder).encode(),
            b'","partitionValues":%b,"size":' % to_bytes(values),
        )

    def _examine_place(self, file: FileInfo, values: Any) -> None:
        """Check partition and path, which depend on each other."""
        expected = {physical for _, physical in self._names}
        if not isinstance(values, dict) or values.keys() != expected:
            raise BadFiles(f"the entry of {file.path} has the partition {values!r}, not one of {expected}")
        logical = {name: values[physical] for name, physical in self._names}
        if file.partition != logical:
            raise BadFiles(f"{file.path} is in the partition {logical}, not in {file.partition}")
        folder = self._folder(file, values)
        name = file.path.removeprefix(f"{folder}/" if folder else "")
        if (name == file.path and folder) or not _NAME.fullmatch(name):
            raise BadFiles(f"the path {file.path} is no data file in the folder {folder!r} of its partition")

    def _folder(self, file: FileInfo, values: Mapping[str, str | None]) -> str:
        key = tuple(values[physical] for _, physical in self._names)
        try:
            known = self._folders.get(key)
        except TypeError:
            raise BadFiles(f"the entry of {file.path} has the partition {values!r}, not texts") from None
        if known is None:
            for column in self._schema.partitions:
                text = values[column.physical]
                if not isinstance(text, str | None) or not is_partition_text(column, text):
                    raise BadFiles(
                        f"the entry of {file.path} has {text!r} for the partition column {column.name}, "
                        "which is no value of its type"
                    )
            known = self._folders[key] = partition_folder(self._schema.partitions, values)
        return known


def _decode(file: FileInfo) -> dict[str, Any]:
    """Return the fields of the entry. Raises BadFiles unless it is a single line that adds one file."""
    if len(file.metadata) > _LONGEST:
        raise BadFiles(f"the entry of {file.path} has {len(file.metadata)} bytes, more than {_LONGEST}")
    try:
        parsed = from_text(file.metadata)
    except ValueError as error:
        raise BadFiles(f"the entry of {file.path} cannot be read: {error}") from error
    added = parsed.get("add") if isinstance(parsed, dict) and len(parsed) == 1 else None
    if not isinstance(added, dict) or tuple(added) != _FIELDS:
        raise BadFiles(f"the entry of {file.path} is not one action that adds a file with {_FIELDS}")
    return added
