"""The janitor: deletes the files that no commit will include, by the log that is left."""

from dataclasses import dataclass

from sluicegate.coordinator.core.state import LogState, reaches
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.replay.decisions import Arrival, LogFold, OrphanEvents, start_of
from tests.simulator.dice import Dice
from tests.simulator.world import STREAM, World


@dataclass(frozen=True, slots=True)
class Janitor:
    """Without a grace period, and without a question to the table: the log alone must be right.

    So it deletes nothing about which only the table could say more.
    """

    world: World

    def sweep(self, dice: Dice) -> bool:
        """Delete the files of all orphans; return True if there were any."""
        world = self.world
        if world.kept is not None:
            # Records that are needed are lost: the replay of this log is refused.
            return False
        orphans = self._orphans()
        named = {
            entry.envelope.id
            for entry in world.log[world.begin :]
            if entry.files is not None and entry.offset not in orphans
        }
        # Each file has the id of its event. Another record may be the same event once more.
        paths = {world.log[offset].envelope.id for offset in orphans} - named
        # The log does not know that a decision without an outcome was published and rolled back.
        for table in (world.table, *world.further.values()):
            paths -= table.rolled_back_files
        fresh = paths - world.removed
        world.removed |= paths
        return bool(fresh)

    def _orphans(self) -> set[int]:
        """Return the offsets of the orphans."""
        world = self.world
        bases = {start: StateRecord.model_validate_json(base) for start, base in world.bases.items()}
        start = start_of(STREAM, world.begin, bases)
        fold, events = LogFold(STREAM, 0, start), OrphanEvents(start.state)
        for entry in world.log[start.begin :]:
            step = fold.apply(entry.record)
            if step is not None:
                events.note(step, fold.replica.state)
        fold.finish()
        found = (orphan.arrival for orphan in events.orphans(fold.replica.state))
        return {arrival.offset for arrival in found if not _is_for_the_table(start.state, arrival)}


def _is_for_the_table(start: LogState, arrival: Arrival) -> bool:
    """True if only the table can say whether an event is an orphan.

    The log began earlier, and the checkpoint was committed, or its incarnation had ended, by then. A deleted
    record may have been the same event, and a winner.
    """
    regions = start.unresolved.before.regions if start.unresolved is not None else start.regions
    region = regions.get(arrival.region)
    at = region.position if region is not None else None
    return arrival.incarnation in start.ended or reaches(at, arrival.incarnation, arrival.checkpoint)
