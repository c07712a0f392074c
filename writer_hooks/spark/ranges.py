"""Source range of a batch, from Spark's offset log and from the logs that file sources keep.

An offset of a file source is only a number in the source's own log. The names of the files are in
`sources/<source>/<n>`, or in `sources/<source>/<n>.compact` after Spark has compacted them. Each entry of a
compacted file contains its number.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from sluicegate.writer_hooks.errors import BadCheckpointLocation
from sluicegate.writer_hooks.spark.location import Location

_OFFSET_LOG_VERSIONS: Final = ("v1", "v2")
_SOURCES: Final = "sources"
_NAMED: Final = re.compile(r"^([\w-]+):(.*)$")
_COMPACT: Final = re.compile(r"^(\d+)\.compact$")
_NOTHING: Final = "-"
"""Spark's line for a source that has no offset yet."""


class Offsets(NamedTuple):
    """An entry of Spark's offset log."""

    metadata: dict[str, Any]
    sources: dict[str, str]
    """End offset of each source, by the name of its folder: its index in the query, or its own name."""


class _Files(NamedTuple):
    """A range of a file source's own log: from after `after` up to and including `upto`."""

    after: int
    upto: int


def read_offsets(location: Location, batch: int) -> Offsets:
    """Return the offset log's entry of a batch. Raises BadCheckpointLocation."""
    name = f"offsets/{batch}"
    content = location.read(name)
    if content is None:
        raise BadCheckpointLocation(
            f"{location.uri}/{name} does not exist, so that the source range of a batch is unknown"
        )
    return parse_offsets(content, location.uri, batch)


def parse_offsets(content: bytes, uri: str, batch: int) -> Offsets:
    """Read the file of a batch in the offset log of a location. Raises BadCheckpointLocation."""
    name = f"offsets/{batch}"
    lines = content.decode().splitlines()
    if len(lines) < 2 or lines[0] not in _OFFSET_LOG_VERSIONS:
        raise BadCheckpointLocation(
            f"{uri}/{name} is of an unknown version ({lines[:1]}); "
            f"known are {', '.join(_OFFSET_LOG_VERSIONS)}"
        )
    # The second line contains wall-clock times and settings, which a replay may change. They are no part of
    # the digest.
    return Offsets(json_object(lines[1].encode(), name), dict(_by_source(lines[0], lines[2:])))


def range_digest(location: Location, batch: int, upto: Offsets) -> str:
    """Return the digest of the source range of a batch: equal for replays, different for other data.

    Raises BadCheckpointLocation if a source's log lacks entries of the range.
    """
    before = read_offsets(location, batch - 1) if batch > 0 else Offsets({}, {})
    content: list[object] = [list(before.sources.items()), list(upto.sources.items())]
    # A source without new data contributes the last entry of its log. If Spark lost that log, it writes the
    # entry again, possibly with other files.
    files = {
        name: _Files(min(_log_offset(before.sources.get(name, _NOTHING)), number - 1), number)
        for name, offset in upto.sources.items()
        if (number := _log_offset(offset)) >= 0
    }
    content.append([[name, entries] for name, entries in sorted(_files(location, files).items())])
    first = [name for name in upto.sources if before.sources.get(name, _NOTHING) == _NOTHING]
    # Kafka and rate sources record their initial offsets there.
    content.append([[name, _start(location, name)] for name in sorted(first) if name not in files])
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def json_object(content: bytes, name: str) -> dict[str, Any]:
    """Parse a JSON object of the location. Raises BadCheckpointLocation."""
    try:
        found = json.loads(content)
    except ValueError as error:
        raise BadCheckpointLocation(f"{name} in the checkpoint location is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadCheckpointLocation(f"{name} in the checkpoint location is no JSON object")
    return found


def _by_source(version: str, lines: Sequence[str]) -> Iterable[tuple[str, str]]:
    for place, line in enumerate(lines):
        named = _NAMED.match(line) if version == "v2" else None
        name, offset = named.groups() if named else (str(place), line)
        yield name, _canonical(offset)


def _canonical(offset: str) -> str:
    """Return an offset in canonical form: JSON with sorted keys, other text unchanged."""
    try:
        return json.dumps(json.loads(offset), sort_keys=True)
    except ValueError:
        return offset


def _log_offset(offset: str) -> int:
    """Return the `logOffset` of a file source; -1 for any other offset."""
    try:
        found = json.loads(offset)
    except ValueError:
        return -1
    number = found.get("logOffset") if isinstance(found, dict) and len(found) == 1 else None
    return number if isinstance(number, int) else -1


def _files(location: Location, ranges: dict[str, _Files]) -> dict[str, list[str]]:
    """Return the entries of the file sources' logs in these ranges, by the folder of the log.

    Return nothing if two sources share a log: folders cannot be assigned to sources, so only offsets form the
    digest. Raises BadCheckpointLocation if entries are missing.
    """
    if _is_shared(location, ranges):
        return {}
    found = {name: _entries(location, name, each) for name, each in ranges.items()}
    lacking = [name for name, entries in found.items() if entries is None]
    if lacking:
        wanted = ranges[lacking[0]]
        raise BadCheckpointLocation(
            f"{location.uri}/{_SOURCES}/{lacking[0]} lacks files that Spark has planned to read (its entries "
            f"{wanted.after + 1} to {wanted.upto}), so they would be passed over. The location was restored "
            "in part, or partly deleted. Put it back whole. If it is lost, start the query in an empty one: "
            "where something is committed that is refused, and the refusal has the way on"
        )
    return {name: entries for name, entries in found.items() if entries is not None}


def _is_shared(location: Location, ranges: dict[str, _Files]) -> bool:
    """Return True if a query reads one stream twice: it has two equal offsets then, and only one log.

    The newest offsets contain all sources that have ever had a file, so a replay gets the same result as the
    batch.
    """
    if len({each.upto for each in ranges.values()}) == len(ranges):
        return False
    newest = location.newest("offsets")
    known = read_offsets(location, newest).sources if newest is not None else {}
    named = {*ranges, *(name for name, offset in known.items() if _log_offset(offset) >= 0)}
    return any(not location.files(f"{_SOURCES}/{name}") for name in named)


def _entries(location: Location, source: str, wanted: _Files) -> list[str] | None:
    """Return a file source's log entries of a range, None if a number is missing.

    Entries of one number are sorted: their order does not matter.
    """
    found: list[str] = []
    for number in range(wanted.after + 1, wanted.upto + 1):
        entries = _read(location, source, number)
        if not entries:
            return None
        found += sorted(entries)
    return found


def _read(location: Location, source: str, number: int) -> list[str]:
    """Return the entries of one number, from its own file or from a compacted one."""
    folder = f"{_SOURCES}/{source}"
    for name in (f"{folder}/{number}", f"{folder}/{number}.compact"):
        content = location.read(name)
        if content is not None:
            return _of(content, number)
    held = [name.rpartition("/")[2] for name in location.files(folder)]
    # A later compacted file contains the entries of all earlier numbers.
    compacted = sorted(int(match[1]) for name in held if (match := _COMPACT.match(name)))
    holder = next((each for each in compacted if each > number), None)
    return [] if holder is None else _of(location.read(f"{folder}/{holder}.compact") or b"", number)


def _of(content: bytes, number: int) -> list[str]:
    """Return a log file's entries of a number; empty for a file in another format."""
    mark = f'"batchId":{number}'
    found: list[str] = []
    for line in content.decode().splitlines()[1:]:
        # Most lines of a compacted log have other numbers. A search in the text avoids parsing them.
        if mark not in line:
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            return []
        if not isinstance(entry, dict) or "path" not in entry or not isinstance(entry.get("batchId"), int):
            return []
        if entry["batchId"] == number:
            found.append(json.dumps(entry, sort_keys=True))
    return found


def _start(location: Location, source: str) -> str | None:
    content = location.read(f"{_SOURCES}/{source}/0")
    return None if content is None else content.decode()
