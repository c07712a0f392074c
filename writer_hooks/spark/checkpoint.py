"""Content of a query's checkpoint location: its incarnation, and the source ranges of its batches.

The location is Spark's own. This package adds a folder `sluicegate` to it, with the marker of the
incarnation, and reads from Spark's logs which batches are planned and completed, and which range of the
source each of them has. Spark plans a batch before it calls the sink. So a replay of a batch has the same
number and the same range, and its digest proves that.
"""

import hashlib
import json
import posixpath
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, ValidationError

from sluicegate.events.models import NAME_PATTERN, Planned, Position
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.lakes.sequence import Numbers, checkpoint_numbers
from sluicegate.writer_hooks.errors import BadCheckpointLocation, NotOurs
from sluicegate.writer_hooks.region import LONGEST_OFFSETS
from sluicegate.writer_hooks.spark.location import Location

FOLDER: Final = "sluicegate"
MARKER_FILE: Final = f"{FOLDER}/incarnation.json"
STREAMS_FOLDER: Final = f"{FOLDER}/streams"
"""Folder with a marker for each stream of a query that writes several."""
_STREAM: Final = re.compile(rf"(.+)#stream=({NAME_PATTERN.strip('^$')})")


class IncarnationMarker(BaseModel):
    """Incarnation of the query's batch numbering.

    It is written before its registration, so a repetition after a crash registers the same one again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: str | None
    """None: the next query of the location, which has none yet."""
    incarnation: str
    """Random, so it never names another numbering of the batches."""
    base: Position | None = None
    """Position of the region that the incarnation starts from."""
    first: int = 0
    """First batch of the incarnation. Its predecessor is the base."""
    stream: str | None = None
    """None: the next registration decides it."""
    region: str | None = None
    assignment: int = 0
    """Number of the assignment in which the incarnation registers."""
    floor: int | None = None
    """Floor of its sequence numbers (`lakes.sequence`), recorded before its first file; None: it has none."""
    resetting: bool = False
    """True during a reset of the location. No batch may run until the reset is finished."""
    former: "IncarnationMarker | None" = None
    """During a reset: the marker that is restored if the new incarnation is refused.

    Before the first registration in another stream: the marker of the stream before.
    """

    def numbers(self, batch: int) -> Numbers | None:
        """Return the sequence numbers of a batch; None for a table without keys. Raises TableRefused."""
        return None if self.floor is None else checkpoint_numbers(self.floor, batch - self.first + 1)


class CompletedNote(BaseModel):
    """Newest batch that ForeachBatch has completed."""

    model_config = ConfigDict(frozen=True)

    incarnation: str
    batch: int


def incarnations_in(uri: str) -> dict[str | None, str]:
    """Return the recorded incarnations of a location, by stream; None: of a query with one stream.

    Raises BadCheckpointLocation.
    """
    files = Location(uri).files(STREAMS_FOLDER)
    streams: list[str | None] = [posixpath.basename(name).removesuffix(".json") for name in files]
    found: dict[str | None, str] = {}
    for stream in streams or [None]:
        marker = CheckpointLocation(uri if stream is None else location_of_stream(uri, stream)).marker()
        if marker is not None:
            found[stream] = marker.incarnation
    return found


def new_incarnation() -> str:
    """Return a new random incarnation id."""
    return uuid4().hex


def location_of_stream(uri: str, stream: str) -> str:
    """Return the name of a location as that of one stream, for a query that writes several streams."""
    return f"{root_of(uri)}#stream={stream}"


def root_of(uri: str) -> str:
    """Return a checkpoint location without the stream that its name may state."""
    found = _STREAM.fullmatch(uri)
    return uri if found is None else found[1]


def stream_of(uri: str) -> str | None:
    """Return the stream that the name of a location states, None if it states none."""
    found = _STREAM.fullmatch(uri)
    return None if found is None else found[2]


@dataclass(frozen=True, slots=True)
class BatchSource:
    """Source range of a batch."""

    digest: str
    """Equal for every replay of the batch, different for another range of the sources."""
    watermark: int | None
    """Milliseconds since the Unix epoch; None if the query has no watermark or it has not advanced yet."""
    offsets: str | None
    """End offsets of the sources as JSON; None if they are too long for a completion."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Time between two batches of a query."""

    after: int | None
    """The newest batch that has begun; None: none has."""


class CheckpointLocation:
    """A query's checkpoint location. Every method may raise BadCheckpointLocation.

    The name of the location may end with `#stream=` and a stream: each stream of a query that writes several
    ones has its own marker.
    """

    def __init__(self, uri: str, location: Callable[[str], Location] = Location) -> None:
        self._location = location(root_of(uri))
        self._stream = stream_of(uri)

    def query_id(self) -> str | None:
        """Return the id of the query, None before Spark has written it."""
        content = self._location.read("metadata")
        if content is None:
            return None
        found = json_object(content, "metadata").get("id")
        if not isinstance(found, str):
            raise BadCheckpointLocation(f"{self._location.uri}/metadata names no query id")
        return found

    def ready_marker(self, *, may_be_unplanned: bool = False) -> IncarnationMarker | None:
        """Return the marker of a query that may run; None if this is the query's first batch.

        A location with batches but without a marker is refused: its numbering may belong to another sink, or
        the marker was lost. Raises NotOurs before any batch is planned, as in a continuous query, unless
        `may_be_unplanned`.
        """
        marker, newest = self.marker(), self.newest_planned()
        if marker is not None and marker.resetting:
            raise BadCheckpointLocation(
                f"the checkpoint location {self._location.uri} is being reset and that is not finished; "
                "repeat the command `sluicegate region reset`, then start the query again"
            )
        if marker is not None:
            return marker
        if newest is None and not may_be_unplanned:
            raise NotOurs(
                f"the query in {self._location.uri} has planned no batch; a continuous trigger is not "
                "supported: use a micro-batch trigger (processingTime, availableNow)"
            )
        streams = self._location.files(STREAMS_FOLDER) if self._stream is None else []
        if streams:
            named = posixpath.basename(streams[0]).removesuffix(".json")
            raise BadCheckpointLocation(
                f"the query in {self._location.uri} writes several streams. Name one of them with the "
                f"location, such as {location_of_stream(self._location.uri, named)}"
            )
        if newest is not None and newest > 0:
            raise BadCheckpointLocation(
                f"the checkpoint location {self._location.uri} has batches up to {newest}, but no "
                f"{self._own_file}. If the file was deleted, restore it. If another sink wrote them: "
                f"{self.format_beginning('the former sink')}"
            )
        return None

    def next_batch(self) -> int:
        """Return the number of the first batch that Spark has not completed."""
        completed = self.newest_completed()
        return completed + 1 if completed is not None else 0

    def is_at_rest(self) -> bool:
        """Return True if Spark has completed every batch that it has planned."""
        planned = self.newest_planned()
        return planned is None or planned < self.next_batch()

    def format_unwritten(self) -> str:
        """Format the way out of a location that a reset has marked by mistake; empty if it has batches."""
        if self.newest_planned() is not None:
            return ""
        return (
            ". No query has written there yet, and only a reset has named that region: if it was a mistake, "
            f"delete the folder {self._shown}, and repeat"
        )

    def format_beginning(self, former: str) -> str:
        """Format how the numbering continues here after `former`, which names the former target."""
        planned, following = self.newest_planned(), self.next_batch()
        begin = f"sluicegate.writer_hooks.start_incarnation({self._shown}, first="
        if planned is None or self.is_at_rest():
            return (
                f"let everything up to batch {following - 1} be committed there, and record where this sink "
                f"begins with {begin}{following})"
            )
        return (
            f"batch {planned} is planned and not finished, and may be there already. Start the query once "
            f"more with {former}, so that it finishes the batch, and stop it. Then let everything be "
            f"committed there, and record where this sink begins with {begin}{planned + 1})"
        )

    def known_query(self) -> str:
        """Return the id of the query; raise BadCheckpointLocation if Spark has written none."""
        query = self.query_id()
        if query is None:
            raise BadCheckpointLocation(
                f"{self._location.uri}/metadata does not exist where Python looks for it; give the "
                "checkpoint location as the full URI that Spark uses"
            )
        return query

    def marker(self) -> IncarnationMarker | None:
        """Return the recorded incarnation, None if the current query has none."""
        marker = self._recorded(self._marker_file())
        # The marker may be that of an earlier query in this location, whose metadata was deleted. It does not
        # count.
        return marker if marker is not None and marker.query in (None, self.query_id()) else None

    def write_marker(self, marker: IncarnationMarker) -> None:
        """Record an incarnation."""
        name = self._marker_file()
        hit(Failpoint.HOOK_MARKER_BEFORE)
        self._location.write(name, marker.model_dump_json().encode())
        hit(Failpoint.HOOK_MARKER_AFTER)

    def has_own_marker(self) -> bool:
        """Return True if the stream has a marker of its own beside those of other streams."""
        return self._location.read(self._own_file) is not None

    # --- batches that ForeachBatch has completed --------------------------------------------------

    def require_follows(self, marker: IncarnationMarker, batch: int) -> None:
        """Raise NotOurs if the batch before was noted by nobody, although an earlier one was.

        Spark does not see if the function of `foreachBatch` writes a batch. Without this, the rows of a batch
        that it left out would be missing, and the coordinator would wait for its completion.
        """
        noted = self._noted(marker)
        if noted is not None and batch > noted + 1:
            raise NotOurs(
                f"ForeachBatch has completed batch {noted} of the incarnation {marker.incarnation} and no "
                f"later one, and is called for batch {batch}: the function left batches out, or caught their "
                "errors. Call it in every batch, also for no rows. To repeat the batches, reset the region: "
                "sluicegate region reset"
            )

    def note_completed(self, marker: IncarnationMarker, batch: int) -> None:
        """Note a batch whose completion is in the log. A crash before the note repeats the batch."""
        note = CompletedNote(incarnation=marker.incarnation, batch=batch)
        self._location.write(self._note_file, note.model_dump_json().encode())

    def forget_completed(self) -> None:
        """Delete the note: batches follow that are not noted."""
        self._location.delete(self._note_file)

    def _noted(self, marker: IncarnationMarker) -> int | None:
        content = self._location.read(self._note_file)
        if content is None:
            return None
        try:
            note = CompletedNote.model_validate_json(content)
        except ValidationError:
            return None  # Nothing depends on the note but an early refusal.
        return note.batch if note.incarnation == marker.incarnation else None

    @property
    def _note_file(self) -> str:
        return (
            f"{FOLDER}/completed.json" if self._stream is None else f"{FOLDER}/completed/{self._stream}.json"
        )

    @property
    def _shown(self) -> str:
        """Text for the location in an advice; the name of the variable if it is the query's own."""
        stream = self._stream
        return "location" if stream is None else repr(location_of_stream(self._location.uri, stream))

    @property
    def _own_file(self) -> str:
        return MARKER_FILE if self._stream is None else f"{STREAMS_FOLDER}/{self._stream}.json"

    def _marker_file(self) -> str:
        """Return the file of the marker. A query that began with one stream keeps that one's file."""
        if self._stream is None or self.has_own_marker():
            return self._own_file
        marker = self._recorded(MARKER_FILE)
        return MARKER_FILE if marker is not None and marker.stream == self._stream else self._own_file

    def _recorded(self, name: str) -> IncarnationMarker | None:
        content = self._location.read(name)
        if content is None:
            return None
        try:
            return IncarnationMarker.model_validate_json(content)
        except ValidationError as error:
            raise BadCheckpointLocation(
                f"{self._location.uri}/{name} is malformed: {error.errors()[0]['msg']}; restore it"
            ) from error

    def batch_source(self, batch: int) -> BatchSource:
        """Return digest and watermark of a batch, from Spark's offset log and its sources' own logs."""
        offsets = read_offsets(self._location, batch)
        text = _as_json(offsets)
        return BatchSource(
            range_digest(self._location, batch, offsets),
            _watermark(offsets),
            text if len(text) <= LONGEST_OFFSETS else None,
        )

    def digest(self, batch: int) -> str:
        """Return the digest of the source range of a batch."""
        return range_digest(self._location, batch, read_offsets(self._location, batch))

    def predecessor(self, marker: IncarnationMarker, batch: int) -> Position | None:
        """Return the position before a batch of the incarnation; the base before its first one."""
        if batch == marker.first:
            return marker.base
        if batch > 1 and not self._has_offsets(batch - 2):
            raise BadCheckpointLocation(
                f"{self._location.uri} has no offsets/{batch - 2} any more, so the source range of batch "
                f"{batch - 1} is unknown. Set spark.sql.streaming.minBatchesToRetain to 2 or more, and reset "
                "the region: sluicegate region reset"
            )
        previous = batch - 1
        return Position(incarnation=marker.incarnation, checkpoint=previous, digest=self.digest(previous))

    def watermark(self, batch: int) -> int | None:
        """Return a batch's watermark in milliseconds; None if there is none or it has not advanced yet."""
        return _watermark(read_offsets(self._location, batch))

    def planned(self, first: int) -> tuple[Planned, ...]:
        """Return the newest two batches that Spark has planned, newest first; none before `first`."""
        newest = self.newest_planned()
        if newest is None or newest < first:
            return ()
        found = [Planned(checkpoint=newest, digest=self.digest(newest))]
        # The digest of a batch also needs the offsets of the batch before it. Spark keeps
        # `spark.sql.streaming.minBatchesToRetain` batches, which may be as few as two.
        if newest > first and (newest == 1 or self._has_offsets(newest - 2)):
            found.append(Planned(checkpoint=newest - 1, digest=self.digest(newest - 1)))
        return tuple(found)

    def _has_offsets(self, batch: int) -> bool:
        return self._location.read(f"offsets/{batch}") is not None

    def planned_at(self, batch: int) -> float:
        """Return the time at which Spark planned a batch, in seconds since the Unix epoch.

        If Spark does not keep that batch any more, it is the time of the oldest later one, and 0 if that is
        deleted too: Spark deletes old batches at any time.
        """
        content = self._location.read(f"offsets/{batch}")
        if content is None:
            kept = (name.rpartition("/")[2] for name in self._location.files("offsets"))
            later = min((int(name) for name in kept if name.isdigit() and int(name) > batch), default=None)
            content = None if later is None else self._location.read(f"offsets/{later}")
        if content is None:
            return 0.0
        found = parse_offsets(content, self._location.uri, batch).metadata.get("batchTimestampMs")
        return found / 1000 if isinstance(found, int) and found > 0 else time.time()

    def newest_planned(self) -> int | None:
        """Return the newest batch in Spark's offset log, None if it is empty."""
        return self._location.newest("offsets")

    def newest_completed(self) -> int | None:
        """Return the newest batch in Spark's commit log, None if it is empty."""
        return self._location.newest("commits")

    def unfinished(self) -> int:
        """Return the batch that is planned and not completed, or else the next one."""
        completed, planned = self.newest_completed(), self.newest_planned()
        if planned is None or planned == completed:
            return 0 if completed is None else completed + 1
        return planned

    def pause(self) -> Pause | None:
        """Return the pause in which the query is; None while a batch is planned that Spark has not completed.

        Spark plans a batch before it first calls the sink. So a sink that is called after this was read finds
        the number of a later batch.
        """
        # The commits come first: a batch that is completed in between is then taken for one that runs.
        completed = self.newest_completed()
        return Pause(completed) if self.newest_planned() == completed else None


# --- source range of a batch: Spark's offset log, and the logs of file sources ------------------------
#
# An offset of a file source is only a number in the source's own log. The names of the files are in
# `sources/<source>/<n>`, or in `sources/<source>/<n>.compact` after Spark has compacted them. Each entry of
# a compacted file contains its number.

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
    content.append([[name, _initial_offsets(location, name)] for name in sorted(first) if name not in files])
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
    found = _parsed(offset)
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
        entries = _read_entries(location, source, number)
        if not entries:
            return None
        found += sorted(entries)
    return found


def _read_entries(location: Location, source: str, number: int) -> list[str]:
    """Return the entries of one number, from its own file or from a compacted one."""
    folder = f"{_SOURCES}/{source}"
    for name in (f"{folder}/{number}", f"{folder}/{number}.compact"):
        content = location.read(name)
        if content is not None:
            return _entries_of(content, number)
    held = [name.rpartition("/")[2] for name in location.files(folder)]
    # A later compacted file contains the entries of all earlier numbers.
    compacted = sorted(int(match[1]) for name in held if (match := _COMPACT.match(name)))
    holder = next((each for each in compacted if each > number), None)
    return [] if holder is None else _entries_of(location.read(f"{folder}/{holder}.compact") or b"", number)


def _entries_of(content: bytes, number: int) -> list[str]:
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


def _initial_offsets(location: Location, source: str) -> str | None:
    content = location.read(f"{_SOURCES}/{source}/0")
    return None if content is None else content.decode()


def _watermark(offsets: Offsets) -> int | None:
    found = offsets.metadata.get("batchWatermarkMs", 0)
    return found if isinstance(found, int) and found > 0 else None


def _as_json(offsets: Offsets) -> str:
    """Return the end offsets by source; those that are no JSON stay texts."""
    return json.dumps({name: _parsed(offset) for name, offset in offsets.sources.items()})


def _parsed(offset: str) -> object:
    try:
        return json.loads(offset)
    except ValueError:
        return offset
