"""Reset of a region: a new incarnation starts from the committed position, in the region's location.

The order is part of the protocol: ask, mark the location, register, read the answer, and only then change the
location's files. Each step may be repeated; after a crash, the whole reset is repeated.

A region that has ended is not registered: its query begins the next assignment from the marker, with a new
incarnation.
"""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sluicegate.events.models import Assignment, Position, RegionRegistered
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import Code
from sluicegate.writer_hooks.errors import BadCheckpointLocation, RegistrationRefused
from sluicegate.writer_hooks.registration import has_moved_on
from sluicegate.writer_hooks.spark.checkpoint import (
    FOLDER,
    MARKER_FILE,
    STREAMS_FOLDER,
    CheckpointLocation,
    IncarnationMarker,
    new_incarnation,
    root_of,
    stream_of,
)
from sluicegate.writer_hooks.spark.location import Location

Ask = Callable[[str, RegionRegistered], RegistrationAnswered]
"""Function that registers an incarnation, or probes, and returns the coordinator's answer."""

_LOGS: Final = ("commits", "offsets")
_BATCH: Final = re.compile(r"^\.?(\d+)(\.crc)?$")
_STATE: Final = re.compile(r"^\.?(\d+)(_[\w-]+)*\.(delta|snapshot|zip|changelog)(\.crc)?$")
_COMMIT_VERSION: Final = "v1"
_ATTEMPTS: Final = 5
"""Registrations of one reset, each after a newer decision."""
_ENDED: Final = frozenset({Code.REGION_REMOVED, Code.REGION_NOT_ASSIGNED})
"""Refusals of a region that has ended, and comes back with the next assignment."""
_PAUSE: Final = 0.2
"""Seconds between two questions while a decision that moves the region has no outcome."""
_EMPTY: Final = (
    "reset the region with an empty location, and start its query there with a source that begins right "
    "after the committed rows; `sluicegate status` shows their source offsets"
)
_PUT_BACK: Final = f"Put the newer location back, and repeat the command. If it is lost, {_EMPTY}"


@dataclass(frozen=True, slots=True)
class ResetOrder:
    """A region to be reset, and its checkpoint location."""

    stream: str
    region: str
    location: str
    assignment: Assignment
    """The assignment in force."""
    reason: str = ""
    """Noted beside the files that are moved away."""
    ended: bool = False
    """True if the region was removed, or left at an earlier assignment, and its position is its end."""
    files_moved: bool = False
    """True if the files whose rows are committed are not in the folder of a source of files any more."""
    patience: float = 60.0
    """Seconds to wait for the outcome of a decision that moves the region: a reset begins after it."""


@dataclass(frozen=True, slots=True)
class ResetDone:
    """Result of a reset."""

    incarnation: str
    position: Position | None
    """The position that the region continues after; None: it begins again."""
    source_offsets: str | None
    """Source offsets of the position, if its driver published them."""
    moved: int
    """Number of planned batches that were moved away."""
    backup: str
    """Folder of the files that were moved away."""
    empty: bool
    """True if the location was empty: its source must begin at the position."""


def reset_region(order: ResetOrder, ask: Ask) -> ResetDone:
    """Reset a region. The query must not run. Repeat the call after a crash.

    Raises RegistrationRefused, BadCheckpointLocation, and the errors of `ask`.
    """
    step = Reset(order)
    answer = step.probe(ask)
    if step.is_empty and not order.files_moved and _are_of_files(answer.source_offsets):
        raise BadCheckpointLocation(_doubles_files(order))
    if _has_ended(order, answer):
        step.examine(answer.committed)
        step.mark(answer)
    else:
        answer = _register(step, order, ask, answer)
    moved = step.set_back()
    step.finish()
    marker = step.target
    backup = f"{order.location}/{step.backup}"
    return ResetDone(
        marker.incarnation, marker.base, answer.source_offsets, moved, backup, empty=step.is_empty
    )


def _register(
    step: "Reset", order: ResetOrder, ask: Ask, answer: RegistrationAnswered
) -> RegistrationAnswered:
    """Mark the location, and register until the answer is about the newest decision. Return that answer."""
    first = answer.live
    for attempt in range(_ATTEMPTS):
        try:
            step.examine(answer.committed)
        except BadCheckpointLocation:
            if attempt:
                step.give_up()
            raise
        step.mark(answer)
        answer = step.register(ask, answer)
        if answer.accepted or not has_moved_on(answer):
            break
        if answer.unresolved is not None:
            answer = step.probe(ask)
        if answer.live not in (None, first):
            # The query must not run. A command that stood still does not end what was started meanwhile.
            step.give_up()
            raise RegistrationRefused(
                f"the reset of the region {order.region} of the stream {order.stream} was refused: "
                f"{answer.live} has registered since the reset began. Nothing is changed in the location. If "
                "its query works, nothing is to be done; else stop it, and repeat the command"
            )
        # A decision came between the answers: reset to the newer position.
    if not answer.accepted:
        step.give_up()
        raise RegistrationRefused(_refused(order, answer))
    return answer


def _are_of_files(source_offsets: str | None) -> bool:
    """True if a source of these offsets reads files: the offsets count batches, and name no file."""
    try:
        found = json.loads(source_offsets or "null")
    except ValueError:
        return False
    each = found.values() if isinstance(found, dict) else ()
    return any(isinstance(source, dict) and "logOffset" in source for source in each)


def _doubles_files(order: ResetOrder) -> str:
    return (
        f"region {order.region} of the stream {order.stream} reads files, and {order.location} is empty. The "
        "names of the files that were read are in the lost location alone. A query that starts with an empty "
        "one reads all files of its folder, and rows that are committed would be in the table twice. Put the "
        "lost location back. If that is impossible, move every file whose rows are in the table out of the "
        "folder (compare the rows), and repeat the command with --files-moved. Nothing is changed"
    )


def _has_ended(order: ResetOrder, answer: RegistrationAnswered) -> bool:
    return order.ended and answer.problem is not None and answer.problem.code in _ENDED


def _refused(order: ResetOrder, answer: RegistrationAnswered) -> str:
    if answer.unresolved is not None:
        return (
            f"the reset of the region {order.region} of the stream {order.stream} was refused "
            f"({Code.BASE_UNRESOLVED}): decision {answer.unresolved} includes checkpoints of it, and has no "
            "outcome yet. Nothing is changed in the location; repeat the command when `sluicegate status "
            f"--stream {order.stream}` shows the decision as committed. If it stays, status shows why"
        )
    code = answer.problem.code if answer.problem is not None else "no reason given"
    return (
        f"the reset of the region {order.region} of the stream {order.stream} was refused ({code}): "
        f"{answer.reason} Nothing is changed in the location; correct that and repeat the command"
    )


class Reset:
    """The steps of one reset. Methods may raise BadCheckpointLocation."""

    def __init__(self, order: ResetOrder) -> None:
        self._order = order
        self._location = Location(root_of(order.location))
        if stream_of(order.location) is not None or self._location.files(STREAMS_FOLDER):
            raise BadCheckpointLocation(
                f"the query in {self._location.uri} writes several streams, so its location cannot be set "
                f"back for one of them. Write this stream with a query of its own, in a location whose name "
                f"states no stream: {_EMPTY}"
            )
        self._checkpoint = CheckpointLocation(order.location)
        self._known = self._known_marker()
        """Marker that is currently recorded; None in an empty location."""
        self._incarnation = new_incarnation()
        if self._known is not None and self._known.resetting:
            # An earlier try may have registered it already.
            self._incarnation = self._known.incarnation
        self._to = -1
        """The last batch that stays; -1: none does."""
        self.is_empty = self._checkpoint.newest_planned() is None and self._began_empty()
        """True if the location had no query when the reset began."""

    @property
    def target(self) -> IncarnationMarker:
        """Marker of the new incarnation; raise BadCheckpointLocation before `mark`."""
        if self._known is None:
            raise BadCheckpointLocation(f"{self._location.uri} is not marked yet")
        return self._known

    @property
    def backup(self) -> str:
        """Backup folder for moved files, relative to the location."""
        return f"{FOLDER}/reset-{self._incarnation}"

    def probe(self, ask: Ask) -> RegistrationAnswered:
        """Ask for the committed position and the live incarnation; nothing is changed.

        While a decision that moves the region has no outcome, the call waits for it, as long as the order
        states. Raises RegistrationRefused for a refusal that a reset does not resolve.
        """
        until = time.monotonic() + self._order.patience
        while True:
            answer = self._probe(ask)
            if answer.unresolved is None or time.monotonic() + _PAUSE >= until:
                break
            time.sleep(_PAUSE)
        may_begin = answer.accepted or has_moved_on(answer) or _has_ended(self._order, answer)
        if not may_begin or answer.unresolved is not None:
            known = self._known
            if known is not None and known.resetting and answer.live != known.incarnation:
                # An earlier try marked the location. Without this, its query could never start again.
                self.give_up()
            raise RegistrationRefused(_refused(self._order, answer))
        return answer

    def _probe(self, ask: Ask) -> RegistrationAnswered:
        base = self._known.base if self._known is not None and self._known.resetting else None
        answer = ask(self._incarnation, self._registration(base, None, probe=True))
        if self._is_used_up(answer):
            self._incarnation = new_incarnation()
            answer = ask(self._incarnation, self._registration(None, None, probe=True))
        return answer

    def _is_used_up(self, answer: RegistrationAnswered) -> bool:
        """True if an earlier try may have registered its incarnation, and that one has ended since.

        The log forgets an ended incarnation once the committed position is past its base.
        """
        known = self._known
        if known is None or not known.resetting or answer.live == self._incarnation:
            return False
        ended = answer.problem is not None and answer.problem.code is Code.INCARNATION_ENDED
        return ended or answer.committed != known.base

    def examine(self, committed: Position | None) -> None:
        """Choose the batch to return to. Raise BadCheckpointLocation if the reset could not be finished.

        Nothing is changed.
        """
        self._refuse_batches_of_others(committed)
        self._to = self._batch_of(committed)
        if self._to < 0:
            return
        uri, newest = self._location.uri, self._checkpoint.newest_planned()
        if newest is None or newest < self._to:
            raise BadCheckpointLocation(
                f"{uri} has batches up to {newest} only, but batch {self._to} is committed: it was restored "
                f"from a backup, or partly deleted. {_PUT_BACK}"
            )
        if self._location.read(f"offsets/{self._to}") is None:
            raise BadCheckpointLocation(
                f"{uri} has no offsets/{self._to} any more, so the query cannot continue after batch "
                f"{self._to}: Spark keeps spark.sql.streaming.minBatchesToRetain batches. To continue, "
                f"{_EMPTY}"
            )
        if committed is not None and self._is_own(committed):
            self._compare(committed)
        self._examine_state()

    def _refuse_batches_of_others(self, committed: Position | None) -> None:
        """Refuse a position before a beginning that a user has stated: others have the batches between."""
        known = self._known
        if known is None or committed is None or known.base is not None:
            return
        if committed.checkpoint >= known.first:
            return
        raise BadCheckpointLocation(
            f"{self._location.uri} begins for this stream at batch {known.first}: another stream or sink has "
            f"batches before that one, and the region {self._order.region} is committed at batch "
            f"{committed.checkpoint}, from an earlier time. A reset to it would write the batches in between "
            "once more. Reset the region with an empty location, and start its query there with a source "
            "that begins right after the rows of both"
        )

    def _batch_of(self, committed: Position | None) -> int:
        """Return the batch of this location's numbering at the position; -1: before its first batch."""
        if self._known is None or self.is_empty:
            return -1
        if committed == self._known.base:
            # The position may be of another location's numbering, if this one was empty when it was reset.
            # Without one, the batches before the incarnation still do not belong to the region.
            return self._known.first - 1
        return committed.checkpoint if committed is not None else -1

    def _is_own(self, committed: Position) -> bool:
        """True if the position has a number of this location: its base may be of another one."""
        return self._known is not None and (
            committed != self._known.base or committed.checkpoint == self._known.first - 1
        )

    def _compare(self, committed: Position) -> None:
        if self._checkpoint.digest(self._to) != committed.digest:
            uri = self._location.uri
            raise BadCheckpointLocation(
                f"batch {self._to} is committed with other source data than {uri} has for it: the location "
                "was restored from a backup, or partly deleted, or belongs to another query. A query that "
                f"continues from there would lose rows or write them twice. {_PUT_BACK}"
            )

    def _examine_state(self) -> None:
        stateful = self._state_versions()
        if stateful and self._location.read(f"commits/{self._to}") is None:
            way = (
                f"to continue, {_EMPTY}"
                if self._order.ended
                else "start it once, so that it does, and repeat"
            )
            raise BadCheckpointLocation(
                f"the query in {self._location.uri} keeps state and has not finished batch {self._to}: {way}"
            )
        lacking = sorted(place for place, held in stateful.items() if self._to + 1 not in held)
        if lacking:
            raise BadCheckpointLocation(
                f"the query in {self._location.uri} keeps state, and its state as of batch {self._to} was "
                f"deleted ({', '.join(lacking[:3])}). To continue, {_EMPTY}"
            )

    def mark(self, answer: RegistrationAnswered) -> None:
        """Record the new incarnation. From now on no batch runs until the reset is finished."""
        known, order = self._known, self._order
        if known is not None and known.resetting and answer.live == known.incarnation:
            return  # An earlier try registered it, with this base.
        self._known = IncarnationMarker(
            query=known.query if known is not None else self._checkpoint.query_id(),
            incarnation=self._incarnation,
            base=answer.committed,
            first=self._to + 1,
            stream=order.stream,
            region=order.region,
            assignment=order.assignment.number,
            resetting=True,
            former=known.former if known is not None and known.resetting else known,
        )
        self._checkpoint.write_marker(self._known)

    def register(self, ask: Ask, answer: RegistrationAnswered) -> RegistrationAnswered:
        """Register the new incarnation in the place of the live one, and return the answer."""
        replaces = answer.live if answer.live != self._incarnation else None
        return ask(self._incarnation, self._registration(self.target.base, replaces))

    def _registration(
        self, base: Position | None, replaces: str | None, *, probe: bool = False
    ) -> RegionRegistered:
        order = self._order
        return RegionRegistered.model_validate(
            {
                "base": base,
                "replaces": replaces,
                "assignment": order.assignment,
                "probe": probe,
            }
        )

    def set_back(self) -> int:
        """Move the planned and finished batches after the position to the backup; return their number."""
        position = self.target.base
        note = {
            "to": self._to,
            "reason": self._order.reason,
            "position": position.model_dump() if position is not None else None,
        }
        self._location.write(f"{self.backup}/reason.json", json.dumps(note).encode())
        self._finish_last()
        for name in [*(name for log in _LOGS for name in self._entries_after(log)), *self._state_after()]:
            self._put_aside(name)
        moved = (name.rpartition("/")[2] for name in self._location.files(f"{self.backup}/offsets"))
        return sum(name.isdigit() for name in moved)

    def finish(self) -> None:
        """Allow the query to run again."""
        self._known = self.target.model_copy(update={"resetting": False, "former": None})
        self._checkpoint.write_marker(self._known)

    def give_up(self) -> None:
        """Restore the previous marker: the remedy of the refusal may require a start of the query."""
        former = self.target.former
        if former is not None:
            self._checkpoint.write_marker(former)
        else:
            self._location.delete(MARKER_FILE)

    def _began_empty(self) -> bool:
        return self._known is None or (self._known.resetting and self._known.former is None)

    def _known_marker(self) -> IncarnationMarker | None:
        marker, uri, order = self._checkpoint.marker(), self._location.uri, self._order
        if marker is None:
            if self._checkpoint.newest_planned() is None:
                return None
            raise BadCheckpointLocation(
                f"{uri} has batches of a query, but no {MARKER_FILE}: no query has written region "
                f"{order.region} from there. A query that was refused leaves such a location: then repeat "
                f"the command with an empty one. Else give the checkpointLocation of region {order.region}"
            )
        place = (marker.stream or order.stream, marker.region or order.region)
        if place != (order.stream, order.region):
            raise BadCheckpointLocation(
                f"{uri} belongs to region {marker.region} of stream {marker.stream}, not to {order.region} "
                f"of {order.stream}; give the checkpointLocation of that region"
                f"{self._checkpoint.format_unwritten()}"
            )
        return marker

    def _finish_last(self) -> None:
        """Write Spark's commit entry of the committed batch, if the query ended before Spark did.

        Otherwise Spark would run the batch again.
        """
        if self._to < 0:
            return
        name = f"commits/{self._to}"
        if self._location.read(name) is not None:
            return
        watermark = self._checkpoint.watermark(self._to) or 0
        content = json.dumps({"nextBatchWatermarkMs": watermark}, separators=(",", ":"))
        self._location.write(name, f"{_COMMIT_VERSION}\n{content}".encode())

    def _put_aside(self, name: str) -> None:
        """Move a file to the backup; an earlier backup of the same name stays."""
        target = f"{self.backup}/{name}"
        while self._location.read(target) is not None:
            target += ".later"
        self._location.move(name, target)

    def _entries_after(self, log: str) -> list[str]:
        """Return a log's entries after the checkpoint, with their checksum files, newest first."""
        found = [
            (int(match[1]), name)
            for name in self._location.files(log)
            if (match := _BATCH.match(name.rpartition("/")[2])) and int(match[1]) > self._to
        ]
        # Newest first: after an interruption, the remaining entries are still contiguous.
        return [name for _, name in sorted(found, reverse=True)]

    def _state_files(self) -> list[tuple[str, int]]:
        return [
            (name, int(match[1]))
            for name in self._location.files("state", below=True)
            if (match := _STATE.match(name.rpartition("/")[2]))
        ]

    def _state_versions(self) -> dict[str, set[int]]:
        """Return the state versions of each partition of a stateful query; batch n writes version n + 1."""
        found: dict[str, set[int]] = {}
        for name, version in self._state_files():
            found.setdefault(name.rpartition("/")[0], set()).add(version)
        return found

    def _state_after(self) -> list[str]:
        return [name for name, version in self._state_files() if version > self._to + 1]
