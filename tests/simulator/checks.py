"""Invariants, checked after every step against the dumb account and the items in the table."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sluicegate.coordinator.core.effects import Effect, Publish, WriteRecord
from sluicegate.coordinator.core.log import Applied
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import RegionPhase
from sluicegate.coordinator.core.state_record import Due
from sluicegate.events.envelope import EventType, LogRecord
from sluicegate.events.models import (
    Body,
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    StreamCommand,
)
from sluicegate.events.notifications import Committed, IncarnationsEnded, RegistrationAnswered, SavepointTaken
from sluicegate.events.problems import Problem
from tests.doubles.memory_lake import MemorySnapshot
from tests.simulator.deletions import Deletions
from tests.simulator.judging import abandonment_problem, decision_problem
from tests.simulator.places import Verdict
from tests.simulator.truth import Truth
from tests.simulator.vectors import Vectors
from tests.simulator.violation import Violation
from tests.simulator.world import COMMIT_USER, SPACING, STREAM, Entry, Item, World
from tools.docs.states_page import changes


@dataclass
class Checks:
    """The checker of one schedule."""

    world: World
    truth: Truth = field(default_factory=Truth)
    reference: Replica = field(default_factory=lambda: Replica(STREAM, 0))
    """A replica that has read the whole log in order, without a record."""
    _read: int = 0
    _seen: int = 0
    """Commits-topic records that were checked."""
    _history: list[MemorySnapshot] = field(default_factory=list)
    """Snapshots that were checked."""
    _items: dict[tuple[str, Item], int] = field(default_factory=dict)
    """By table and item, the decision that put it there."""
    _watermark: int | None = None
    _told: dict[str, str] = field(default_factory=dict)
    _ids: dict[tuple[object, ...], str] = field(default_factory=dict)
    """By the fact that a notification states, its id."""
    _last_decision: int = 0
    _faults: dict[str, Problem | None] = field(default_factory=dict)
    """By region, the reason for which it was stalled."""

    def __post_init__(self) -> None:
        self._deletions = Deletions(self.world, self.truth)
        self.vectors = Vectors(self.world, self.truth)

    def step(self) -> None:
        """Check everything that is new."""
        self._read_log()
        self._deletions.check_records()
        self._check_table()
        self.vectors.check()
        self._deletions.check_files()
        self._check_notifications()

    # --- the log ----------------------------------------------------------------------------------

    def _read_log(self) -> None:
        if self._read < len(self.world.log):
            # An outcome is right if the tables have had the decision by now.
            self.vectors.look()
        while self._read < len(self.world.log):
            entry = self.world.log[self._read]
            record, before = entry.record, self.truth.decided
            body = record.body
            problem = None
            if isinstance(body, CutDecided):
                problem = decision_problem(self.truth, body)
            elif isinstance(body, CutAbandoned):
                problem = abandonment_problem(self.truth, body)
            self.truth.read(entry.offset, entry.envelope, body)
            self._deletions.read(entry)
            phases = {name: each.phase for name, each in self.reference.state.regions.items()}
            applied = self._apply(record, problem)
            self._check_phases(phases, entry.envelope.type)
            self._count(body, applied)
            if isinstance(body, CutDecided | CutAbandoned):
                self._compare_verdict(entry, applied.ignored, problem)
            self._compare_state(entry.offset)
            self.vectors.read(body, applied)
            if self.truth.decided > before:
                self._check_decision(self.truth.verdicts[-1])
            self._read += 1

    def _apply(self, record: LogRecord, problem: tuple[str, str] | None) -> Applied:
        """Apply a record to the reference; a decision that breaks an invariant may break the core, too."""
        try:
            return self.reference.step(record)
        except Exception as error:
            if problem is None:
                raise
            raise Violation(problem[0], f"offset {record.offset} counts, but {problem[1]}") from error

    def _check_phases(self, before: dict[str, RegionPhase], event: EventType) -> None:
        """Check that each change of a region's phase is in the table."""
        regions = self.reference.state.regions
        for name in before.keys() | regions.keys():
            was, now = before.get(name), regions[name].phase if name in regions else None
            rows = changes(was, event, now)
            if was != now and not rows:
                raise Violation("I4", f"{name} changes from {was} to {now} by {event}")
            for row in rows:
                self.world.saw(f"phase: {row.cause}")

    def _count(self, body: Body | None, applied: Applied) -> None:
        """Count the effect of a record for the table of coverage."""
        saw, ignored = self.world.saw, applied.ignored
        if applied.answer is not None and ignored is not None:
            saw(f"registration refused: {ignored.code}")
        match body:
            case StreamCommand() if ignored is None:
                saw(f"command: {body.command}")
            case CutCommitted() | CutReverted() if ignored is None:
                saw("cut.committed: applied" if isinstance(body, CutCommitted) else "cut.reverted: applied")
            case CutAbandoned() if ignored is None:
                saw(f"abandoned: {body.kind}")
            case CutDecided() | CutAbandoned() | CutCommitted() | CutReverted() if ignored is not None:
                saw(f"void: {ignored.code}")

    def _compare_verdict(
        self, entry: Entry, ignored: Problem | None, problem: tuple[str, str] | None
    ) -> None:
        """Compare the verdict of the core on a decision or an attempt with that of the account."""
        if problem is not None and ignored is None:
            raise Violation(problem[0], f"offset {entry.offset} counts, but {problem[1]}")
        if problem is None and ignored is not None:
            raise Violation("I12", f"offset {entry.offset} is void: {ignored.code}")

    def _compare_state(self, offset: int) -> None:
        """Compare the reference's state with the account."""
        state, truth = self.reference.state, self.truth
        for name, place in truth.places.items():
            region = state.regions.get(name)
            if region is None:
                raise Violation("I4", f"{name} is not known at offset {offset}")
            if region.fault is not None and self._faults.get(name) != region.fault:
                self.world.saw(f"region stalled: {region.fault.code}")
            self._faults[name] = region.fault
            mine = (place.at, place.fallbacks, place.live, place.stalled, place.gone, place.is_idle)
            theirs = (
                region.position,
                region.fallbacks,
                region.accepts_checkpoints,
                region.fault is not None,
                region.has_ended,
                self.reference.log.is_idle(name),
            )
            if mine != theirs:
                raise Violation(_broken(mine, theirs), f"{name} at offset {offset}: {theirs}, not {mine}")
            sealed = [each.position for each in self.reference.log.sealed(name)]
            if sealed != place.sealed():
                raise Violation("I1", f"{name} at offset {offset}: sealed {sealed}, not {place.sealed()}")
        if state.watermark != truth.watermark:
            raise Violation("I5", f"watermark {state.watermark} at offset {offset}, not {truth.watermark}")
        self.vectors.compare(state, offset)
        held = state.assignment.number if state.assignment else None
        if held != truth.number:
            raise Violation("I2", f"assignment {held} at offset {offset}, not {truth.number}")

    def _check_decision(self, verdict: Verdict) -> None:
        if self.truth.watermark is not None and self._watermark is not None and verdict.order is None:
            lower = self.truth.watermark < self._watermark
            if lower and all(not each.outcome == "reverted" for each in self.truth.verdicts):
                raise Violation("I5", f"the watermark falls to {self.truth.watermark}")
        self._watermark = self.truth.watermark
        kind = "full" if verdict.full else "partial"
        self.world.saw(f"decision: {kind}")
        if verdict.replaced[2]:
            self.world.saw("decision: the first of an assignment")
        self._check_promise(verdict)

    def _check_promise(self, verdict: Verdict) -> None:
        """Check that a cut which raises the watermark leaves no earlier item of a region that is not idle."""
        mark = verdict.watermark
        if mark is None or mark == verdict.replaced[1]:
            return
        for name in sorted({*self.truth.expected(), *verdict.moves}):
            offsets = self.truth.offsets_of(name)
            early = [shard for shard, end in offsets.items() if end * SPACING < mark]
            if early:
                raise Violation("I6", f"watermark {mark}, but {name} is at {offsets}")

    # --- processes --------------------------------------------------------------------------------

    def compare(self, replicas: Iterable[tuple[str, int, Replica]]) -> None:
        """Compare the replica of each process that has read everything with the reference.

        `replicas` have the names and the positions of their processes.
        """
        mine = self.reference.state
        for process, position, replica in replicas:
            if position != self._read or replica.applied != self.reference.applied:
                continue
            if replica.state != mine:
                found, right = replica.state.model_dump(), mine.model_dump()
                other = {name: (found[name], right[name]) for name in right if right[name] != found[name]}
                raise Violation("I4", f"{process} has another state than the whole log: {other}")
            replica.finish_refill()
            for name in mine.regions:
                one = [each.position for each in self.reference.log.sealed(name)]
                two = [each.position for each in replica.log.sealed(name)]
                if one != two:
                    raise Violation("I1", f"{process} has {two} sealed in {name}, not {one}")
            kept = {n: [s.position for s in each] for n, each in self.reference.log.taken_checkpoints.items()}
            if kept != {n: [s.position for s in each] for n, each in replica.log.taken_checkpoints.items()}:
                raise Violation("I1", f"{process} could not take the decision back")

    def acts(self, effect: Effect) -> None:
        """Check an effect before it runs."""
        match effect:
            case WriteRecord(record):
                self._read_log()
                self._deletions.check_low_water(record)
            case Publish() if effect.offsets:
                self._read_log()
                verdict = self.truth.verdicts[effect.decision - 1]
                ids = [self.world.log[offset].envelope.id for offset in effect.offsets]
                if ids != verdict.parts:
                    raise Violation("I3", f"decision {effect.decision} with {ids}, not {verdict.parts}")
                self.vectors.acts(effect, verdict)
                if effect.watermark != verdict.watermark:
                    raise Violation(
                        "I6", f"watermark {effect.watermark} of a commit, not {verdict.watermark}"
                    )

    # --- the table --------------------------------------------------------------------------------

    def _check_table(self) -> None:
        history = self.world.table.history
        if history[: len(self._history)] != self._history:
            # The table was rolled back, or that was taken back: everything in it is checked again.
            self._history, self._last_decision = [], 0
            self._items.clear()
        for snapshot in history[len(self._history) :]:
            self._check_snapshot(snapshot)
        self._history = history

    def _check_snapshot(self, snapshot: MemorySnapshot) -> None:
        if snapshot.foreign or snapshot.commit_user != COMMIT_USER:
            return
        if snapshot.decision <= self._last_decision:
            raise Violation("I3", f"decision {snapshot.decision} after {self._last_decision}")
        if snapshot.decision > self._last_decision + 1:
            raise Violation("I1", f"decision {self._last_decision + 1} is missing below {snapshot.decision}")
        self._last_decision = snapshot.decision
        self._read_log()
        if snapshot.decision > self.truth.decided:
            raise Violation("I3", f"decision {snapshot.decision} is published before it is in the log")
        verdict = self.truth.verdicts[snapshot.decision - 1]
        stands = snapshot.digest == verdict.body.digest
        wanted = verdict.parts_of.get("", []) if stands else []
        if list(snapshot.files) != wanted:
            raise Violation("I1", f"decision {snapshot.decision} has {snapshot.files}, not {wanted}")
        # A rollback takes the revert away, and shows the head again on which a frozen process publishes.
        back = snapshot.decision in self.world.lost.get(self.world.table.identity, ())
        if stands and verdict.outcome == "reverted" and not back:
            raise Violation("I2", f"decision {snapshot.decision} is reverted in the log and in the table")
        if not self.world.removed.isdisjoint(snapshot.files):
            raise Violation("I9", f"decision {snapshot.decision} has files that were deleted")
        # The anchor has each decision, so this is about the rows of all of its tables.
        for path in verdict.parts if stands else ():
            for item in self.world.items[path]:
                place = self.world.table_of[path], item
                if place in self._items:
                    raise Violation(
                        "I2", f"{place} is in decisions {self._items[place]} and {snapshot.decision}"
                    )
                self._items[place] = snapshot.decision
        if stands:
            self._check_whole(snapshot, verdict)

    def _check_whole(self, snapshot: MemorySnapshot, verdict: Verdict) -> None:
        """Check that the table has each shard up to some item, as after a full cut."""
        for shard in {item[0] for path in verdict.parts for item in self.world.items[path]}:
            found = {number for _, (name, number) in self._items if name == shard}
            if found != {*range(len(found))}:
                raise Violation("I11", f"decision {snapshot.decision} leaves a gap in shard {shard}")

    @property
    def items(self) -> set[Item]:
        """Return the items in the table."""
        return {item for _, item in self._items}

    # --- notifications ----------------------------------------------------------------------------

    def _check_notifications(self) -> None:
        for due in self.world.commits[self._seen :]:
            # Cause and detail of a problem are no part of it; two coordinators may have met different ones.
            text = due.body.model_dump_json(exclude={"problem": {"cause", "detail"}})
            if self._told.setdefault(due.id, text) != text:
                raise Violation("I10", f"one id, two notifications: {text} and {self._told[due.id]}")
            if (fact := _fact(due)) is not None and self._ids.setdefault(fact, due.id) != due.id:
                raise Violation("I10", f"two ids of one notification: {fact}")
            self._check_notification(due.body)
            self.world.saw(f"announced: {due.type}")
        self._seen = len(self.world.commits)

    def _check_notification(self, body: object) -> None:
        truth = self.truth
        match body:
            case Committed():
                verdict = truth.verdicts[body.decision - 1]
                if verdict.outcome != "committed":
                    raise Violation(
                        "I1", f"decision {body.decision} is announced, but {verdict.outcome or 'open'}"
                    )
                if sorted(body.fallbacks) != sorted(verdict.fallbacks):
                    raise Violation("I7", f"fallbacks {sorted(body.fallbacks)}, not {verdict.fallbacks}")
                if body.watermark != verdict.watermark:
                    raise Violation("I6", f"watermark {body.watermark} announced, not {verdict.watermark}")
                self.vectors.announced(body)
            case CutReverted():
                if truth.verdicts[body.decision - 1].outcome != "reverted":
                    raise Violation("I1", f"decision {body.decision} is announced as reverted")
            case SavepointTaken():
                if body.name not in truth.reached:
                    raise Violation("I7", f"savepoint {body.name} is announced, but not reached")
                self.vectors.taken(body)
            case IncarnationsEnded():
                self._check_ended(body)
            case RegistrationAnswered():
                self._check_answer(body)

    def _check_answer(self, body: RegistrationAnswered) -> None:
        truth, at = self.truth, body.committed
        if body.accepted and not truth.accepted.get(body.registration, False):
            raise Violation("I2", f"registration {body.registration} is answered as accepted")
        if at is not None and at not in truth.told.get(body.registration, []):
            raise Violation("I15", f"checkpoint {at.checkpoint} is told as committed, and is not")

    def unannounced(self) -> list[tuple[object, ...]]:
        """Return the outcomes and the savepoints that nobody was told of."""
        outcomes = [(each.outcome, number) for number, each in enumerate(self.truth.verdicts, 1)]
        facts: list[tuple[object, ...]] = [fact for fact in outcomes if fact[0]]
        facts += [("savepoint", name) for name in self.truth.reached]
        return [fact for fact in facts if fact not in self._ids]

    def _check_ended(self, body: IncarnationsEnded) -> None:
        for name, life in body.incarnations.items():
            place = self.truth.places.get(name)
            if place is not None and place.live and place.life is not None and place.life.name == life:
                raise Violation("I2", f"incarnation {life} of {name} lives, and is announced as ended")


def _fact(due: Due) -> tuple[object, ...] | None:
    """Return the fact that a notification states; None if it may be stated again under another id."""
    match due.body:
        case Committed(decision=decision):
            return "committed", decision
        case CutReverted(decision=decision):
            return "reverted", decision
        case CutAbandoned(decision=decision, attempt=attempt):
            return "abandoned", decision, attempt
        case SavepointTaken(name=name):
            return "savepoint", name
        case RegistrationAnswered(registration=registration, problem=problem):
            return "answer", registration, problem.identity if problem is not None else ""
    return None


def _broken(mine: tuple[object, ...], theirs: tuple[object, ...]) -> str:
    """Return the invariant behind the first difference."""
    names = ("I1", "I7", "I2", "I2", "I7", "I5")
    return next(name for name, one, other in zip(names, mine, theirs, strict=True) if one != other)
