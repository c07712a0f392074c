"""Adoption: each field of the state is carried, made again or dropped for a reason, and none is forgotten."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from pydantic import BaseModel

from sluicegate.coordinator.core import cuts, undo
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import (
    AssignmentState,
    Before,
    Decision,
    Former,
    LogState,
    RegionPhase,
    RegionState,
)
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.replay.adoption import (
    Commits,
    Logged,
    Place,
    Stated,
    choose,
    refuse_needless,
    state_of,
)
from sluicegate.coordinator.replay.decisions import Group, ReplayRefused
from sluicegate.coordinator.stream.account import (
    Account,
    account_after,
    account_of,
    decode_account,
    encode_account,
)
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import (
    Assignment,
    CheckpointCompleted,
    CutCommitted,
    CutDecided,
    CutReverted,
    Position,
    RegionClosed,
    RegionRegistered,
    SnapshotRef,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.events.problems import CauseCode, Code, Problem
from sluicegate.lakes.history import PastSnapshot
from sluicegate.lakes.port import TableState

HEAD: Final = SnapshotRef(id=1, identity="1")


class Stream:
    """A stream's log, folded record by record."""

    def __init__(self, state: LogState | None = None) -> None:
        self.replica = Replica("s", 0, state, -1 if state is None else 0)
        self._offset = 1

    @property
    def state(self) -> LogState:
        return self.replica.state

    def put(self, kind: EventType, body: Any, region: str = "", life: str = "", number: int = -1) -> Any:
        self._offset += 1
        writer = (f"w{region}", "a", 1, 1) if kind is EventType.FILES_WRITTEN else ()
        envelope = Envelope(f"e{self._offset}", kind, "s", region, life, number, *writer)
        return self.replica.step(LogRecord(self._offset, 0, envelope, body, ""))

    def order(self, command: str, **more: Any) -> Any:
        return self.put(EventType.STREAM_COMMAND, StreamCommand.model_validate({"command": command, **more}))

    def register(self, region: str, life: str, assignment: Assignment, **more: Any) -> Any:
        body = RegionRegistered(assignment=assignment, **more)
        return self.put(EventType.REGION_REGISTERED, body, region, life).answer

    def close(self, region: str, life: str, final: int) -> None:
        body = RegionClosed(final=final, run=self.state.regions[region].run or "")
        assert self.put(EventType.REGION_CLOSED, body, region, life).ignored is None

    def batch(self, region: str, life: str, number: int, after: Position | None) -> None:
        self.put(EventType.FILES_WRITTEN, None, region, life, number)
        body = CheckpointCompleted(
            events=(f"e{self._offset}",),
            predecessor=after,
            source_digest=f"d{number}",
            source_offsets=f"{region} at {number}",
            watermark=1_000 + number,
            listeners={"mark": f"{region}:{number}"},
        )
        self.put(EventType.CHECKPOINT_COMPLETED, body, region, life, number)

    def decide(self, *, expired: bool = False) -> str:
        """Decide a cut, and return its digest."""
        body = cuts.choose(self.replica.log, waited=cuts.Waited(expired, expired, expired))
        assert isinstance(body, CutDecided)
        assert self.put(EventType.CUT_DECIDED, body).ignored is None
        return body.digest

    def commit(self, digest: str) -> None:
        outcome = CutCommitted(decision=self.state.decided, digest=digest, table="t", snapshot=HEAD)
        assert self.put(EventType.CUT_COMMITTED, outcome).ignored is None

    def revert(self, region: str) -> str:
        """Order a revert, and return the digest of its commit."""
        self.order("revert", decision=self.state.decided, region=region)
        assert self.state.unresolved is not None
        digest = undo.revert_digest(self.state.unresolved)
        assert digest is not None
        return digest

    def reverted(self, digest: str) -> None:
        outcome = CutReverted(decision=self.state.decided, digest=digest, table="t", snapshot=HEAD)
        assert self.put(EventType.CUT_REVERTED, outcome).ignored is None

    def adopted(self, digest: str) -> LogState:
        """Return the state that continues from the table's commit with this digest."""
        account = account_of("s", self.state, digest)
        assert account is not None
        return state_of(decode_account(encode_account(account)))


TWO: Final = Assignment(number=0, regions=("r1", "r2"))


def begun(**first: Any) -> Stream:
    """Two regions with a completed checkpoint each; `first` is part of the registration of r1."""
    found = Stream()
    found.put(EventType.STREAM_POLICY, StreamPolicy(number=1, partial="allow"))
    assert found.register("r1", "q", TWO, **first).accepted
    assert found.register("r2", "p", TWO).accepted
    found.batch("r1", "q", 0, None)
    found.batch("r2", "p", 0, None)
    return found


# --- no field is forgotten ------------------------------------------------------------------------

CARRIED: Final = "carried by the account"
MADE: Final = "made again of the table or of the place in the log"
FIELDS: Final[Mapping[type[BaseModel], Mapping[str, str]]] = {
    LogState: {
        "partition": MADE,
        "table": MADE,
        "policy": "a coordinator logs its settings at its start",
        "assignment": CARRIED,
        "former": CARRIED,
        "withdrawn": CARRIED,
        "regions": CARRIED,
        "ended": CARRIED,
        "skipped": "the records are before the place in the log where the adopted stream begins",
        "savepoints": "orders were in the log, and are given again",
        "paused": "orders were in the log, and are given again",
        "decided": CARRIED,
        "unresolved": "the table has it, or nobody publishes it any more",
        "proof": "the newest commit itself is the proof",
        "snapshot": MADE,
        "outcome": "the newest commit of the table counts, and the next outcome is compared again",
        "tables": CARRIED,
        "watermark": CARRIED,
        "attempt": "no attempt was abandoned since the newest decision",
    },
    RegionState: {
        "phase": CARRIED,
        "incarnation": "all incarnations end",
        "run": "all incarnations end",
        "registered": "all incarnations end, and offsets of the log begin again",
        "idle": "the region may have work that the table does not show",
        "rests": "all incarnations end",
        "begun": "all incarnations end",
        "final": "carried by the phase, if it is reached; else the region has more work",
        "fault": "all incarnations end, and a fault ends with its incarnation",
        "declined": "all incarnations end, and a decline ends with its process",
        "position": CARRIED,
        "source_offsets": CARRIED,
        "offsets_kind": CARRIED,
        "watermark": CARRIED,
        "doubt": "the problem of a checkpoint that is committed, for status alone",
        "listeners": CARRIED,
        "fallbacks": CARRIED,
        "moved_at": "for metrics alone, and known again after the next commit",
        "behind_since": "for status alone, and counted again",
    },
    AssignmentState: {"number": CARRIED, "regions": CARRIED, "after": CARRIED, "provisional": CARRIED},
    Former: {"assignment": CARRIED, "regions": CARRIED},
}


@pytest.mark.parametrize("model", FIELDS)
def test_each_field_of_the_state_is_accounted_for(model: type[BaseModel]) -> None:
    """A new field is carried by `stream.account`, or it has a reason here for which it is not."""
    assert {*model.model_fields} == {*FIELDS[model]}


def _carried(model: type[BaseModel], found: BaseModel) -> dict[str, Any]:
    names = [name for name, why in FIELDS[model].items() if why == CARRIED]
    return {name: getattr(found, name) for name in names}


def test_carried_fields_of_a_commit_are_those_of_the_log() -> None:
    stream = begun()
    stream.commit(stream.decide())
    stream.batch("r1", "q", 1, stream.state.regions["r1"].position)
    stream.batch("r2", "p", 1, stream.state.regions["r2"].position)
    stream.state.regions["r2"].fallbacks = 2
    stream.close("r2", "p", 1)
    digest = stream.decide()
    kept, was = stream.adopted(digest), stream.state
    wanted = _carried(LogState, was) | {"ended": {"q": None, "p": None}, "regions": {*was.regions}}
    assert _carried(LogState, kept) | {"regions": {*kept.regions}} == wanted
    for name, each in was.regions.items():
        phase = RegionPhase.CLOSED if name == "r2" else RegionPhase.WAITING
        assert _carried(RegionState, kept.regions[name]) == _carried(RegionState, each) | {"phase": phase}


# --- reverts --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_revert_of_a_first_cut_leaves_the_assignment_provisional() -> None:
    stream = begun()
    stream.decide()
    digest = stream.revert("r2")
    kept = stream.adopted(digest)
    stream.reverted(digest)
    assert kept.assignment == stream.state.assignment
    assert kept.assignment is not None
    assert kept.assignment.provisional


def test_a_withdrawal_after_the_adoption_brings_the_former_assignment_back_with_its_positions() -> None:
    stream = begun()
    stream.commit(stream.decide())
    for name, life in (("r1", "q"), ("r2", "p")):
        stream.close(name, life, 0)
    place = stream.state.cut
    after = Assignment(number=1, regions=("r1", "r3"), after=1)
    assert stream.register("r1", "n", after, base=place["r1"]).accepted
    assert stream.register("r3", "m", after).accepted
    stream.batch("r1", "n", 1, place["r1"])
    stream.batch("r3", "m", 0, None)
    stream.decide()
    digest = stream.revert("r3")
    again = Stream(stream.adopted(digest))
    again.put(EventType.STREAM_POLICY, StreamPolicy(number=1, partial="allow"))
    assert again.order("withdraw", number=1).ignored is None
    assert again.state.assignment == AssignmentState(number=0, regions=["r1", "r2"], provisional=False)
    assert again.state.cut == place
    # A job that begins from nothing would write every row of its region again.
    refused = again.register("r2", "fresh", TWO)
    assert refused.problem.code is Code.BASE_DIFFERS
    assert again.register("r2", "p", TWO, base=place["r2"]).problem.code is Code.INCARNATION_ENDED
    assert again.register("r2", "p2", TWO, base=place["r2"]).accepted


def test_a_removed_region_reads_again_what_a_revert_took_out_of_the_table() -> None:
    stream = begun()
    stream.commit(stream.decide())
    at = stream.state.cut
    stream.batch("r1", "q", 1, at["r1"])
    stream.batch("r2", "p", 1, at["r2"])
    stream.decide()
    stream.order("remove", region="r1", number=0)
    digest = stream.revert("r2")
    kept = stream.adopted(digest)
    assert (kept.regions["r1"].phase, kept.regions["r1"].position) == (RegionPhase.WAITING, at["r1"])
    assert "r1" in {*kept.active()}


# --- positions that an operator stated ------------------------------------------------------------


def stated(*names: str) -> Stream:
    """A stream after decision 9, as `Account` without an assignment has it."""
    regions = {
        name: RegionState(position=Position(incarnation="q", checkpoint=90, digest="d")) for name in names
    }
    account = Account(version=1, stream="s", decision=9, digest="x", regions=regions, ended=["q"])
    found = Stream(state_of(account))
    found.put(EventType.STREAM_POLICY, StreamPolicy(number=1, partial="allow"))
    return found


def test_other_regions_than_the_stated_ones_follow_the_cut_of_the_adoption() -> None:
    stream = stated("r1")
    split = Assignment(number=1, regions=("a", "b"), after=5)
    refused = stream.register("a", "n", split).problem
    assert (refused.code, refused.other) == (Code.ASSIGNMENT_AFTER_OTHER_CUT, 9)
    assert stream.register("a", "n", split.model_copy(update={"after": 9})).accepted


def test_the_stated_regions_continue_under_the_assignment_of_their_jobs() -> None:
    stream = stated("r1", "r2")
    at = stream.state.regions["r1"].position
    mine = Assignment(number=3, regions=("r1", "r2"), after=7)
    assert stream.register("r1", "n", mine).problem.code is Code.BASE_DIFFERS
    assert stream.register("r1", "n", mine, base=at).accepted


def test_a_withdrawn_first_assignment_leaves_the_stated_positions() -> None:
    stream = stated("r1")
    split = Assignment(number=1, regions=("a", "b"), after=9)
    assert stream.register("a", "n", split).accepted
    assert stream.order("withdraw", number=1).ignored is None
    at = Position(incarnation="q", checkpoint=90, digest="d")
    assert (stream.state.assignment, stream.state.cut) == (None, {"r1": at})
    whole = Assignment(number=2, regions=("r1",))
    assert stream.register("r1", "m", whole).problem.code is Code.BASE_DIFFERS
    assert stream.register("r1", "m", whole, base=at).accepted


# --- needless and harmful adoptions ---------------------------------------------------------------

SEEN: Final = TableState("t", SnapshotRef(4, "4"), 4, 4)


def commits(decision: int = 4, digest: str = "d4", seen: TableState = SEEN, text: str = "") -> Commits:
    state = replace(seen, newest_decision=decision, newest_made=decision)
    newest = PastSnapshot(SnapshotRef(decision, str(decision)), "user", decision, digest)
    return Commits(state, newest if decision else None, text)


def logged(decided: int, *, digest: str | None = None, unresolved: bool = False, **more: Any) -> Logged:
    state = LogState(decided=decided, table="t", unresolved=DECISION if unresolved else None)
    found = Logged(Place(0, 100, "e99"), state, table="t", digest=digest)
    for name, value in more.items():
        setattr(found, name, value)
    return found


DECISION: Final = Decision(
    id=5,
    digest="d5",
    offset=90,
    cut={},
    fallbacks={},
    parts=[],
    files=0,
    first_offset=80,
    before=Before(regions={}, watermark=None, provisional=False, former=None),
)
DISCONTINUOUS: Final = Problem(code=Code.LOG_DISCONTINUOUS, number=120)
LATER: Final = TableState("another", SnapshotRef(4, "4"), 4, 4)


@pytest.mark.parametrize(
    ("table", "log"),
    [
        (commits(), logged(2)),
        (commits(), logged(2, problem=DISCONTINUOUS)),
        (commits(), logged(0, problem=DISCONTINUOUS, recorded=4)),
        # The log continued differently after the copy.
        (commits(), logged(4, digest="other")),
        (commits(), logged(5, digest="other", unresolved=True)),
        # The table was built again, completely.
        (commits(seen=LATER), logged(4, digest="d4")),
        (commits(seen=LATER), logged(5, digest="d4", unresolved=True)),
        # The table was dropped and made again before the first commit.
        (commits(0, seen=LATER), logged(0)),
    ],
)
def test_a_log_that_does_not_lead_to_its_table_is_left(table: Commits, log: Logged) -> None:
    refuse_needless("s", table, log, None)
    with pytest.raises(ReplayRefused, match="Leave --give-up out"):
        refuse_needless("s", table, log, 4)


@pytest.mark.parametrize(
    ("table", "log", "why"),
    [
        (commits(), logged(4, digest="d4"), "itself. Start the coordinators"),
        (commits(), logged(4), "itself. Start the coordinators"),
        (commits(), logged(5, digest="d4", unresolved=True), "itself. Start the coordinators"),
        (commits(0), logged(0), "nothing is to be adopted"),
        (commits(), logged(2, unreadable=Problem(code=Code.RECORD_UNREADABLE)), "has another one"),
        (
            commits(),
            logged(2, unverified=(Group("k", 2, 7, 9, 0, CauseCode.KEY_UNKNOWN),)),
            r"2 records are signed with the key k.*kafka.signing.key_files",
        ),
    ],
)
def test_a_stream_that_continues_by_itself_is_not_adopted(table: Commits, log: Logged, why: str) -> None:
    with pytest.raises(ReplayRefused, match=why):
        refuse_needless("s", table, log, None)


def test_positions_that_were_stated_wrongly_are_stated_again_before_the_next_commit() -> None:
    table = commits()
    wrong, right = (
        Stated({"r1": Position(incarnation="q.0", checkpoint=number, digest=f"d{number}")})
        for number in (3, 4)
    )
    first = choose("s", table, logged(0), wrong)
    record = first.record("s", "sluicegate-s", table.seen.identity, logged(0), None)
    account = account_after("s", record.state, table.digest)
    again = replace(logged(4, digest="d4"), state=record.state, account=account)
    with pytest.raises(ReplayRefused, match="repeat this command with --position for each region"):
        refuse_needless("s", table, again, None)
    refuse_needless("s", table, again, None, right)
    assert choose("s", table, again, right).account.regions["r1"].position == right.positions["r1"]
    # A decision has used the positions, so nothing corrects them any more.
    decided = replace(again, state=record.state.model_copy(update={"unresolved": DECISION}))
    with pytest.raises(ReplayRefused):
        choose("s", table, decided, right)


@pytest.mark.parametrize(
    ("table", "log", "way"),
    [
        (commits(), logged(6), "sluicegate replay repair --stream s"),
        (commits(), logged(2, recorded=6, problem=DISCONTINUOUS), "sluicegate replay repair --stream s"),
        (commits(seen=LATER), logged(6), "sluicegate replay rebuild --stream s --into TABLE"),
        (commits(0), logged(6), "sluicegate replay repair --stream s"),
    ],
)
def test_commits_that_the_table_lacks_are_given_up_by_their_number_alone(
    table: Commits, log: Logged, way: str
) -> None:
    for stated in (None, 5, 7):
        with pytest.raises(ReplayRefused, match=way) as refused:
            refuse_needless("s", table, log, stated)
        assert "--give-up 6" in str(refused.value)
    refuse_needless("s", table, log, 6)


def test_a_table_without_its_beginning_is_adopted_by_a_statement_alone() -> None:
    table, log = commits()._replace(lacks=2), logged(2)
    for stated in (None, 1, 4):
        with pytest.raises(ReplayRefused, match=r"lacks decisions 1 to 2: .* --give-up 2"):
            refuse_needless("s", table, log, stated)
    refuse_needless("s", table, log, 2)


def test_a_table_without_what_the_log_has_as_committed_belongs_to_another_deployment() -> None:
    stream = begun()
    stream.commit(stream.decide())
    log = logged(1)
    log.state = stream.state
    ours, theirs = (
        encode_account(Account(version=1, stream="s", decision=4, digest="d4", regions=regions))
        for regions in (
            {name: RegionState(position=each.position) for name, each in stream.state.regions.items()},
            {"elsewhere": RegionState(position=Position(incarnation="x", checkpoint=1, digest="d"))},
        )
    )
    refuse_needless("s", commits(text=ours), log, None)
    with pytest.raises(ReplayRefused, match="another deployment commits as the same commit user"):
        refuse_needless("s", commits(text=theirs), log, None)


def test_a_statement_is_compared_with_earlier_commits_of_the_table() -> None:
    at = Position(incarnation="q", checkpoint=7, digest="d7")
    earlier = Account(
        version=1, stream="s", decision=3, digest="d3", regions={"r1": RegionState(position=at)}
    )
    table = commits()._replace(earlier=earlier)
    for wrong in (None, at.model_copy(update={"checkpoint": 6}), at.model_copy(update={"digest": "other"})):
        with pytest.raises(ReplayRefused, match="commit 3 of the table"):
            choose("s", table, logged(0), Stated({"r1": wrong}))
    later = at.model_copy(update={"checkpoint": 8})
    found = choose("s", table, logged(0), Stated({"r1": later, "r2": None}, number=2, after=1))
    state = state_of(found.account)
    assert state.cut == {"r1": later}
    assert state.assignment == AssignmentState(number=2, regions=["r1", "r2"], after=1)
    assert state.former is not None
    assert (state.former.assignment, {*state.former.regions}) == (None, {"r1", "r2"})


def test_the_log_states_the_positions_if_the_table_does_not() -> None:
    stream = begun()
    account = account_of("s", stream.state, stream.decide())
    found = choose("s", commits(), logged(0, account=account), None)
    assert found.account is account
    with pytest.raises(ReplayRefused, match="Leave --position out"):
        choose("s", commits(), logged(0, account=account), Stated({"r1": None}))


def test_incarnations_of_the_log_end_with_the_adoption_and_its_notices_are_kept() -> None:
    stream = begun()
    account = account_of("s", stream.state, stream.decide())
    log = logged(0, account=account, lives=["q", "after-the-copy"])
    former = StateRecord(stream="s", applied=7, low_water=0, state=LogState(), stalls=3)
    record = choose("s", commits(), log, None).record("s", "user", "t", log, former)
    assert record.state.ended == dict.fromkeys(["q", "p", "after-the-copy"])
    assert (record.applied, record.low_water, record.stalls, record.state.table) == (99, 100, 3, "t")
    assert record.table.head == SnapshotRef(id=4, identity="4")


def test_a_table_without_a_commit_begins_again_with_the_assignment_of_its_log() -> None:
    stream = begun()
    stream.commit(stream.decide())
    log = logged(1)
    log.state = stream.state
    state = state_of(choose("s", commits(0), log, None).account)
    assert (state.decided, state.cut) == (0, {})
    assert state.assignment == AssignmentState(number=0, regions=["r1", "r2"], provisional=True)
