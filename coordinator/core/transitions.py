"""The states of checkpoints, decisions and regions, and every way from one to another, as data.

No part of what decides a commit: tests and the simulator check that what they see is in these tables,
and the state diagrams of docs/consistency.md are drawn from them.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.owing import exhausted, joined
from sluicegate.events.models import Position


class CheckpointIs(StrEnum):
    """Where a checkpoint of a lineage stands."""

    UNKNOWN = "unknown"
    WRITTEN = "written"
    """Events of it have arrived, and no completion."""
    COMPLETED = "completed"
    """A named event, or something before it, is still to come."""
    SEALED = "sealed"
    DECIDED = "decided"
    COMMITTED = "committed"
    HELD_OUT = "held_out"
    """Sealed, in a region that stalls: it enters no cut."""
    VOID = "void"


class DecisionIs(StrEnum):
    """Where a decision stands, for one coordinator."""

    UNKNOWN = "unknown"
    PROPOSED = "proposed"
    DECIDED = "decided"
    """Read back, valid, and held whole until its outcome is known."""
    ABSENT = "absent"
    """Proven not to be in the table, on a head that it may be published on."""
    STALLED = "stalled"
    VOIDING = "voiding"
    """An operator has given it up."""
    EMPTIED = "emptied"
    """The empty commit of its id is in the table, and the log does not say so yet."""
    VOIDED = "voided"
    COMMITTED = "committed"
    """In the table."""
    RECORDED = "recorded"
    """Its outcome is in the state record, with the notification that is to follow."""
    ANNOUNCED = "announced"


class RegionIs(StrEnum):
    """What a region is for the next cut; the first that holds of: removed, faulted, left, and so on."""

    UNOPENED = "unopened"
    OWING = "owing"
    """Has nothing sealed beyond its ref."""
    FALLEN_BACK = "fallen_back"
    """Owes, and did not move in the cut before."""
    FORCED = "forced"
    """Owes, and has fallen back as often as it may: the next cut is full or abandoned."""
    JOINED = "joined"
    """Owes, in a stream that is one region: it is waited for without end."""
    ACTIVE = "active"
    """Has something sealed beyond its ref: the next cut takes it along."""
    IDLE = "idle"
    CLOSING = "closing"
    """Closed, and its final checkpoint is in no cut yet."""
    LEFT = "left"
    FAULTED = "faulted"
    REMOVED = "removed"


GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "waited_for": ("owing", "fallen_back", "forced", "joined"),
        "open": ("waited_for", "active", "idle"),
    }
)
"""Names for several states together; a group may stand in a group."""


class Transition(NamedTuple):
    """From any of these states or groups to any of those, and what leads there."""

    sources: tuple[str, ...]
    by: str
    targets: tuple[str, ...]

    def covers(self, before: str, after: str) -> bool:
        """Whether a change is this one."""
        return before in _states(self.sources) and after in _states(self.targets)


CHECKPOINT: Final = (
    Transition(("unknown",), "files.written", ("written",)),
    Transition(("unknown", "written"), "checkpoint.completed, with something still to come", ("completed",)),
    Transition(("unknown", "written", "completed"), "the last of what it waits for", ("sealed",)),
    Transition(("sealed",), "cut.decided includes it", ("decided",)),
    Transition(("decided",), "the commit is in the table", ("committed",)),
    Transition(("decided",), "cut.voided, of another region", ("sealed",)),
    Transition(("decided",), "cut.voided names its region", ("held_out",)),
    Transition(("unknown", "written", "completed", "sealed"), "its region stalls", ("held_out",)),
    Transition(("held_out",), "a new lineage builds on it", ("sealed",)),
    Transition(
        ("unknown", "written", "completed", "sealed", "held_out"), "a new lineage begins before it", ("void",)
    ),
    Transition(("written", "completed"), "a cut passes it by", ("void",)),
)

DECISION: Final = (
    Transition(("unknown",), "AppendDecision", ("proposed",)),
    Transition(("proposed",), "it failed, or is void at its offset", ("unknown",)),
    Transition(("proposed", "unknown"), "cut.decided is read, and valid", ("decided",)),
    Transition(("decided", "stalled"), "Ask: absent", ("absent",)),
    Transition(("absent",), "Publish: conflict, not published or unknown", ("decided",)),
    Transition(("absent",), "Publish: refused", ("stalled",)),
    Transition(("decided",), "Ask: no proof, or other content", ("stalled",)),
    Transition(("absent",), "Publish: published", ("committed",)),
    Transition(("decided", "stalled"), "Ask: found", ("committed",)),
    Transition(("decided", "absent", "stalled"), "stream.command void", ("voiding",)),
    Transition(("voiding",), "Ask: found after all", ("committed",)),
    Transition(("voiding", "decided", "stalled"), "the empty commit is in the table", ("emptied",)),
    Transition(("emptied", "voiding"), "cut.voided is read", ("voided",)),
    Transition(("committed", "voided"), "WriteRecord", ("recorded",)),
    Transition(("recorded",), "Announce", ("announced",)),
)

REGION: Final = (
    Transition(("unopened",), "region.opened", ("waited_for",)),
    Transition(("open", "closing", "faulted"), "others take over what it went on from", ("unopened",)),
    Transition(("waited_for", "idle"), "its next checkpoint is sealed", ("active",)),
    Transition(("active",), "a cut takes it along, or a rewind voids it", ("waited_for", "idle")),
    Transition(("owing",), "a partial cut without it", ("fallen_back",)),
    Transition(("owing", "fallen_back"), "the last partial cut without it", ("forced",)),
    Transition(("fallen_back", "forced"), "cut.abandoned or cut.voided", ("owing",)),
    Transition(("forced",), "a higher maximum, or cut.voided", ("fallen_back",)),
    Transition(("owing", "fallen_back", "forced"), "sink or table join its writers", ("joined",)),
    Transition(("joined",), "nothing joins them any more", ("owing", "fallen_back", "forced")),
    Transition(("waited_for",), "region.heartbeat: idle", ("idle",)),
    Transition(("idle",), "its next event", ("waited_for",)),
    Transition(("open",), "region.closed or a drain", ("closing",)),
    Transition(("closing",), "opened again, or work beyond its end", ("open",)),
    Transition(("closing",), "a full cut takes its final checkpoint", ("left",)),
    Transition(("open", "unopened"), "closed at its ref, or a new assignment without it", ("left",)),
    Transition(
        ("left",), "opened again, work beyond its end, or cut.voided", ("open", "closing", "unopened")
    ),
    Transition(("open", "closing", "left"), "a contradiction, lost files, or cut.voided", ("faulted",)),
    Transition(("faulted",), "a new lineage, or a mended completion", ("open", "closing", "left")),
    Transition(("unopened", "open", "closing", "left", "faulted"), "stream.command remove", ("removed",)),
    Transition(("removed",), "opened again", ("open", "faulted")),
)

TABLES: Final[Mapping[str, tuple[Transition, ...]]] = MappingProxyType(
    {"checkpoint": CHECKPOINT, "decision": DECISION, "region": REGION}
)


def allowed(kind: str, before: str, after: str) -> list[Transition]:
    """The transitions of a table that a change may be; empty if it is none of them."""
    return [each for each in TABLES[kind] if each.covers(before, after)]


def checkpoint_state(
    book: Book, region: str, position: Position, was: CheckpointIs = CheckpointIs.UNKNOWN
) -> CheckpointIs:
    """Where a checkpoint stands; `was` tells what is decided from what a cut has passed by, then or now."""
    known = book.state.regions.get(region)
    lived = known.lineages.get(position.lineage) if known else None
    if known is None or lived is None:
        return CheckpointIs.UNKNOWN
    if lived.limit is not None and position.checkpoint > lived.limit:
        return CheckpointIs.VOID
    if lived.decided is not None and position.checkpoint <= lived.decided:
        unsealed = (CheckpointIs.WRITTEN, CheckpointIs.COMPLETED, CheckpointIs.VOID)
        if was in unsealed or _is_passed_by(book, region, position):
            return CheckpointIs.VOID
        pending = _is_pending(book, region, position, was)
        return CheckpointIs.DECIDED if pending else CheckpointIs.COMMITTED
    if any((at, number) == (position.lineage, position.checkpoint) for at, number, _ in book.sealed(region)):
        return CheckpointIs.HELD_OUT if known.fault is not None else CheckpointIs.SEALED
    ledger = book.ledgers.get((region, position.lineage))
    entry = ledger.checkpoints.get(position.checkpoint) if ledger else None
    if was is CheckpointIs.VOID and (entry is None or entry.completion is None):
        # Passed by once, it never counts again, whatever is still said of it.
        return CheckpointIs.VOID
    if entry is None or not (entry.parts or entry.completion):
        return CheckpointIs.UNKNOWN
    return CheckpointIs.WRITTEN if entry.completion is None else CheckpointIs.COMPLETED


def region_state(book: Book, name: str) -> RegionIs:
    """What a region is for the next cut."""
    region = book.state.regions.get(name)
    if region is None:
        return RegionIs.UNOPENED
    gone = (
        (region.removed, RegionIs.REMOVED),
        (book.waits(name) is not None, RegionIs.FAULTED),
        (region.left, RegionIs.LEFT),
        (not region.chain, RegionIs.UNOPENED),
        (region.closed, RegionIs.CLOSING),
        (next(book.sealed(name), None) is not None, RegionIs.ACTIVE),
        (region.resting, RegionIs.IDLE),
        (joined(book) is not None, RegionIs.JOINED),
        (bool(exhausted(book, [name])), RegionIs.FORCED),
        (region.fallbacks > 0, RegionIs.FALLEN_BACK),
    )
    return next((state for holds, state in gone if holds), RegionIs.OWING)


def _states(names: tuple[str, ...]) -> set[str]:
    return {state for name in names for state in (_states(GROUPS[name]) if name in GROUPS else {name})}


def _is_passed_by(book: Book, region: str, position: Position) -> bool:
    """Whether what a decision passed by was collected again, for it may be given up."""
    ledger = book.ledgers.get((region, position.lineage))
    if ledger is None or position.checkpoint not in ledger.checkpoints:
        return False
    return position.checkpoint not in ledger.sealed and max(ledger.sealed, default=-1) > position.checkpoint


def _is_pending(book: Book, region: str, position: Position, was: CheckpointIs) -> bool:
    """Whether a decision without an outcome includes the checkpoint."""
    order = list(book.state.regions[region].lineages)
    place = (order.index(position.lineage), position.checkpoint)
    for decision in book.state.pending:
        at = decision.cut.get(region)
        if at is None or (order.index(at.lineage), at.checkpoint) < place:
            continue
        if decision is not book.state.pending[0]:
            return True
        if decision.before is None:
            return was is not CheckpointIs.COMMITTED
        old = decision.before.regions.get(region)
        lived = old.lineages.get(position.lineage) if old else None
        return lived is None or lived.decided is None or lived.decided < position.checkpoint
    return False
