"""The age of an orphan counts from the record that made it one, not from its own event."""

from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.undo import revert_digest
from sluicegate.coordinator.replay.decisions import (
    LogFold,
    Orphan,
    OrphanEvents,
    Start,
    Verdict,
    _committed,
    _ended_for_good,
)
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import (
    Assignment,
    CheckpointCompleted,
    CutCommitted,
    CutDecided,
    CutReverted,
    Position,
    RegionRegistered,
    SnapshotRef,
    StreamCommand,
    StreamPolicy,
)

DAY: Final = 86_400_000
"""Milliseconds between two records."""
ONE: Final = Assignment(number=0, regions=("r1",))


class Log:
    """A log with a record a day."""

    def __init__(self, start: LogState | None = None) -> None:
        """`start`: state before the first record."""
        state = start if start is not None else LogState()
        self.fold = LogFold("s", 0, Start(0, state, -1))
        self.events = OrphanEvents(state)
        self.now = 0
        self._offset = 0
        self.put(EventType.STREAM_POLICY, StreamPolicy(number=1))
        self.put(EventType.REGION_REGISTERED, RegionRegistered(assignment=ONE), life="q")

    def put(self, kind: EventType, body: Any, life: str = "", number: int = -1, attempt: str = "a") -> str:
        """Append a record a day after the last one, and return its id."""
        self._offset, self.now = self._offset + 1, self.now + DAY
        carries = isinstance(body, CheckpointCompleted) and not body.events
        writer = ("w", attempt, 1, 1) if carries or kind is EventType.FILES_WRITTEN else ()
        event = f"e{self._offset}"
        if carries:
            # As the codec reads one that carries its files.
            body = body.model_copy(update={"events": (event,)})
        envelope = Envelope(event, kind, "s", "r1" if life else "", life, number, *writer)
        step = self.fold.apply(LogRecord(self._offset, self.now, envelope, body))
        assert step is not None
        self.events.note(step, self.fold.replica.state)
        return event

    def decide(self, *named: str) -> str:
        """Complete the first checkpoint with these events, and decide it; return the decision's digest."""
        completed = CheckpointCompleted(events=named, predecessor=None, source_digest="d")
        self.put(EventType.CHECKPOINT_COMPLETED, completed, "q", 0)
        body = cuts.choose(self.fold.replica.log)
        assert isinstance(body, CutDecided)
        self.put(EventType.CUT_DECIDED, body)
        return body.digest

    def commit(self, *named: str) -> int:
        """Complete the first checkpoint with these events, and commit it; return the time of the outcome."""
        digest, head = self.decide(*named), SnapshotRef(id=1, identity="1")
        outcome = CutCommitted(decision=1, digest=digest, table="t", snapshot=head)
        self.put(EventType.CUT_COMMITTED, outcome)
        return self.now

    def orphan(self) -> Orphan:
        """Return the only orphan."""
        (found,) = self.events.orphans(self.fold.replica.state)
        return found


def test_a_losing_attempt_is_as_old_as_the_commit_without_it() -> None:
    log = Log()
    lost = log.put(EventType.FILES_WRITTEN, None, "q", 0, "lost")
    won = log.put(EventType.FILES_WRITTEN, None, "q", 0, "won")
    at = log.commit(won)
    assert (log.orphan().arrival.event, log.orphan().since) == (lost, at)
    assert log.orphan().arrival.time < at - DAY


def test_an_attempt_that_arrives_after_the_commit_is_as_old_as_its_own_event() -> None:
    log = Log()
    log.commit(log.put(EventType.FILES_WRITTEN, None, "q", 0, "won"))
    lost = log.put(EventType.FILES_WRITTEN, None, "q", 0, "late")
    assert (log.orphan().arrival.event, log.orphan().since) == (lost, log.now)


def test_the_files_of_a_completion_that_loses_are_orphans() -> None:
    log = Log()
    carrying = CheckpointCompleted(events=(), predecessor=None, source_digest="d")
    early = log.put(EventType.CHECKPOINT_COMPLETED, carrying, "q", 0)
    lost = log.put(EventType.CHECKPOINT_COMPLETED, carrying, "q", 0)
    log.commit(early)
    assert (log.orphan().arrival.event, log.orphan().arrival.writer) == (lost, "w")
    unread = log.put(EventType.CHECKPOINT_COMPLETED, None, "q", 1, "unread")
    assert unread not in [each.arrival.event for each in log.events.orphans(log.fold.replica.state)]


@pytest.mark.parametrize("later", [0, 3])
def test_the_work_of_an_incarnation_is_as_old_as_its_end(later: int) -> None:
    log = Log()
    lost = log.put(EventType.FILES_WRITTEN, None, "q", 0)
    log.now += 7 * DAY
    next_life = RegionRegistered(assignment=ONE, replaces="q")
    log.put(EventType.REGION_REGISTERED, next_life, "p")
    ended = log.now
    for _ in range(later):
        log.put(EventType.REGION_REGISTERED, next_life.model_copy(update={"replaces": "x"}), "z")
    assert (log.orphan().arrival.event, log.orphan().since) == (lost, ended)


def test_the_work_of_an_ended_incarnation_stays_when_the_state_forgets_it() -> None:
    log = Log()
    won = log.put(EventType.FILES_WRITTEN, None, "q", 0)
    log.commit(won)
    base = log.fold.replica.state.regions["r1"].position
    after = RegionRegistered(assignment=ONE, replaces="q", base=base)
    log.put(EventType.REGION_REGISTERED, after, "p")
    lost = log.put(EventType.FILES_WRITTEN, None, "p", 1)
    log.put(EventType.REGION_REGISTERED, after.model_copy(update={"replaces": "p"}), "z")
    ended = log.now
    assert log.fold.replica.state.ended == {"q": None, "p": "r1"}
    log.fold.replica.log.forget_ended(("r1",))
    log.put(EventType.STREAM_COMMAND, StreamCommand(command="pause"))
    assert log.fold.replica.state.ended == {"q": None}
    assert (log.orphan().arrival.event, log.orphan().since) == (lost, ended)


def verdict(log: Log, checkpoint: int, stated: str = "q") -> Verdict:
    """Return the verdict on a file that no event names."""
    return log.events.judge(stated, checkpoint, log.fold.replica.state)


def test_a_file_of_a_batch_that_runs_for_days_stays() -> None:
    """Its incarnation lives, and its checkpoint may be committed, however long that takes."""
    log = Log()
    log.commit(log.put(EventType.FILES_WRITTEN, None, "q", 0))
    log.now += 2 * DAY
    log.put(EventType.STREAM_COMMAND, StreamCommand(command="pause"))
    assert verdict(log, 1) == ("checkpoint 1 of region r1 may still be committed", None)
    assert verdict(log, 0, "unknown").since is None


def test_a_file_of_a_committed_checkpoint_is_as_old_as_the_commit() -> None:
    log = Log()
    at = log.commit(log.put(EventType.FILES_WRITTEN, None, "q", 0))
    log.put(EventType.STREAM_COMMAND, StreamCommand(command="pause"))
    assert verdict(log, 0) == ("checkpoint 0 of region r1 was committed without it", at)


def test_a_file_of_an_ended_incarnation_is_as_old_as_its_end() -> None:
    log = Log()
    log.put(EventType.REGION_REGISTERED, RegionRegistered(assignment=ONE, replaces="q"), "p")
    ended = log.now
    log.put(EventType.STREAM_COMMAND, StreamCommand(command="pause"))
    assert verdict(log, 5) == ("incarnation q of region r1 has ended", ended)
    assert verdict(log, 0, "p").since is None, "its successor lives"


def test_incarnations_that_begin_alike_must_all_have_ended() -> None:
    log = Log()
    log.put(EventType.REGION_REGISTERED, RegionRegistered(assignment=ONE, replaces="q"), "q-")
    assert verdict(log, 0).since is None
    log.put(EventType.REGION_REGISTERED, RegionRegistered(assignment=ONE, replaces="q-"), "p")
    assert verdict(log, 0).since == log.now


def test_a_file_of_a_checkpoint_that_was_committed_before_the_log_stays() -> None:
    """The event of a winner may be deleted, and a tag of the catalog or a clone may have the file."""
    before = Log()
    before.commit(before.put(EventType.FILES_WRITTEN, None, "q", 0))
    state = before.fold.replica.state.model_copy(deep=True)
    log = Log(state)
    assert verdict(log, 0) == ("the log begins after checkpoint 0 of region r1 was committed", None)
    assert verdict(log, 1).since is None
    after = RegionRegistered(assignment=ONE, replaces="q", base=state.regions["r1"].position)
    log.put(EventType.REGION_REGISTERED, after, "p")
    assert (verdict(log, 0).since, verdict(log, 1).since) == (None, log.now), "its events are in the log"
    state = log.fold.replica.state.model_copy(deep=True)
    assert verdict(Log(state), 1) == ("the log begins after incarnation q has ended", None)


def test_a_draft_stays_until_its_decision_has_an_outcome() -> None:
    log = Log()
    assert log.events.judge_draft(1) == ("decision 1 has no outcome in the log", None)
    at = log.commit(log.put(EventType.FILES_WRITTEN, None, "q", 0))
    log.put(EventType.STREAM_COMMAND, StreamCommand(command="pause"))
    assert log.events.judge_draft(1) == ("decision 1 has its outcome in the log", at)
    assert log.events.judge_draft(2).since is None


def test_a_draft_of_a_decision_before_the_log_is_as_old_as_the_first_record() -> None:
    """So is one of a decision that an adoption knows: its number is used again only after that."""
    before = Log()
    before.commit(before.put(EventType.FILES_WRITTEN, None, "q", 0))
    log = Log(before.fold.replica.state.model_copy(deep=True))
    assert log.events.judge_draft(1).since == DAY
    assert log.events.judge_draft(2).since is None


def test_a_draft_of_a_reverted_decision_is_as_old_as_the_revert() -> None:
    log = Log()
    won = log.put(EventType.FILES_WRITTEN, None, "q", 0)
    log.decide(won)
    log.put(EventType.STREAM_COMMAND, StreamCommand(command="revert", decision=1, region="r1"))
    assert log.events.judge_draft(1).since is None
    made = log.fold.replica.state.unresolved
    assert made is not None
    digest, head = revert_digest(made), SnapshotRef(id=1, identity="1")
    log.put(EventType.CUT_REVERTED, CutReverted(decision=1, digest=digest or "", table="t", snapshot=head))
    assert log.events.judge_draft(1).since == log.now


def ended(name: str, **state: Any) -> set[str]:
    """Return the incarnations that have ended for good in a state."""
    pending = state.get("pending")
    found = SimpleNamespace(ended={name: 1, "q9": 2}, former=state.get("former"), unresolved=pending)
    return _ended_for_good(found.ended, cast(Any, found))


def test_an_incarnation_that_can_live_again_has_no_orphans() -> None:
    """A withdrawal brings the incarnations of the former assignment back, and a revert those before it."""
    former = SimpleNamespace(suspended={"q1": 1})
    assert ended("q1") == {"q1", "q9"}
    assert ended("q1", former=former) == {"q9"}
    pending = SimpleNamespace(before=SimpleNamespace(former=former))
    assert ended("q1", pending=pending) == {"q9"}


def test_the_position_of_an_unresolved_decision_is_not_committed() -> None:
    """Its revert makes the losing attempts of its checkpoints pending again."""
    newer, older = (Position(incarnation="q", checkpoint=number, digest="d") for number in (2, 1))
    decided = {"r1": SimpleNamespace(position=newer)}
    before = SimpleNamespace(regions={"r1": SimpleNamespace(position=older)})
    unresolved = SimpleNamespace(regions=decided, unresolved=SimpleNamespace(before=before))
    assert _committed(cast(Any, unresolved), "r1") == older
    assert _committed(cast(Any, SimpleNamespace(regions=decided, unresolved=None)), "r1") == newer
    assert _committed(cast(Any, unresolved), "r2") is None
