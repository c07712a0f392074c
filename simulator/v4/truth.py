"""The dumb account of a stream's log: the same rules as the core's, written a second time, without its code.

It keeps every event, computes everything anew when it is asked, and knows nothing of records or recovery.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from math import floor
from typing import Any

from sluicegate.events.models import Body, FilesWritten
from sluicegate.events.version4 import (
    CheckpointCompleted,
    CheckpointFailed,
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    Envelope,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
    StreamCommand,
    StreamPolicy,
)


@dataclass
class Life:
    """One incarnation."""

    name: str
    base: Position | None
    parts: dict[int, dict[str, Envelope]] = field(default_factory=dict)
    """By checkpoint, its events that count, in log order."""
    completions: dict[int, CheckpointCompleted] = field(default_factory=dict)
    barred: set[int] = field(default_factory=set)
    """Checkpoints whose completion can never be sealed."""


@dataclass
class Place:
    """One region."""

    life: Life | None = None
    live: bool = False
    run: str = ""
    """Id of the newest accepted registration."""
    at: Position | None = None
    watermark: int | None = None
    fallbacks: int = 0
    idle: bool = False
    closed: bool = False
    final: int | None = None
    removed: bool = False
    joined: bool = False
    faulty: bool = False

    def sealed(self) -> list[Position]:
        """Return the sealed positions after the decided one."""
        found: list[Position] = []
        if self.life is None:
            return found
        tail = self.at
        while (number := self.next_of(tail)) is not None and self.is_whole(number):
            tail = Position(
                incarnation=self.life.name,
                checkpoint=number,
                digest=self.life.completions[number].source_digest,
            )
            found.append(tail)
        return found

    def next_of(self, tail: Position | None) -> int | None:
        """Return the checkpoint whose completion names this predecessor."""
        if self.life is None:
            return None
        return next(
            (
                number
                for number, body in self.life.completions.items()
                if body.predecessor == tail and number not in self.life.barred and not self.is_past(number)
            ),
            None,
        )

    def is_past(self, number: int) -> bool:
        """Return whether the decided position includes a checkpoint of this incarnation."""
        own = self.at is not None and self.life is not None and self.at.incarnation == self.life.name
        return own and self.at is not None and number <= self.at.checkpoint

    def is_whole(self, number: int) -> bool:
        """Return whether all named events are there, one attempt for each writer."""
        if self.life is None:
            return False
        parts = self.life.parts.get(number, {})
        named = [parts.get(event) for event in self.life.completions[number].events]
        if any(each is None for each in named):
            return False
        pairs = {(each.writer, each.attempt) for each in named if each is not None}
        return len({writer for writer, _ in pairs}) == len(pairs)

    def has_two_attempts(self, number: int) -> bool:
        """Return whether everything named is there, and not whole."""
        if self.life is None:
            return False
        parts = self.life.parts.get(number, {})
        there = all(event in parts for event in self.life.completions[number].events)
        return there and not self.is_whole(number)

    def has_work(self) -> bool:
        """Return whether anything is pending."""
        if self.life is None:
            return False
        return any(not self.is_past(number) for number in (*self.life.parts, *self.life.completions))

    @property
    def rests(self) -> bool:
        return self.live and self.idle and not self.has_work()

    @property
    def gone(self) -> bool:
        return self.closed and (self.final is None or self.is_past(self.final))


@dataclass
class Barrier:
    """A savepoint or drain."""

    name: str
    drain: bool
    places: dict[str, tuple[str, int]]
    hoped: set[str]


@dataclass
class Verdict:
    """A valid decision."""

    body: CutDecided
    moves: dict[str, Position]
    before: dict[str, Position | None]
    late: list[str]
    parts: list[str]
    """Ids of the events that it includes, in commit order."""
    full: bool
    watermark: int | None
    order: tuple[int, str] | None = None
    """Offset and region of the first order to revert it."""
    outcome: str = ""
    """"", committed, reverted."""
    saved: tuple[dict[str, tuple[int | None, int]], int | None, bool, Any] = ({}, None, False, None)
    """What it replaced: watermarks and counters, the stream's watermark, and the assignment before."""


@dataclass
class Truth:
    """The account of the whole stream."""

    places: dict[str, Place] = field(default_factory=dict)
    policy: StreamPolicy | None = None
    number: int | None = None
    regions: tuple[str, ...] = ()
    fresh: bool = False
    """Whether the assignment has decided nothing yet."""
    former: tuple[int, tuple[str, ...], dict[str, Place]] | None = None
    burned: int = -1
    ended: set[str] = field(default_factory=set)
    barriers: list[Barrier] = field(default_factory=list)
    paused: bool = False
    verdicts: list[Verdict] = field(default_factory=list)
    watermark: int | None = None
    attempts: int = 0
    reverted_parts: set[str] = field(default_factory=set)
    saved: list[str] = field(default_factory=list)
    """Names of savepoints and drains that were reached."""
    lives: dict[tuple[str, str], Life] = field(default_factory=dict)
    """Former incarnations, by region and name."""
    accepted: dict[str, bool] = field(default_factory=dict)
    """By id of the registration."""

    # --- questions --------------------------------------------------------------------------------

    @property
    def decided(self) -> int:
        return len(self.verdicts)

    @property
    def open(self) -> Verdict | None:
        """Return the decision without an outcome."""
        return self.verdicts[-1] if self.verdicts and not self.verdicts[-1].outcome else None

    def active(self) -> list[str]:
        return [name for name in self.regions if name not in self.places or not self.places[name].gone]

    def working(self) -> list[str]:
        return [name for name in self.active() if name not in self.places or not self.places[name].rests]

    def ends(self, name: str) -> list[tuple[str, int]]:
        """Return the barrier's checkpoints of a region that are not reached."""
        place = self.places.get(name)
        if place is None:
            return []
        found = []
        if place.closed and place.final is not None and place.life is not None:
            found.append((place.life.name, place.final))
        found += [each.places[name] for each in self.barriers if name in each.places]
        return [
            end
            for end in found
            if not (place.at and place.at.incarnation == end[0] and place.at.checkpoint >= end[1])
        ]

    def touches(self, name: str, at: Position) -> bool:
        return any(at.incarnation == end[0] and at.checkpoint >= end[1] for end in self.ends(name))

    def is_held(self, name: str) -> bool:
        sealed = self.places[name].sealed() if name in self.places else []
        return bool(sealed) and self.touches(name, sealed[0])

    def may_be_partial(self) -> bool:
        if self.policy is None or self.policy.partial != "allow" or self.policy.single_region:
            return False
        return not any(self.places[name].joined for name in self.active() if name in self.places)

    def is_tired(self) -> bool:
        most = self.policy.max_consecutive_fallbacks if self.policy else 1
        return any(name in self.places and self.places[name].fallbacks >= most for name in self.working())

    def most_fallbacks(self) -> int:
        return floor((self.policy.max_failure_ratio if self.policy else 1.0) * len(self.working()))

    # --- the log ----------------------------------------------------------------------------------

    def read(self, offset: int, envelope: Envelope, body: Body) -> None:
        """Take one record."""
        match body:
            case FilesWritten():
                self._written(envelope)
            case RegionRegistered():
                self._register(envelope, body)
            case CheckpointCompleted() | CheckpointFailed() | RegionHeartbeat() | RegionClosed():
                self._driver_says(envelope, body)
            case StreamPolicy():
                if self.policy is None or body.number > self.policy.number:
                    self.policy = body
            case StreamCommand():
                self._command(offset, body)
            case CutDecided():
                self._decided(body)
            case CutAbandoned():
                self._abandoned(body)
            case CutCommitted() | CutReverted():
                self._resolved(body)
        if self.open is None:
            for each in [each for each in self.barriers if self._is_reached(each)]:
                self.barriers.remove(each)
                self.saved.append(each.name)

    def _driver_says(
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
                    place.idle = body.idle and not body.silent
            case RegionClosed():
                self._closed(envelope, body)

    def _live(self, envelope: Envelope) -> Place | None:
        place = self.places.get(envelope.region)
        right = place is not None and place.live and place.life is not None
        return place if right and place and place.life and place.life.name == envelope.incarnation else None

    def _written(self, envelope: Envelope) -> None:
        place = self._live(envelope)
        if place is None or place.life is None or place.is_past(envelope.checkpoint):
            return
        place.life.parts.setdefault(envelope.checkpoint, {}).setdefault(envelope.id, envelope)
        place.idle = False
        self._look(envelope.region)

    def _completed(self, envelope: Envelope, body: CheckpointCompleted) -> None:
        place, number = self._live(envelope), envelope.checkpoint
        if place is None or place.life is None:
            return
        if place.is_past(number):
            if place.at and place.at.checkpoint == number and place.at.digest != body.source_digest:
                place.faulty = True
            return
        known = place.life.completions.get(number)
        if known is not None:
            place.faulty = place.faulty or known.source_digest != body.source_digest
            return
        if self._cannot_follow(place, number, body):
            place.life.barred.add(number)
            place.faulty = True
        place.life.completions[number] = body
        place.life.parts.setdefault(number, {})
        place.idle = False
        if place.closed and (place.final is None or number > place.final):
            place.closed, place.final = False, None
        self._look(envelope.region)

    def _cannot_follow(self, place: Place, number: int, body: CheckpointCompleted) -> bool:
        sealed, before = place.sealed(), body.predecessor
        tail = sealed[-1] if sealed else place.at
        life = place.life
        if life is None:
            return False
        own = before.checkpoint if before is not None and before.incarnation == life.name else None
        for other, each in life.completions.items():
            same = each.predecessor is not None and each.predecessor.incarnation == life.name
            theirs = each.predecessor.checkpoint if same and each.predecessor else None
            if other != number and other not in life.barred and not place.is_past(other) and theirs == own:
                return True
        if own is not None and own >= number:
            return True
        if before == tail:
            return False
        tail_own = tail.checkpoint if tail is not None and tail.incarnation == life.name else -1
        return own is None or own <= tail_own

    def _look(self, name: str) -> None:
        """See what can never be sealed, and what savepoints hope for."""
        place = self.places[name]
        sealed = place.sealed()
        tail = sealed[-1] if sealed else place.at
        life = place.life
        if life is None:
            return
        for number, body in life.completions.items():
            if number in life.barred or place.is_past(number):
                continue
            before = body.predecessor
            same_number = (
                tail is not None
                and before is not None
                and (before.incarnation, before.checkpoint) == (tail.incarnation, tail.checkpoint)
            )
            if same_number and before != tail:
                place.faulty = True
            if before == tail and place.has_two_attempts(number):
                place.faulty = True
        for each in self.barriers if sealed else ():
            if name in each.hoped:
                each.hoped.remove(name)
                each.places[name] = (sealed[0].incarnation, sealed[0].checkpoint)

    def _failed(self, envelope: Envelope, body: CheckpointFailed) -> None:
        place, number = self._live(envelope), envelope.checkpoint
        if place is None or place.is_past(number) or body.outcome != "lost":
            return
        if all(each.checkpoint != number for each in place.sealed()):
            place.faulty = True

    def _closed(self, envelope: Envelope, body: RegionClosed) -> None:
        place = self._live(envelope)
        if place is None or place.run != body.run:
            return
        own = place.at if place.at and place.at.incarnation == envelope.incarnation else None
        if own is not None and (body.final is None or body.final < own.checkpoint):
            place.faulty = True
            return
        done = place.life.completions if place.life else {}
        pending = [number for number in done if not place.is_past(number)]
        if pending and (body.final is None or max(pending) > body.final):
            return
        place.closed, place.final = True, body.final

    # --- registrations ----------------------------------------------------------------------------

    def _register(self, envelope: Envelope, body: RegionRegistered) -> None:
        known = self.places.get(envelope.region)
        if known is not None and known.run == envelope.id:
            return
        verdict = self._may_register(envelope, body)
        self.accepted[envelope.id] = verdict
        if not verdict or body.probe:
            return
        wanted = body.assignment
        if self.number is None or wanted.number > self.number:
            if self.number is not None and not self.fresh:
                self.former = (self.number, self.regions, deepcopy(self.places))
            else:
                for name in [name for name, each in self.places.items() if each.live]:
                    self._end(name, None)
            self.number, self.regions, self.fresh = wanted.number, wanted.regions, True
            for name, each in self.places.items():
                each.live, each.fallbacks, each.faulty = False, 0, False
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
            place.life, place.live, place.faulty = Life(envelope.incarnation, body.base), True, False
        place.joined, place.run = body.single_region is not None, envelope.id
        place.idle = place.closed = False
        place.final = None

    def _may_register(self, envelope: Envelope, body: RegionRegistered) -> bool:
        wanted, name = body.assignment, envelope.region
        if self.policy is None or name not in wanted.regions:
            return False
        if self.policy.regions and set(wanted.regions) - set(self.policy.regions):
            return False
        if self.number is not None:
            if wanted.number < self.number:
                return False
            if wanted.number == self.number and set(wanted.regions) != set(self.regions):
                return False
        following = self.number is None or wanted.number > self.number
        if following and wanted.number <= self.burned:
            return False
        ended = not self.active() and self.open is None and wanted.after == self.decided
        if following and self.number is not None and not ended:
            return False
        place = self.places.get(name, Place())
        if not following and place.live and place.life and place.life.name == envelope.incarnation:
            return self._may_restart(place, place.life, body)
        known = {each.life.name for each in self.places.values() if each.life}
        known |= {each.life.name for each in self._asleep().values() if each.life}
        if envelope.incarnation in known | self.ended:
            return False
        live = place.life.name if place.live and place.life and not following else None
        return not (place.removed and not following) and body.base == place.at and body.replaces == live

    def _asleep(self) -> dict[str, Place]:
        """Return the regions that a withdrawal brings back to life."""
        places = self.former[2] if self.former is not None else {}
        return {name: each for name, each in places.items() if each.live}

    def _may_restart(self, place: Place, life: Life, body: RegionRegistered) -> bool:
        if body.base != life.base:
            return False
        own = place.at if place.at and place.at.incarnation == life.name else None
        newest = max((each.checkpoint for each in body.planned), default=-1)
        if own is not None and newest < own.checkpoint:
            return False
        for each in body.planned:
            if own is not None and each.checkpoint == own.checkpoint and each.digest != own.digest:
                return False
            known = None if place.is_past(each.checkpoint) else life.completions.get(each.checkpoint)
            if known is not None and known.source_digest != each.digest:
                return False
        return True

    def _end(self, name: str, upto: Position | None) -> None:
        """End an incarnation, and forget what it has after `upto`."""
        place = self.places[name]
        if place.life is not None:
            self.ended.add(place.life.name)
            kept = {each.checkpoint for each in place.sealed()} if upto else set()
            place.life.parts = {n: p for n, p in place.life.parts.items() if n in kept or place.is_past(n)}
            place.life.completions = {
                n: c for n, c in place.life.completions.items() if n in kept or place.is_past(n)
            }
        place.live = place.faulty = False
        for each in self.barriers:
            if upto is None:
                each.places.pop(name, None)
            elif name in each.places or name in each.hoped:
                wanted = each.places.get(name, (upto.incarnation, upto.checkpoint))
                each.places[name] = (upto.incarnation, min(wanted[1], upto.checkpoint))
            each.hoped.discard(name)

    # --- orders -----------------------------------------------------------------------------------

    def _command(self, offset: int, body: StreamCommand) -> None:
        match body.command:
            case "pause":
                self.paused = True
            case "resume":
                asked = self.decided if self.open is not None else self.decided + 1
                if body.head is None or body.decision == asked:
                    self.paused = False
            case "remove" | "discard" if body.region in self.regions and body.region is not None:
                self._remove(body.region, discard=body.command == "discard")
            case "close" if body.number == self.number:
                for name in self.regions:
                    self._remove(name, discard=False)
            case "withdraw" if body.number == self.number and self.fresh:
                self._withdraw(body.number or 0)
            case "revert":
                self._revert(offset, body)
            case "savepoint" | "drain" if body.name and all(b.name != body.name for b in self.barriers):
                self._save(body.name, drain=body.command == "drain")
            case "cancel":
                self.barriers = [each for each in self.barriers if each.name != body.name]

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
        self._end(name, sealed[-1] if sealed else None)
        place.closed = place.removed = True
        place.final = sealed[-1].checkpoint if sealed else None

    def _withdraw(self, number: int) -> None:
        back = {each.life.name for each in self._asleep().values() if each.life}
        self.ended |= {each.life.name for each in self.places.values() if each.life} - back
        self.burned = max(self.burned, number)
        self.fresh, self.barriers = False, []
        self.number, self.regions, places = self.former or (None, (), {})
        self.former = None
        self.places.clear()
        self.places.update(places)
        for place in self.places.values():
            if place.live and place.life is not None:
                place.life = Life(place.life.name, place.life.base)

    def _save(self, name: str, *, drain: bool) -> None:
        barrier = Barrier(name, drain, {}, set())
        for region in [] if drain else self.active():
            sealed = self.places[region].sealed() if region in self.places else []
            if sealed:
                barrier.places[region] = (sealed[-1].incarnation, sealed[-1].checkpoint)
            elif region not in self.places or not self.places[region].rests:
                barrier.hoped.add(region)
        self.barriers.append(barrier)

    def _hopes(self, barrier: Barrier) -> bool:
        return any(
            name not in self.places or not (self.places[name].gone or self.places[name].rests)
            for name in barrier.hoped
        )

    def _is_reached(self, barrier: Barrier) -> bool:
        if barrier.drain:
            return self.number is not None and not self.active()
        return not self._hopes(barrier) and not any(
            barrier.places[name] in self.ends(name) for name in barrier.places
        )

    # --- decisions --------------------------------------------------------------------------------

    def problem(self, body: CutDecided) -> tuple[str, str] | None:
        """Return the invariant that a decision would break, and how; None if it is valid."""
        if body.decision != self.decided + 1 or self.open is not None:
            return "I3", f"decision {body.decision} does not follow a resolved {self.decided}"
        if self.paused:
            return "I4", "the stream is paused"
        moves = {
            name: at for name, at in body.cut.items() if name not in self.places or at != self.places[name].at
        }
        for name, at in moves.items():
            place = self.places.get(name)
            ended = place is not None and not place.live and not place.removed
            if place is None or ended or at not in place.sealed():
                return "I1", f"{name} is not sealed up to {at.checkpoint}"
            if place.faulty:
                return "I2", f"{name} is stalled"
        held = {name for name, place in self.places.items() if place.at is not None}
        if not moves or held - body.cut.keys():
            return "I1", "nothing moves, or a region is left out"
        return self._partial_problem(body, moves)

    def _partial_problem(self, body: CutDecided, moves: dict[str, Position]) -> tuple[str, str] | None:
        staying = [name for name in self.working() if name not in moves]
        touches = any(self.touches(name, at) for name, at in moves.items())
        if touches != body.final:
            return "I7", "the final mark is wrong"
        if self.fresh and staying:
            return "I7", f"the first cut of the assignment lacks {staying}"
        if touches:
            lacking = [
                name
                for name in self.places
                for end in self.ends(name)
                if name not in moves or moves[name].incarnation != end[0] or moves[name].checkpoint < end[1]
            ]
            if staying or lacking or any(self._hopes(each) for each in self.barriers):
                return "I7", f"a barrier is reached without {staying or lacking}"
            return None
        late = [name for name in staying if not self.is_held(name)]
        if late and (not self.may_be_partial() or self.is_tired()):
            return "I7", f"{late} may not fall back"
        if len(late) > self.most_fallbacks():
            return "I7", f"{late} are too many"
        return None

    def _decided(self, body: CutDecided) -> None:
        if self.problem(body) is not None:
            return
        moves = {name: at for name, at in body.cut.items() if at != self.places[name].at}
        expected = self.working()
        late = [name for name in expected if name not in moves and not self.is_held(name)]
        parts: list[str] = []
        for name in sorted(moves):
            place = self.places[name]
            for at in place.sealed():
                if place.life is not None:
                    parts += dict.fromkeys(place.life.completions[at.checkpoint].events)
                if at == moves[name]:
                    break
        verdict = Verdict(
            body,
            moves,
            {name: self.places[name].at for name in moves},
            late,
            parts,
            not late,
            None,
            saved=(
                {name: (each.watermark, each.fallbacks) for name, each in self.places.items()},
                self.watermark,
                self.fresh,
                self.former,
            ),
        )
        for name in late:
            self.places.setdefault(name, Place()).fallbacks += 1
        for name in moves:
            self.places[name].fallbacks = 0
            self._advance(self.places[name], moves[name])
        if self.fresh:
            self.fresh = False
            self.ended |= {each.life.name for each in self._asleep().values() if each.life}
            self.former = None
        counted = {*expected, *moves}
        known = [
            mark
            for name in counted
            if name in self.places and (mark := self.places[name].watermark) is not None
        ]
        if counted and len(known) == len(counted):
            self.watermark = min(known) if self.watermark is None else max(self.watermark, min(known))
        verdict.watermark, self.attempts = self.watermark, 0
        self.verdicts.append(verdict)

    def _advance(self, place: Place, to: Position) -> None:
        if place.life is None:
            return
        for at in place.sealed():
            mark = place.life.completions[at.checkpoint].watermark
            if mark is not None:
                own = place.at is not None and place.at.incarnation == at.incarnation
                place.watermark = max(mark, place.watermark) if own and place.watermark is not None else mark
            place.at = at
            if at == to:
                return

    def _abandoned(self, body: CutAbandoned) -> None:
        if self.abandonment_problem(body) is not None:
            return
        for name in body.regions if body.kind == "ratio" else ():
            self.places.setdefault(name, Place()).fallbacks += 1
        if body.kind == "forced":
            for place in self.places.values():
                place.fallbacks = 0
        self.attempts += 1

    def abandonment_problem(self, body: CutAbandoned) -> tuple[str, str] | None:
        """Return the invariant that an abandoned attempt would break."""
        if (body.decision, body.attempt) != (self.decided + 1, self.attempts + 1) or self.open or self.paused:
            return "I7", "it is out of order"
        late = {name for name in self.working() if not self.is_held(name)}
        lagging = {name for name in late if name not in self.places or not self.places[name].sealed()}
        if not body.regions or not lagging <= set(body.regions) <= late or not self.may_be_partial():
            return "I7", f"{body.regions} are not those left behind"
        tired = self.is_tired()
        if tired != (body.kind == "forced") or (not tired and len(body.regions) <= self.most_fallbacks()):
            return "I7", f"{body.kind} is the wrong kind"
        return None

    def _resolved(self, body: CutCommitted | CutReverted) -> None:
        verdict = self.open
        if verdict is None or verdict.body.decision != body.decision:
            return
        if isinstance(body, CutCommitted):
            if body.digest == verdict.body.digest:
                verdict.outcome = "committed"
            return
        if verdict.order is None or body.digest == verdict.body.digest:
            return
        verdict.outcome = "reverted"
        marks, self.watermark, fresh, former = verdict.saved
        if fresh:
            self.fresh, self.former = True, former
            self.ended -= {each.life.name for each in self._asleep().values() if each.life}
        for name, place in self.places.items():
            place.watermark, place.fallbacks = marks.get(name, (place.watermark, 0))
        for name, to in verdict.moves.items():
            self._take_back(name, self.places[name], verdict.before[name], to, verdict)

    def _take_back(
        self, name: str, place: Place, before: Position | None, to: Position, verdict: Verdict
    ) -> None:
        place.at = before
        life = place.life
        other = life is not None and life.name != to.incarnation
        if place.removed and (other or place.final is None):
            place.final = to.checkpoint
        if place.removed and other:
            place.life = self.lives.get((name, to.incarnation))
            for each in self.barriers:
                if name in each.places:
                    each.places[name] = (to.incarnation, to.checkpoint)
        for each in self.barriers:
            if name in each.hoped and (place.removed or not other):
                each.hoped.discard(name)
                each.places[name] = (to.incarnation, to.checkpoint)
        named = verdict.order is not None and verdict.order[1] == name
        if named or (life is not None and life.base == to and not place.removed):
            self._end(name, None)
            place.final = None
            if not place.removed:
                place.closed, place.faulty = False, True
