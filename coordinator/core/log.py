"""Log: LogState with the pending checkpoints in memory, and the questions that the rules ask about both.

Only the rules of this package change it, on behalf of `Replica`.

A *barrier* is the set of all targets: final checkpoints of closing regions, and targets of savepoints. Only a
full cut that reaches every target may reach one; other cuts stop before it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from sluicegate.coordinator.core.log_state import (
    MOST_ENDED,
    Decision,
    LogState,
    RegionPhase,
    RegionState,
    Savepoint,
    reaches,
)
from sluicegate.coordinator.core.pending import PendingCheckpoints, Sealed
from sluicegate.events.models import Position
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import Code, Problem


@dataclass(frozen=True, slots=True)
class Applied:
    """The effect of one record."""

    ignored: Problem | None = None
    """Reason for which it has no effect; None if it has one."""
    answer: RegistrationAnswered | None = None
    """The answer to a registration or a probe, as of its offset."""
    resolved: Decision | None = None
    """The decision that got its outcome."""
    savepoints: tuple[Savepoint, ...] = ()
    """Savepoints and drains that are reached."""
    ended: Mapping[str, str] = field(default_factory=dict)
    """By region, the live incarnation that an order has ended."""


class Log:
    """The fold of one stream's log in memory."""

    def __init__(self, stream: str, state: LogState) -> None:
        self.stream = stream
        self.state = state
        self.pending: dict[str, PendingCheckpoints] = {}
        """By region, for its newest incarnation."""
        self.decided: dict[str, PendingCheckpoints] = {}
        """By region, everything up to the position of the unresolved decision: a revert puts it back."""
        for name, region in state.regions.items():
            self.begin_pending(name, region)
        if (made := state.pending) is not None:
            for name, to in made.moves.items():
                self.decided[name] = PendingCheckpoints(
                    name, to.incarnation, made.before.regions[name].position
                )

    def begin_pending(self, name: str, region: RegionState) -> None:
        """Begin an empty set of pending checkpoints after the region's position."""
        if region.incarnation is not None:
            self.pending[name] = PendingCheckpoints(name, region.incarnation.id, region.position)

    @property
    def included(self) -> dict[str, list[Sealed]]:
        """Return, by region, the checkpoints that the unresolved decision includes."""
        return {name: each.sealed for name, each in self.decided.items()}

    # --- one region -------------------------------------------------------------------------------

    def position(self, name: str) -> Position | None:
        """Return the region's decided position; None if it has none."""
        region = self.state.regions.get(name)
        return region.position if region is not None else None

    def sealed(self, name: str) -> list[Sealed]:
        """Return the region's sealed checkpoints after its position, in order."""
        found = self.pending.get(name)
        return found.sealed if found is not None else []

    def may_move(self, name: str, at: Position) -> bool:
        """True if a cut may move a region there: a live one, or a removed one up to its end."""
        region = self.state.regions.get(name)
        if region is None or region.incarnation is None or at.incarnation != region.incarnation.id:
            return False
        return region.live or (region.removed and region.final is not None and at.checkpoint <= region.final)

    def is_idle(self, name: str) -> bool:
        """True if the newest heartbeat says that the region has no work, and nothing of it is pending."""
        region, pending = self.state.regions.get(name), self.pending.get(name)
        if region is None or not region.live or not region.idle:
            return False
        if region.fault is not None and region.fault.code is Code.RECORD_SKIPPED:
            # The skipped record may have stated rows, so nothing is known of what the driver has begun.
            return False
        # A long first batch may be under way when a heartbeat says idle: the watermark must not pass it. The
        # same holds for the final checkpoint of a closed region, even if nothing of it has arrived yet.
        return not (pending is not None and pending.checkpoints) and (not region.closed or region.gone)

    def expected(self) -> Iterator[str]:
        """Yield the regions that a full cut must move: active and not idle, registered or not."""
        return (name for name in self.state.active() if not self.is_idle(name))

    def lagging(self) -> list[str]:
        """Return the lagging regions: expected, with nothing sealed after their position."""
        return [name for name in self.expected() if not self.sealed(name)]

    # --- the barrier ------------------------------------------------------------------------------

    def targets(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield the region's targets that its position does not reach, as (incarnation, checkpoint)."""
        region = self.state.regions.get(name)
        if region is None:
            return
        if region.closed and region.final is not None and region.incarnation is not None and not region.gone:
            yield region.incarnation.id, region.final
        for savepoint in self.state.savepoints:
            target = savepoint.targets.get(name)
            if target is not None and not region.covers(target.incarnation, target.checkpoint):
                yield target.incarnation, target.checkpoint

    def at_barrier(self, name: str, at: Position) -> bool:
        """True if a position reaches a target of its region."""
        return any(reaches(at, *target) for target in self.targets(name))

    def is_held(self, name: str) -> bool:
        """True if the region's next sealed checkpoint is a target, so that it waits for a full cut.

        A stalled region waits for a new incarnation instead: it falls back like any other.
        """
        sealed, region = self.sealed(name), self.state.regions.get(name)
        stalled = region is not None and region.fault is not None
        return bool(sealed) and not stalled and self.at_barrier(name, sealed[0].position)

    def is_awaited(self, savepoint: Savepoint, name: str) -> bool:
        """True if a savepoint waits for the region's next sealed checkpoint."""
        region = self.state.regions.get(name)
        gone = region is not None and region.gone
        return name in savepoint.awaited and not gone and not self.is_idle(name)

    def retarget(self, name: str, at: Position) -> None:
        """Make a position the target of every savepoint that waits for the region."""
        for savepoint in self.state.savepoints:
            if name in savepoint.awaited:
                savepoint.targets[name] = at
                savepoint.awaited = [each for each in savepoint.awaited if each != name]

    # --- changes ----------------------------------------------------------------------------------

    def end_incarnation(self, name: str, phase: RegionPhase, *, upto: Position | None = None) -> None:
        """End the region's incarnation, and discard its checkpoints after `upto` (None: all of them)."""
        region = self.state.regions[name]
        self.remember_ended(name, region)
        region.phase, region.fault = phase, None
        found = self.pending.get(name)
        if found is not None:
            if upto is None:
                found.sealed.clear()
            found.keep_sealed()
        # A discarded target becomes the position. A revert takes that back, and it must be reached again.
        removed = phase is RegionPhase.REMOVED
        self._cap_targets(name, upto, region.position if removed and upto is None else upto)

    def remember_ended(self, name: str, region: RegionState) -> None:
        """Note that the region's incarnation has ended, until a registration of it fails by its base."""
        life = region.incarnation
        if life is not None:
            ended = self.state.ended
            ended.setdefault(life.id, name if life.base is not None else None)
            if len(ended) > MOST_ENDED:
                del ended[next(iter(ended))]

    def forget_ended(self, moved: Collection[str]) -> None:
        """Forget the ended incarnations of regions that a committed cut has moved.

        A new incarnation begins at a committed position. So each of them has a base before the cut, and no
        position comes back. The newest one of a region is part of its state, and stays.
        """
        regions, ended = self.state.regions, self.state.ended
        newest = {each.incarnation.id for each in regions.values() if each.incarnation is not None}
        self.state.ended = {life: name for life, name in ended.items() if name not in moved or life in newest}

    def _cap_targets(self, name: str, upto: Position | None, end: Position | None) -> None:
        """Move a region's targets to its end, unless `upto` includes them; without an end drop them."""
        for savepoint in self.state.savepoints:
            target = savepoint.targets.pop(name, None)
            if end is not None and (target is not None or name in savepoint.awaited):
                kept = target if target and upto and target.checkpoint <= upto.checkpoint else None
                savepoint.targets[name] = kept or end
            savepoint.awaited = [each for each in savepoint.awaited if each != name]

    def low_water(self, position: int) -> int:
        """Return the smallest offset that a recovery reads, if everything before `position` was read."""
        needed = [position]
        if self.state.pending is not None:
            needed.append(self.state.pending.first_offset)
        needed += [first for each in self.pending.values() if (first := each.first_offset()) is not None]
        return min(needed)
