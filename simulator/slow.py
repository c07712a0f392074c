"""I11: the same work in full cuts, with the slow region merely slow, must leave the same table."""

from sluicegate.coordinator.core.settings import MachineSettings
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import (
    Body,
    CheckpointCompleted,
    CutCommitted,
    FilesWritten,
    Parent,
    RegionClosed,
    RegionHeartbeat,
    RegionOpened,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.lakes.memory import MemoryTable
from sluicegate.simulator.fleet import Fleet
from sluicegate.simulator.reading import Reading
from sluicegate.simulator.violation import Violation
from sluicegate.simulator.world import STREAM, Entry, World

POLICY = StreamPolicy(
    number=1, partial="never", max_consecutive_fallbacks=1_000_000, allowed_locations=("memory://",)
)
ROUNDS = 100


def check_slow(world: World, reading: Reading) -> None:
    """Run what drivers and writers said in full cuts, and compare what is in the table in the end."""
    slow = World(MemoryTable(world.table.name), now=world.now)
    slow.append(Envelope("policy", EventType.STREAM_POLICY, STREAM), POLICY)
    slow.log += [
        Entry(offset, world.now, entry.envelope, body)
        for offset, (entry, body) in enumerate(_work(world, reading), 1)
    ]
    fleet = Fleet(slow, MachineSettings(POLICY), lambda node, effect: None, memory=0)
    fleet.nodes = [fleet.boot()]
    for _ in range(ROUNDS):
        slow.now += 50
        fleet.run_all(lambda: None)
        if slow.newest is not None and fleet.nodes[0].machine.book.state.pending == []:
            break
    there, right = _files(world), _files(slow)
    if there != right:
        raise Violation(
            "I11",
            f"full cuts would have brought {sorted(right - there)}, and not {sorted(there - right)}",
        )
    _compare(world.newest, slow.newest)


def _compare(there: CutCommitted | None, right: CutCommitted | None) -> None:
    if there is None or right is None:
        return
    if there.cut != right.cut:
        raise Violation("I11", f"full cuts would have ended at {right.cut}, not at {there.cut}")
    if there.listeners != right.listeners:
        raise Violation("I11", f"full cuts would have left listeners at {right.listeners}")


def _files(world: World) -> set[str]:
    ours = [snapshot for snapshot in world.table.history if not snapshot.foreign]
    return {path for snapshot in ours for path in snapshot.files}


def _work(world: World, reading: Reading) -> list[tuple[Entry, Body]]:
    """What was said and had an effect, without any decision, and without what only time made wrong."""
    found: list[tuple[Entry, Body]] = []
    for entry in world.log:
        envelope, body = entry.envelope, entry.body
        if envelope.origin is not None:
            continue
        if isinstance(body, RegionOpened) and reading.openings[entry.offset] is None:
            start = reading.starts.get(entry.offset)
            parents = (
                (Parent(region=envelope.region, lineage=start[0], checkpoint=start[1]),) if start else ()
            )
            found.append((entry, body if body.parents else body.model_copy(update={"parents": parents})))
        elif isinstance(body, CheckpointCompleted):
            account = reading.regions.get(envelope.region)
            life = account.lives.get(envelope.lineage) if account else None
            pile = life.piles.get(envelope.checkpoint) if life else None
            if pile is not None and pile.completion is body:
                found.append((entry, body))
        elif isinstance(body, FilesWritten | RegionHeartbeat | RegionClosed) or (
            isinstance(body, StreamCommand) and body.command in ("remove", "accept")
        ):
            found.append((entry, body))
    return found
