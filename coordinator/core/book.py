"""What a stream's log amounts to so far: the light state and the ledgers of its live lineages.

Every change here is made by a log record and is a function of the log alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sluicegate.coordinator.core.ledger import Checkpoint, Completion, LineageLedger, Part
from sluicegate.coordinator.core.state import LightState, LineageState, Order, RegionState
from sluicegate.events.envelope import Envelope
from sluicegate.events.models import CheckpointCompleted, CheckpointFailed, CutVoided, Position

DUPLICATE: Final = "duplicate"
SETTLED: Final = "settled"
UNOPENED: Final = "unopened"
REPLAYED: Final = "replayed"
_OLDER: Final = (
    "its checkpoint location is an older one, restored from a backup or partly deleted; put the newer one "
    "back first"
)
_CONTRADICTED: Final = (
    "it was completed again for another source range; if its checkpoint location was restored from a backup "
    "or partly deleted, put the newer one back first"
)
WAY_OUT: Final = (
    "rewind the region to its committed checkpoint, as a new lineage (under a higher assignment, if other "
    "regions build on it)"
)


class Book:
    """The light state of one stream with its ledgers."""

    def __init__(self, stream: str, state: LightState, applied: int) -> None:
        self.stream = stream
        self.state = state
        self.applied = applied
        """Every event at or before this offset is in the light state; later reads of it only refill."""
        self.ledgers: dict[tuple[str, str], LineageLedger] = {}
        self.taken: list[Order] = []
        """Savepoints with nothing to wait for, that are still to be told of."""
        self.included: dict[tuple[str, str], LineageLedger] = {}
        """What the last decision took out of the ledgers, while its outcome is not known."""
        for name, region in state.regions.items():
            for lineage in region.chain:
                self.open_ledger(name, lineage)
            before = self._before(name)
            if before is not None and region.ref is not None and region.ref != before.ref:
                # What a decision without outcome includes is collected again: it may be given up.
                self._collect(name, region.ref, before)

    def open_ledger(self, region: str, lineage: str) -> None:
        """Make the ledger of a lineage in the region's chain."""
        lived = self.state.regions[region].lineages[lineage]
        ledger = self.ledgers[region, lineage] = LineageLedger(lived.opened_at, lived.decided)
        if lived.limit is not None:
            ledger.cap(lived.limit)

    def _collect(self, name: str, ref: Position, before: RegionState) -> None:
        chain = self.chain_before(name)
        for lineage in chain[: chain.index(ref.lineage) + 1]:
            lived = self.state.regions[name].lineages[lineage]
            known = before.lineages.get(lineage, lived)
            ledger = self.included[name, lineage] = LineageLedger(lived.opened_at, known.decided)
            ledger.cap(ref.checkpoint if lineage == ref.lineage else _decided(lived))

    def ledger_of(self, offset: int, envelope: Envelope) -> LineageLedger | None:
        """Where an event belongs; what came behind the decision that includes its checkpoint is settled."""
        place = (envelope.region, envelope.lineage)
        if self.included and (offset <= self.applied or envelope.origin is not None):
            included, last = self.included.get(place), self.state.pending[-1]
            inside = included is not None and envelope.checkpoint <= (included.ceiling or 0)
            if inside and (offset <= last.offset or envelope.origin is not None):
                return included
        return self.ledgers.get(place)

    # --- what writers and drivers say -------------------------------------------------------------

    def part(self, offset: int, time: int, envelope: Envelope) -> str | None:
        """Enter a `files.written`; returns why it has no effect, if it has none."""
        ledger = self.ledger_of(offset, envelope)
        if ledger is None:
            return UNOPENED
        entry = ledger.open_checkpoint(envelope.checkpoint, offset, time)
        if entry is None:
            return SETTLED
        if envelope.id in entry.parts:
            return DUPLICATE
        written = (envelope.files, envelope.rows, envelope.writer, envelope.attempt)
        entry.add(envelope.id, Part(offset, *written))
        entry.last_time = max(entry.last_time, time)
        if entry.completion is not None:
            if envelope.id not in entry.missing:
                return None
            entry.missing.discard(envelope.id)
            if not entry.missing:
                self._refuse_doubled(offset, envelope, entry)
                ledger.advance(time)
        if offset > self.applied:
            self._worked(envelope)
        return None

    def _worked(self, envelope: Envelope) -> None:
        """Note that a region has work. Assigning to a model is slow, so only a change is assigned."""
        region = self.state.regions[envelope.region]
        if region.idle:
            region.idle = False
        lived = region.lineages[envelope.lineage]
        if lived.written is None or lived.written < envelope.checkpoint:
            lived.written = envelope.checkpoint

    def completion(self, offset: int, time: int, envelope: Envelope, body: CheckpointCompleted) -> str | None:
        """Enter a completion: the first of a checkpoint wins, replays of it change nothing."""
        ledger = self.ledger_of(offset, envelope)
        if ledger is None:
            return UNOPENED
        region = self.state.regions[envelope.region]
        fresh = offset > self.applied
        entry = ledger.open_checkpoint(envelope.checkpoint, offset, time)
        if entry is None:
            if fresh and region.ref == Position(lineage=envelope.lineage, checkpoint=envelope.checkpoint):
                self._compare(region, envelope, region.ref_digest, body.source_digest)
            return SETTLED
        if entry.completion is not None:
            ledger.disputed = offset
            if fresh:
                self._compare(region, envelope, entry.completion.body.source_digest, body.source_digest)
            return REPLAYED
        entry.last_time = max(entry.last_time, time)
        problem = _misplaced(ledger, envelope.checkpoint, body.predecessor)
        if problem is None and not ledger.complete(
            envelope.checkpoint, entry, Completion(offset, time, body, offset)
        ):
            problem = f"another checkpoint already follows {body.predecessor}"
        if problem:
            ledger.disputed = offset
        if problem and fresh:
            self._fault(region, envelope, problem)
        if problem is None:
            self._refuse_doubled(offset, envelope, entry)
        if fresh:
            self._worked(envelope)
            self._reopen(region, envelope)
        return problem

    def _refuse_doubled(self, offset: int, envelope: Envelope, entry: Checkpoint) -> None:
        """Stall the region if the completion names two attempts of one writer: each has all of its rows."""
        if offset > self.applied and (writer := entry.doubled()) is not None:
            problem = f"its completion names two attempts of the writer {writer}, and both have its rows"
            self._fault(self.state.regions[envelope.region], envelope, problem)

    def garbled(self, offset: int, time: int, envelope: Envelope, problem: str) -> None:
        """Note that a completion cannot be read: its checkpoint waits for another one, and says so."""
        ledger = self.ledgers.get((envelope.region, envelope.lineage))
        entry = ledger.open_checkpoint(envelope.checkpoint, offset, time) if ledger else None
        if ledger is not None and entry is not None and entry.completion is None:
            ledger.garbled[envelope.checkpoint] = (
                f"region {envelope.region}: the completion of checkpoint {envelope.checkpoint} of lineage "
                f"{envelope.lineage} at offset {offset} cannot be read ({problem}); send it again, mended, "
                "or rewind the region to its committed checkpoint, as a new lineage"
            )
            if offset > self.applied:
                self._worked(envelope)

    def give_up(self, envelope: Envelope, checkpoint: int) -> None:
        """Stop waiting for a readable completion: what cannot be read is not carried."""
        region, at = self.state.regions[envelope.region], envelope._replace(checkpoint=checkpoint)
        self._fault(region, at, "its completion cannot be read, and none that can has come for long")

    def waits(self, name: str) -> str | None:
        """Why a region cannot go on before a driver or an operator does something; None if it can."""
        region = self.state.regions[name]
        if region.fault is not None:
            return region.fault
        ledgers = (self.ledgers[name, lineage] for lineage in region.chain)
        return next((problem for ledger in ledgers for problem in ledger.garbled.values()), None)

    def failure(self, offset: int, envelope: Envelope, body: CheckpointFailed) -> str | None:
        """Note that files will never come: the region stalls until a rewind. Other failures are hints."""
        ledger = self.ledgers.get((envelope.region, envelope.lineage))
        if ledger is None:
            return UNOPENED
        if body.outcome != "lost":
            return None
        number, ceiling = envelope.checkpoint, ledger.ceiling
        if number <= ledger.floor or number in ledger.sealed or (ceiling is not None and number > ceiling):
            return SETTLED
        if offset > self.applied:
            reason = f"its files are lost ({body.reason or 'no reason given'})"
            self._fault(self.state.regions[envelope.region], envelope, reason)
        return None

    def heartbeat(self, offset: int, envelope: Envelope, idle: bool) -> str | None:
        """Note whether the region has work."""
        region = self.state.regions.get(envelope.region)
        if region is None or region.live != envelope.lineage:
            return UNOPENED
        if offset > self.applied:
            region.idle = idle
        return None

    def close(self, offset: int, envelope: Envelope, final: int | None) -> str | None:
        """End a region after its final checkpoint."""
        region = self.state.regions.get(envelope.region)
        if region is None or region.live != envelope.lineage:
            return UNOPENED
        if offset <= self.applied:
            return None
        ref = region.ref
        if ref is not None and ref.lineage == envelope.lineage and (final is None or final < ref.checkpoint):
            at = envelope._replace(checkpoint=ref.checkpoint)
            self._fault(region, at, f"it is in the table, but the query ended at {final}: {_OLDER}")
            return None
        region.closed = True
        region.final = final
        self.leave(region)
        return None

    def leave(self, region: RegionState) -> None:
        """Let a closed region go whose final checkpoint is in the cut."""
        if not region.closed or region.left or not region.chain:
            return
        *parents, live = [region.lineages[name] for name in region.chain]
        drained = all(_decided(parent) >= (parent.limit or 0) for parent in parents)
        # A lineage that ends where it began closes at its parent's last checkpoint.
        stands = _decided(live) if live.decided is not None or live.start is None else live.start
        region.left = drained and (region.final is None or region.final <= stands)

    def _reopen(self, region: RegionState, envelope: Envelope) -> None:
        """Work beyond the end: the closing was that of a run before, and the next run has overtaken it."""
        beyond = region.final is None or envelope.checkpoint > region.final
        if region.closed and beyond and envelope.lineage == region.live:
            region.closed = region.left = False
            region.final = None

    def hold_out(self, body: CutVoided) -> None:
        """Let a checkpoint, and what follows it, enter no cut before a new lineage replaces it."""
        region = self.state.regions.get(body.region)
        if region is None or region.live is None:
            return
        number = body.checkpoint
        lineage = next((at for at, held, _ in self.sealed(body.region) if held == number), region.live)
        self._hold(region, lineage, number)
        if region.fault is None:
            region.fault = (
                f"region {body.region}: checkpoint {number} was held out when decision {body.decision} was "
                f"voided; {WAY_OUT}"
            )

    def _hold(self, region: RegionState, lineage: str, checkpoint: int) -> None:
        lived = region.lineages[lineage]
        # What follows a contradicted ref may have been read from elsewhere, so none of it counts either.
        first = max(checkpoint, _decided(lived) + 1)
        lived.held = first if lived.held is None else min(lived.held, first)

    def _compare(self, region: RegionState, envelope: Envelope, known: str | None, digest: str) -> None:
        if known is not None and known != digest:
            self._fault(region, envelope, _CONTRADICTED)

    def _fault(self, region: RegionState, envelope: Envelope, problem: str) -> None:
        self._hold(region, envelope.lineage, envelope.checkpoint)
        if region.fault is None:
            region.fault = (
                f"region {envelope.region}: checkpoint {envelope.checkpoint} of lineage {envelope.lineage}: "
                f"{problem}; {WAY_OUT}"
            )

    # --- what decisions take out, and voids put back ----------------------------------------------

    def settle(self, cut: Mapping[str, Position], moved: Iterable[str]) -> None:
        """Take what a decision includes out of the ledgers."""
        self.included = {}
        for name in moved:
            chain, at = self.state.regions[name].chain, cut[name]
            for lineage in chain[: chain.index(at.lineage)]:
                self.included[name, lineage] = self.ledgers.pop((name, lineage))
            self.included[name, at.lineage] = self.ledgers[name, at.lineage].decide(at.checkpoint)

    def forget_included(self) -> None:
        """The outcome is known: nothing is put back any more."""
        self.included = {}

    def put_back(self) -> None:
        """Undo the last `settle`; what the decision passed by stays gone, as retention may have taken it."""
        for place, ledger in self.included.items():
            ledger.forget_passed()
            if place in self.ledgers:
                self.ledgers[place].undecide(ledger)
            else:
                self.ledgers[place] = ledger
        self.included = {}

    def _before(self, name: str) -> RegionState | None:
        last = self.state.pending[-1] if self.state.pending else None
        return last.before.regions.get(name) if last and last.before else None

    def chain_before(self, name: str) -> list[str]:
        """The chain without the last decision, with the lineages that were opened since."""
        chain, before = self.state.regions[name].chain, self._before(name)
        # What no decision has moved may have been dropped since, all of it, and begun anew.
        if before is None or not chain or chain[0] not in before.chain:
            return chain
        return before.chain[: before.chain.index(chain[0])] + chain

    # --- what follows from it ---------------------------------------------------------------------

    def sealed(self, name: str) -> Iterator[tuple[str, int, Checkpoint]]:
        """The region's sealed checkpoints beyond its ref, contiguous, along its chain of lineages."""
        for lineage, ledger in self._open_chain(name):
            for checkpoint in ledger.sealed:
                yield lineage, checkpoint, ledger.checkpoints[checkpoint]

    def frontier(self, name: str) -> Position | None:
        """The furthest sealed position of a region; None if nothing is sealed beyond its ref."""
        found: Position | None = None
        for lineage, ledger in self._open_chain(name):
            if ledger.sealed:
                found = Position(lineage=lineage, checkpoint=ledger.sealed[-1])
        return found

    def _open_chain(self, name: str) -> Iterator[tuple[str, LineageLedger]]:
        """The region's lineages, up to the first that is not sealed to its end."""
        region = self.state.regions[name]
        for lineage in region.chain:
            ledger = self.ledgers[name, lineage]
            yield lineage, ledger
            limit = region.lineages[lineage].limit
            if limit is None or (ledger.sealed[-1] if ledger.sealed else ledger.floor) < limit:
                return

    def waits_for_others(self) -> bool:
        """Whether something is sealed and not decided."""
        return any(ledger.sealed for ledger in self.ledgers.values())

    def region(self, name: str) -> RegionState:
        """A region of the stream, made if nothing is known of it."""
        return self.state.regions.setdefault(name, RegionState())

    def source_digest(self, name: str, at: Position) -> str | None:
        """Digest of the source range of a checkpoint that is pending or the region's ref; else None."""
        region, ledger = self.state.regions[name], self.ledgers.get((name, at.lineage))
        if region.ref == at:
            return region.ref_digest
        entry = ledger.checkpoints.get(at.checkpoint) if ledger is not None else None
        return entry.completion.body.source_digest if entry is not None and entry.completion else None

    def low_water(self, position: int) -> int:
        """The smallest offset that a recovery needs, if everything before `position` has been read."""
        needed = [position]
        needed += [decision.first_offset for decision in self.state.pending]
        needed += [first for ledger in self.ledgers.values() if (first := ledger.first_offset()) is not None]
        return min(needed)


def _decided(lineage: LineageState) -> int:
    return -1 if lineage.decided is None else lineage.decided


def _misplaced(ledger: LineageLedger, checkpoint: int, predecessor: int | None) -> str | None:
    """Why a checkpoint could never become contiguous, if so."""
    if predecessor is None:
        return None if ledger.floor < 0 else f"it names no predecessor, but {ledger.floor} is in the cut"
    if not ledger.floor <= predecessor < checkpoint:
        return f"its predecessor {predecessor} is not between {ledger.floor} and {checkpoint}"
    return None
