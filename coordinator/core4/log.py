"""Log: LogState together with the pending checkpoints, and questions about them.

The rules of this package read and change it. Nothing outside of `Replica` does.
"""

from collections.abc import Iterator

from sluicegate.coordinator.core4.log_state import LogState, RegionState, Savepoint, Target
from sluicegate.coordinator.core4.pending import PendingCheckpoints, Sealed
from sluicegate.events.version4 import Position


class Log:
    """The fold of one stream's log in memory."""

    def __init__(self, stream: str, state: LogState) -> None:
        self.stream = stream
        self.state = state
        self.pending: dict[str, PendingCheckpoints] = {}
        """By region, for its newest incarnation."""
        self.included: dict[str, list[Sealed]] = {}
        """By region, the checkpoints that the unresolved decision includes."""
        for name, region in state.regions.items():
            self.begin_pending(name, region)

    def begin_pending(self, name: str, region: RegionState) -> None:
        """Begin an empty set of pending checkpoints after the region's position."""
        if region.incarnation is not None:
            self.pending[name] = PendingCheckpoints(region.incarnation.id, region.position)

    # --- one region -------------------------------------------------------------------------------

    def sealed(self, name: str) -> list[Sealed]:
        """Return the region's sealed checkpoints after its position, in order."""
        found = self.pending.get(name)
        return found.sealed if found is not None else []

    def has_pending(self, name: str) -> bool:
        """Return whether anything of the region's incarnation is after its position."""
        found = self.pending.get(name)
        return found is not None and bool(found.checkpoints)

    def is_idle(self, name: str) -> bool:
        """Return whether the region said that it has no work, and nothing of it is pending."""
        region = self.state.regions.get(name)
        return region is not None and region.live and region.idle and not self.has_pending(name)

    def expected(self) -> Iterator[str]:
        """Yield the regions that a full cut must move: active and not idle, registered or not."""
        for name, _ in self.state.active():
            if not self.is_idle(name):
                yield name

    def lagging(self) -> list[str]:
        """Return the expected regions with nothing sealed after their position."""
        return [name for name in self.expected() if not self.sealed(name)]

    # --- barriers ---------------------------------------------------------------------------------

    def targets(self, name: str) -> Iterator[Target]:
        """Yield the checkpoints of a region that only a full cut may reach, as far as none has yet."""
        region = self.state.regions.get(name)
        if region is None:
            return
        if region.closed and region.final is not None and region.incarnation is not None and not region.gone:
            yield Target(incarnation=region.incarnation.id, checkpoint=region.final)
        for savepoint in self.state.savepoints:
            target = savepoint.targets.get(name)
            if target is not None and not region.covers(target.incarnation, target.checkpoint):
                yield target

    def at_barrier(self, name: str, at: Position) -> bool:
        """Return whether a position reaches a target of its region."""
        return any(
            at.incarnation == target.incarnation and at.checkpoint >= target.checkpoint
            for target in self.targets(name)
        )

    def is_held(self, name: str) -> bool:
        """Return whether the region's next sealed checkpoint is a target, so it waits for a full cut."""
        sealed = self.sealed(name)
        return bool(sealed) and self.at_barrier(name, sealed[0].position)

    def is_awaited(self, savepoint: Savepoint, name: str) -> bool:
        """Return whether a savepoint waits for the region's next sealed checkpoint."""
        region = self.state.regions.get(name)
        gone = region is not None and region.gone
        return name in savepoint.awaited and not gone and not self.is_idle(name)

    # --- changes ----------------------------------------------------------------------------------

    def end_incarnation(self, name: str, *, upto: Position | None = None) -> None:
        """End the region's incarnation, and discard its checkpoints after `upto` (None: all of them)."""
        region = self.state.regions[name]
        if region.incarnation is not None and region.incarnation.id not in self.state.ended:
            self.state.ended.append(region.incarnation.id)
        region.live = False
        region.fault = None
        found = self.pending.get(name)
        if found is not None:
            if upto is None:
                found.sealed.clear()
            found.keep_sealed()
        self._move_targets(name, upto)

    def _move_targets(self, name: str, upto: Position | None) -> None:
        """Discarded targets become the position, which is reached; later ones become `upto`."""
        for savepoint in self.state.savepoints:
            target = savepoint.targets.get(name)
            if upto is not None and (target is not None or name in savepoint.awaited):
                within = target is not None and target.checkpoint <= upto.checkpoint
                number = target.checkpoint if target is not None and within else upto.checkpoint
                savepoint.targets[name] = Target(incarnation=upto.incarnation, checkpoint=number)
            elif target is not None:
                del savepoint.targets[name]
            if name in savepoint.awaited:
                savepoint.awaited.remove(name)

    def may_move(self, name: str, at: Position) -> bool:
        """Return whether a cut may move a region there: a live one, or a removed one up to its end."""
        region = self.state.regions.get(name)
        if region is None or region.incarnation is None or at.incarnation != region.incarnation.id:
            return False
        return region.live or (region.removed and region.final is not None and at.checkpoint <= region.final)

    def retarget(self, name: str, at: Position) -> None:
        """Make a position the target of every savepoint that has one of this region, or waits for one."""
        for savepoint in self.state.savepoints:
            if name in savepoint.targets or name in savepoint.awaited:
                savepoint.targets[name] = Target(incarnation=at.incarnation, checkpoint=at.checkpoint)
                savepoint.awaited = [each for each in savepoint.awaited if each != name]

    def low_water(self, position: int) -> int:
        """Return the smallest offset that a recovery reads, if everything before `position` was read."""
        needed = [position]
        if self.state.pending is not None:
            needed.append(self.state.pending.first_offset)
        needed += [first for each in self.pending.values() if (first := each.first_offset()) is not None]
        return min(needed)
