"""The dumb account of a stream's log: the rules of the core, written a second time without its code.

There are no records and no recovery in it, so a bug of those cannot hide here.
"""

from copy import deepcopy
from typing import Final

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import (
    Body,
    CheckpointCompleted,
    CheckpointFailed,
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    FilesWritten,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
    StreamCommand,
    StreamPolicy,
)
from tests.simulator.account import Account
from tests.simulator.judging import abandonment_problem, cannot_follow, decision_problem, may_register
from tests.simulator.places import Known, Life, Place, Savepoint, Verdict

MOST_SAVEPOINTS: Final = 5
"""Savepoints and drains that may be open."""


class Truth(Account):
    """The account of one stream's log."""

    def read(self, offset: int, envelope: Envelope, body: Body | None) -> None:
        """Apply one record."""
        if envelope.type is EventType.REGION_REGISTERED:
            # Also of a body that cannot be read: its refusal has the position.
            self.told.setdefault(envelope.id, []).append(self.committed(envelope.region))
        match body:
            case FilesWritten() | None:
                self._written(envelope)
            case RegionRegistered():
                self._register(offset, envelope, body)
            case CheckpointCompleted() | CheckpointFailed() | RegionHeartbeat() | RegionClosed():
                self._read_driver(envelope, body)
            case StreamPolicy():
                if body.number == (self.policy.number if self.policy is not None else 0) + 1:
                    self._set_policy(body)
            case StreamCommand():
                self._command(offset, body)
            case CutDecided():
                self._decided(body)
            case CutAbandoned():
                self._abandoned(body)
            case CutCommitted() | CutReverted():
                self._resolved(body)
        if self.open is None:
            self._reach()

    def _set_policy(self, body: StreamPolicy) -> None:
        self.policy = body
        for name, terms in body.tables.items():
            if name not in self.tables or self.tables[name].identity != terms.identity:
                self.tables[name] = Known(terms.identity)
        for each in self.verdicts:
            each.let_go |= {name for name, was in each.tables.items() if self.identity_of(name) != was}
            each.lasting &= body.tables.keys() - each.let_go

    def _reach(self) -> None:
        """Note the savepoints and drains that are reached; no decision is open."""
        for each in self.savepoints:
            # What is committed stays so, whatever becomes of the incarnation.
            each.kept |= {(name, end) for name, end in each.targets.items() if not self.lacks(name, end)}
        for each in [each for each in self.savepoints if self.is_reached(each)]:
            self.savepoints.remove(each)
            self.reached.append(each.name)

    def _read_driver(
        self,
        envelope: Envelope,
        body: CheckpointCompleted | CheckpointFailed | RegionHeartbeat | RegionClosed,
    ) -> None:
        match body:
            case CheckpointCompleted():
                self._completed(envelope, body)
            case CheckpointFailed():
                self._failed(envelope, body)
            case RegionHeartbeat():
                place = self._live(envelope)
                if place is not None and place.run == body.run:
                    named = -1 if body.after is None else body.after
                    late = body.idle and named < place.begun
                    # What a driver said before a beginning, and arrives later, is about neither.
                    place.idle = place.idle if late else body.idle
                    place.rests = place.rests and body.idle
                    place.begun = max(place.begun, -1 if body.begins is None else body.begins)
            case RegionClosed():
                self._closed(envelope, body)

    def _live(self, envelope: Envelope) -> Place | None:
        place = self.places.get(envelope.region)
        right = place is not None and place.live and place.life is not None
        return place if right and place and place.life and place.life.name == envelope.incarnation else None

    def _written(self, envelope: Envelope) -> None:
        """Note files, or a completion that nobody can read: something of the checkpoint is pending."""
        place = self._live(envelope)
        unreadable = envelope.type is EventType.REGION_REGISTERED
        if unreadable or place is None or place.life is None:
            return
        if envelope.type is EventType.FILES_WRITTEN:
            if not self._add(place, envelope):
                # A duplicate has no effect: it does not end idleness either.
                return
        elif place.is_past(envelope.checkpoint):
            return
        else:
            place.life.parts.setdefault(envelope.checkpoint, {})
        place.idle = place.rests
        self._look(envelope.region)

    def _add(self, place: Place, envelope: Envelope) -> bool:
        """Add a file event to its checkpoint; return True if that is pending, and lacked the event."""
        past = place.is_past(envelope.checkpoint)
        reverts = self.open is not None and envelope.region in self.open.moves
        if place.life is None or (past and not reverts):
            return False
        # What is past by a decision alone is pending again after a revert.
        parts = place.life.parts.setdefault(envelope.checkpoint, {})
        lacked = envelope.id not in parts
        parts.setdefault(envelope.id, envelope)
        return lacked and not past

    def _completed(self, envelope: Envelope, body: CheckpointCompleted) -> None:
        place, number = self._live(envelope), envelope.checkpoint
        if place is None or place.life is None:
            return
        if envelope.writer and self._add(place, envelope):
            # It carries its files, and names itself.
            place.idle = place.rests
            self._look(envelope.region)
        if place.is_past(number):
            if place.at and place.at.checkpoint == number and place.at.digest != body.source_digest:
                place.stalled = True
            return
        known = place.life.completions.get(number)
        if known is not None:
            place.stalled = place.stalled or known.source_digest != body.source_digest
            return
        if cannot_follow(place, number, body):
            place.life.impossible.add(number)
            place.stalled = True
        place.life.completions[number] = body
        place.life.parts.setdefault(number, {})
        place.idle, place.begun = place.rests, max(place.begun, number)
        if place.closed and (place.final is None or number > place.final):
            place.closed, place.final = False, None
        self._look(envelope.region)

    def _look(self, name: str) -> None:
        """Find checkpoints that can never be sealed, and targets of savepoints."""
        place = self.places[name]
        sealed, life = place.sealed(), place.life
        tail = sealed[-1] if sealed else place.at
        if life is None:
            return
        for number, body in life.completions.items():
            if number in life.impossible or place.is_past(number):
                continue
            before = body.predecessor
            same_number = (
                tail is not None
                and before is not None
                and (before.incarnation, before.checkpoint) == (tail.incarnation, tail.checkpoint)
            )
            if same_number and before != tail:
                place.stalled = True
            if before == tail and place.has_two_attempts(number):
                place.stalled = True
        for each in self.savepoints if sealed else ():
            if name in each.awaited:
                each.awaited.remove(name)
                each.targets[name] = (sealed[0].incarnation, sealed[0].checkpoint)

    def _failed(self, envelope: Envelope, body: CheckpointFailed) -> None:
        place, number = self._live(envelope), envelope.checkpoint
        if place is None or place.is_past(number) or body.outcome != "lost":
            return
        if all(each.checkpoint != number for each in place.sealed()):
            place.stalled = True

    def _closed(self, envelope: Envelope, body: RegionClosed) -> None:
        place = self._live(envelope)
        if place is None or place.run != body.run:
            return
        own = place.at if place.at and place.at.incarnation == envelope.incarnation else None
        if own is not None and (body.final is None or body.final < own.checkpoint):
            place.stalled = True
            return
        done = place.life.completions if place.life else {}
        pending = [number for number in done if not place.is_past(number)]
        if pending and (body.final is None or max(pending) > body.final):
            return
        place.closed, place.final = True, body.final

    # --- registrations ----------------------------------------------------------------------------

    def _register(self, offset: int, envelope: Envelope, body: RegionRegistered) -> None:
        known = self.places.get(envelope.region)
        if known is not None and known.run == envelope.id:
            return
        verdict = may_register(self, offset, envelope, body)
        self.accepted[envelope.id] = verdict
        if not verdict or body.probe:
            return
        wanted = body.assignment
        if self.number is None or wanted.number > self.number:
            if self.number is not None and not self.provisional:
                self.former = (self.number, self.regions, deepcopy(self.places))
            else:
                for name in [name for name, each in self.places.items() if each.live]:
                    self._end(name, None)
            self.number, self.regions, self.provisional = wanted.number, wanted.regions, True
            self.followed[wanted.number] = wanted.after
            for name, each in self.places.items():
                each.live, each.fallbacks, each.stalled = False, 0, False
                if each.life is not None:
                    each.life.parts = {n: p for n, p in each.life.parts.items() if each.is_past(n)}
                    each.life.completions = {
                        n: c for n, c in each.life.completions.items() if each.is_past(n)
                    }
                if name in wanted.regions:
                    each.removed = each.closed = each.idle = False
                    each.final = None
        place = self.places.setdefault(envelope.region, Place())
        if not (place.live and place.life and place.life.name == envelope.incarnation):
            if place.live:
                self._end(envelope.region, None)
            if place.life is not None:
                self.lives[envelope.region, place.life.name] = place.life
            base = place.at if body.takes_over is not None else body.base
            place.life, place.live, place.stalled = Life(envelope.incarnation, base), True, False
        place.run, place.registered = envelope.id, offset
        place.idle, place.rests, place.closed = body.rests, body.rests, False
        place.begun, place.final = -1, None

    def _end(self, name: str, upto: Position | None, *, removed: bool = False) -> None:
        """End an incarnation, and discard its checkpoints after `upto`."""
        place = self.places[name]
        if place.life is not None:
            self.ended.add(place.life.name)
            kept = {each.checkpoint for each in place.sealed()} if upto else set()
            place.life.parts = {n: p for n, p in place.life.parts.items() if n in kept or place.is_past(n)}
            place.life.completions = {
                n: c for n, c in place.life.completions.items() if n in kept or place.is_past(n)
            }
        place.live = place.stalled = False
        self._discard(name, upto, gone=removed)

    def _discard(self, name: str, upto: Position | None, *, gone: bool) -> None:
        """Lower the targets of a region to what is left of it."""
        last = upto or (self.places[name].at if name in self.places else None)
        for each in self.savepoints:
            had = each.targets.get(name)
            if had is None or (name, had) in each.kept:
                # One that was reached stays so.
                continue
            if last is None or last.incarnation != had[0] or last.checkpoint < had[1]:
                del each.targets[name]
                if last is not None:
                    each.targets[name] = (last.incarnation, last.checkpoint)
        if gone:
            for each in self.savepoints:
                each.awaited.discard(name)

    def _command(self, offset: int, body: StreamCommand) -> None:
        match body.command:
            case "pause":
                self.paused = True
            case "resume":
                self._resume(body)
            case "remove" | "discard" if body.region in self.regions and body.number == self.number:
                self._remove(body.region or "", discard=body.command == "discard")
            case "close" if body.number == self.number:
                for name in self.regions:
                    self._remove(name, discard=False)
            case "withdraw" if body.number == self.number and self.provisional:
                self._withdraw(body.number or 0)
            case "revert":
                self._revert(offset, body)
            case "savepoint" | "drain" if self._may_save(body.name):
                self._save(body.name or "", drain=body.command == "drain")
            case "cancel":
                self.savepoints = [each for each in self.savepoints if each.name != body.name]

    def _resume(self, body: StreamCommand) -> None:
        if body.head is not None and body.table is not None:
            known = self.tables.get(body.table)
            # It is about what its sender has seen, and a later commit makes it void.
            if known is not None and known.decision == body.known:
                known.decision, known.snapshot = body.decision or 0, body.head
            return
        asked = self.decided if self.open is not None else self.decided + 1
        if body.head is None or body.decision == asked:
            self.paused = False

    def _revert(self, offset: int, body: StreamCommand) -> None:
        verdict = self.open
        if verdict is None or body.decision != self.decided or verdict.order is not None:
            return
        if body.region in verdict.moves and body.region is not None:
            verdict.order = (offset, body.region)

    def _remove(self, name: str, *, discard: bool) -> None:
        place = self.places.setdefault(name, Place())
        if place.removed and not discard:
            return
        sealed = [] if discard else place.sealed()
        self._end(name, sealed[-1] if sealed else None, removed=True)
        place.closed = place.removed = True
        place.final = sealed[-1].checkpoint if sealed else None

    def _withdraw(self, number: int) -> None:
        back = {each.life.name for each in self.asleep().values() if each.life}
        self.ended |= {each.life.name for each in self.places.values() if each.life} - back
        self.withdrawn = max(self.withdrawn, number)
        self.provisional = False
        for name in self.regions:
            self._discard(name, None, gone=True)
        self.number, self.regions, places = self.former or (None, (), {})
        self.former = None
        registered = {name: place.registered for name, place in self.places.items()}
        self.places.clear()
        self.places.update(places)
        for name, place in self.places.items():
            place.registered = max(place.registered, registered.get(name, -1))
            if place.live and place.life is not None:
                place.life = Life(place.life.name, place.life.base)

    def _may_save(self, name: str | None) -> bool:
        names = [each.name for each in self.savepoints]
        return bool(name) and name not in names and len(names) < MOST_SAVEPOINTS

    def _save(self, name: str, *, drain: bool) -> None:
        savepoint = Savepoint(name, drain, {}, set())
        # A decision without an outcome may have ended a region, and a revert may give that back.
        taken, active = self.open.moves if self.open is not None else {}, [*self.active()]
        for region in [] if drain else dict.fromkeys([*active, *taken]):
            sealed = self.places[region].sealed() if region in self.places else []
            last = sealed[-1] if sealed else self.places[region].at if region in self.places else None
            if last is not None:
                savepoint.targets[region] = (last.incarnation, last.checkpoint)
            idle = region in self.places and self.places[region].is_idle
            if region in active and not sealed and not idle:
                savepoint.awaited.add(region)
        self.savepoints.append(savepoint)

    # --- decisions --------------------------------------------------------------------------------

    def _decided(self, body: CutDecided) -> None:
        if decision_problem(self, body) is not None:
            return
        moves = {name: at for name, at in body.cut.items() if at != self.places[name].at}
        expected = self.expected()
        fallbacks = [name for name in expected if name not in moves]
        verdict = Verdict(
            body,
            moves,
            {name: self.places[name].at for name in moves},
            fallbacks,
            [*self._tables_of(moves)],
            not fallbacks,
            None,
            replaced=(
                {name: (each.watermark, each.fallbacks) for name, each in self.places.items()},
                self.watermark,
                self.provisional,
                self.former,
            ),
        )
        for event, table in self._tables_of(moves).items():
            verdict.parts_of.setdefault(table, []).append(event)
        touched = [name for name in verdict.parts_of if name]
        verdict.tables = {name: self.tables[name].identity for name in touched}
        verdict.lasting = {*self.policy.tables} if self.policy is not None else set()
        for name in fallbacks:
            self.places.setdefault(name, Place()).fallbacks += 1
        for name in moves:
            self.places[name].fallbacks = 0
            self.places[name].advance(moves[name])
        if self.provisional:
            self.provisional = False
            self.ended |= {each.life.name for each in self.asleep().values() if each.life}
            self.former = None
        self._raise_watermark({*expected, *moves})
        verdict.watermark, self.attempts = self.watermark, 0
        self.verdicts.append(verdict)

    def _tables_of(self, moves: dict[str, Position]) -> dict[str, str]:
        """Return the ids of the events that a cut includes, in commit order, with the table of each."""
        parts: dict[str, str] = {}
        for name in sorted(moves):
            place = self.places[name]
            for at in place.sealed():
                if place.life is not None:
                    events = place.life.completions[at.checkpoint].events
                    parts |= {each: place.life.parts[at.checkpoint][each].table for each in events}
                if at == moves[name]:
                    break
        return parts

    def _raise_watermark(self, counted: set[str]) -> None:
        places = [self.places[name] for name in counted if name in self.places]
        known = [each.watermark for each in places if each.watermark is not None]
        if counted and len(known) == len(counted):
            self.watermark = min(known) if self.watermark is None else max(self.watermark, min(known))

    def _abandoned(self, body: CutAbandoned) -> None:
        if abandonment_problem(self, body) is not None:
            return
        for name in body.regions if body.kind == "ratio" else ():
            self.places.setdefault(name, Place()).fallbacks += 1
        if body.kind == "forced":
            for place in self.places.values():
                place.fallbacks = 0
        self.attempts += 1

    def _resolved(self, body: CutCommitted | CutReverted) -> None:
        verdict = self.open
        if verdict is None or verdict.body.decision != body.decision:
            return
        if isinstance(body, CutCommitted):
            if body.digest == verdict.body.digest:
                verdict.outcome = "committed"
                self._note_tables(verdict, body)
            return
        if verdict.order is None or body.digest == verdict.body.digest:
            return
        verdict.outcome = "reverted"
        marks, self.watermark, provisional, former = verdict.replaced
        if provisional:
            self.provisional, self.former = True, former
            self.ended -= {each.life.name for each in self.asleep().values() if each.life}
        for name, place in self.places.items():
            place.watermark, place.fallbacks = marks.get(name, (place.watermark, 0))
        for name, to in verdict.moves.items():
            self._take_back(name, self.places[name], verdict.before[name], to, verdict)

    def _note_tables(self, verdict: Verdict, body: CutCommitted) -> None:
        verdict.has = {*body.tables}
        for name, snapshot in {**body.tables, **dict.fromkeys(body.left_out)}.items():
            known = self.tables[name]
            if known.identity == verdict.tables.get(name):
                known.decision, known.snapshot = body.decision, snapshot

    def _take_back(
        self, name: str, place: Place, before: Position | None, to: Position, verdict: Verdict
    ) -> None:
        place.at = before
        if place.removed and place.final is None:
            place.final = to.checkpoint
        for each in self.savepoints:
            if name in each.awaited:
                each.awaited.discard(name)
                each.targets[name] = (to.incarnation, to.checkpoint)
        if verdict.order is not None and verdict.order[1] == name:
            self._end(name, None, removed=place.removed)
            place.final = None
            if not place.removed:
                place.closed, place.stalled = False, True
