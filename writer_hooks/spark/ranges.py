"""The source range of a batch: Spark's offset log, and the logs that file sources keep of what they read.

An offset of a file source is only a number of its own log. The files stand there: in `sources/<source>/<n>`
or, once Spark has compacted them, in `sources/<source>/<n>.compact`, where each entry has its number.
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
    """Up to where each source is read, by its folder's name: its place in the query, or its own name."""


class _Files(NamedTuple):
    """A range of a file source's own log."""

    after: int
    upto: int


def read_offsets(location: Location, batch: int) -> Offsets:
    """Return what Spark has planned up to a batch. Raises BadCheckpointLocation."""
    name = f"offsets/{batch}"
    content = location.read(name)
    if content is None:
        raise BadCheckpointLocation(
            f"{location.uri}/{name} does not exist, so that the source range of a batch is unknown"
        )
    lines = content.decode().splitlines()
    if len(lines) < 2 or lines[0] not in _OFFSET_LOG_VERSIONS:
        raise BadCheckpointLocation(
            f"{location.uri}/{name} is of an unknown version ({lines[:1]}); "
            f"known are {', '.join(_OFFSET_LOG_VERSIONS)}"
        )
    # The second line holds wall-clock times and settings, which a replay may change.
    return Offsets(json_object(lines[1].encode(), name), dict(_by_source(lines[0], lines[2:])))


def range_digest(location: Location, batch: int, upto: Offsets) -> str:
    """Return the digest of what a batch reads of all sources: equal for replays, different for other data."""
    before = read_offsets(location, batch - 1) if batch > 0 else Offsets({}, {})
    content: list[object] = [list(before.sources.items()), list(upto.sources.items())]
    # Also of a source with nothing new: the last entry of its log, which Spark writes again if it is lost.
    files = {
        name: _Files(min(_log_offset(before.sources.get(name, _NOTHING)), number - 1), number)
        for name, offset in upto.sources.items()
        if (number := _log_offset(offset)) >= 0
    }
    content.append([[name, entries] for name, entries in sorted(_files(location, files).items())])
    first = [name for name in upto.sources if before.sources.get(name, _NOTHING) == _NOTHING]
    # Kafka and rate sources note there where they begin.
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
    """One source's offset, with the order of its JSON's keys made irrelevant."""
    try:
        return json.dumps(json.loads(offset), sort_keys=True)
    except ValueError:
        return offset


def _log_offset(offset: str) -> int:
    """Where a file source's own log stands; -1 for any other offset."""
    try:
        found = json.loads(offset)
    except ValueError:
        return -1
    number = found.get("logOffset") if isinstance(found, dict) and len(found) == 1 else None
    return number if isinstance(number, int) else -1


def _files(location: Location, ranges: dict[str, _Files]) -> dict[str, list[str]]:
    """The entries that the file sources' logs have in these ranges, by the folder of the log.

    None where a log is read by two sources: which folder is whose cannot be told, so the offsets make the
    digest alone.
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
    """Return whether a query reads one stream twice: it has two equal offsets then, and one log.

    The newest offsets have all sources that have ever had a file, so a replay is judged as the batch was.
    """
    if len({each.upto for each in ranges.values()}) == len(ranges):
        return False
    newest = location.newest("offsets")
    known = read_offsets(location, newest).sources if newest is not None else {}
    named = {*ranges, *(name for name, offset in known.items() if _log_offset(offset) >= 0)}
    return any(not location.files(f"{_SOURCES}/{name}") for name in named)


def _entries(location: Location, source: str, wanted: _Files) -> list[str] | None:
    """What a file source's log has in a range, in an order of its own; None if some of it is not there."""
    found: list[str] = []
    for number in range(wanted.after + 1, wanted.upto + 1):
        entries = _read(location, source, number)
        if not entries:
            return None
        found += sorted(entries)
    return found


def _read(location: Location, source: str, number: int) -> list[str]:
    """The entries of one number, wherever the log has them."""
    folder = f"{_SOURCES}/{source}"
    for name in (f"{folder}/{number}", f"{folder}/{number}.compact"):
        content = location.read(name)
        if content is not None:
            return _of(content, number)
    held = [name.rpartition("/")[2] for name in location.files(folder)]
    compacted = sorted(int(match[1]) for name in held if (match := _COMPACT.match(name)))
    holder = next((each for each in compacted if each > number), None)
    return [] if holder is None else _of(location.read(f"{folder}/{holder}.compact") or b"", number)


def _of(content: bytes, number: int) -> list[str]:
    """A log file's entries of a number; a file of another kind has none."""
    mark = f'"batchId":{number}'
    found: list[str] = []
    for line in content.decode().splitlines()[1:]:
        # Most lines of a compacted log are of other numbers: parsing them all would take long.
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
