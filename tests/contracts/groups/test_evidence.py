"""Evidence of a further table before a publication: its history counts before its mark."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sluicegate.events.models import SnapshotRef, TableVersion
from sluicegate.events.problems import Cause, CauseCode, Problem
from sluicegate.lakes.port import Found, LakeUnavailable, Published, Refused
from tests.contracts.groups.harness import ANCHOR, Coordinator
from tests.contracts.groups.iceberg_tables import SqliteNamed, SqlTables
from tests.lakes.outcomes import is_refused


def refusal(stream: Coordinator, decision: int, ids: list[int]) -> Refused:
    """Return the refusal of a decision that touches `items`, and require that nothing was published."""
    files = stream.files({"orders": ids, "items": ids})
    head, before = stream.absent(decision, files), stream.heads()
    outcome = stream.publish(decision, head, files)
    assert isinstance(outcome, Refused), outcome
    assert outcome.table == "items"
    assert stream.heads() == before
    return outcome


def contradicts(stream: Coordinator, decision: int, *, number: int, other: int) -> None:
    """Require that `items` contradicts the log: its newest commit of ours is `number`, not `other`."""
    cause = Cause(code=CauseCode.OTHER_NEWEST, number=number, other=other)
    assert refusal(stream, decision, [900 + decision]).cause == cause
    found = stream.group.trouble(stream.known)["items"]
    assert isinstance(found, Problem)
    assert found.cause == cause


def knows(stream: Coordinator, decision: int, snapshot: SnapshotRef | None) -> None:
    """Let the log know another newest decision of `items`."""
    newest = TableVersion(decision=decision, snapshot=snapshot)
    stream.known["items"] = stream.known["items"].model_copy(update={"newest": newest})


def test_a_table_with_foreign_commits_takes_part(past: Coordinator) -> None:
    past.commit(1, {"orders": [1], "items": [2]})
    for number in range(3):
        past.tables.lakes["items"].foreign([100 + number])
    assert past.group.trouble(past.known) == {}
    past.commit(2, {"items": [3]})
    assert past.tables.lakes["items"].ids() == [2, 3, 100, 101, 102]


@pytest.mark.parametrize("foreign", [0, 2])
def test_an_expired_history_is_no_obstacle(past: Coordinator, foreign: int) -> None:
    lake = past.tables.lakes["items"]
    for decision in (1, 2):
        past.commit(decision, {"orders": [decision], "items": [decision]})
    for number in range(foreign):
        lake.foreign([100 + number])
    lake.expire(1)
    # Decisions that do not touch it come between.
    past.commit(3, {"orders": [3]})
    assert past.group.trouble(past.known) == {}
    past.commit(4, {"items": [4]})
    assert lake.ids() == sorted([1, 2, 4, *(100 + number for number in range(foreign))])


def test_a_table_that_no_decision_has_touched_takes_part(past: Coordinator) -> None:
    lake = past.tables.lakes["items"]
    for number in range(3):
        lake.foreign([100 + number])
    lake.expire(1)
    past.commit(1, {"items": [1]})
    assert lake.ids() == [1, 100, 101, 102]


@pytest.mark.parametrize("expired", [False, True])
def test_a_table_that_has_the_decision_is_left_out(past: Coordinator, expired: bool) -> None:
    """A catalog that is not atomic, or an anchor that was rolled back: `items` keeps the decision once."""
    lake = past.tables.lakes["items"]
    past.commit(1, {"orders": [1], "items": [1], "bills": [1]})
    before, known = past.recorded, dict(past.known)
    files = past.files({"orders": [2], "items": [2], "bills": [2]})
    assert isinstance(past.publish(2, past.absent(2, files), files), Published)
    items = past.head("items")
    lake.foreign([100])
    if expired:
        lake.expire(1)
    past.tables.lakes[ANCHOR].rollback(1)
    past.tables.lakes["bills"].rollback(1)
    again = past.twin()
    again.recorded, again.known = before, known
    head = again.absent(2, files)
    outcome = again.publish(2, head, files)
    assert isinstance(outcome, Published)
    assert outcome.tables["items"] == (None if expired else items)
    assert outcome.tables["bills"] == again.head("bills")
    assert lake.ids() == [1, 2, 100]
    assert past.tables.lakes["bills"].ids() == [1, 2]
    assert past.tables.lakes[ANCHOR].ids() == [1, 2]
    vector = past.tables.vector()
    assert vector["items"] == (2, None if expired or items is None else items.identity)


def test_another_content_of_the_decision_contradicts(past: Coordinator) -> None:
    past.commit(1, {"orders": [1], "items": [1]})
    other = Coordinator(past.tables, anchor="bills", names=["items"])
    # The same commit user, by another log: its decision has another digest.
    other.known["items"] = past.known["items"]
    request = other.request(2, None, other.files({"items": [50]}))
    object.__setattr__(request, "digest", "digest-of-another-log")
    assert isinstance(other.group.publish(request), Published)
    contradicts(past, 2, number=2, other=1)


@pytest.mark.parametrize("known", [0, 1, 3])
def test_a_commit_that_the_log_does_not_know_contradicts(past: Coordinator, known: int) -> None:
    past.commit(1, {"orders": [1], "items": [1]})
    first = past.known["items"].newest.snapshot
    past.commit(2, {"items": [2]})
    knows(past, known, first if known else None)
    contradicts(past, 4, number=2, other=known)


def test_a_mark_that_the_log_does_not_know_contradicts(past: Coordinator) -> None:
    lake = past.tables.lakes["items"]
    past.commit(1, {"items": [1]})
    first = past.known["items"].newest.snapshot
    past.commit(2, {"items": [2]})
    lake.foreign([100])
    lake.expire(1)
    knows(past, 1, first)
    contradicts(past, 3, number=2, other=1)


def test_a_table_that_was_rolled_back_contradicts(past: Coordinator) -> None:
    lake = past.tables.lakes["items"]
    for decision in (1, 2):
        past.commit(decision, {"orders": [decision], "items": [decision]})
    lake.rollback(1)
    contradicts(past, 3, number=1, other=2)
    # Commits of others on top change nothing about it, though the mark names decision 2.
    lake.foreign([100])
    contradicts(past, 3, number=1, other=2)


def test_an_expiry_hides_no_rollback_that_was_seen(past: Coordinator) -> None:
    """The mark survives a rollback, and nothing contradicts it any more once the history has expired."""
    for decision in (1, 2, 3):
        past.commit(decision, {"items": [decision]})
    items = past.tables.lakes["items"]
    items.rollback(2)
    contradicts(past, 4, number=2, other=3)
    items.foreign([100])
    items.expire(1)
    items.expire_beside()
    assert past.group.trouble(past.known) == {}, "nobody can tell"
    past.known["items"] = past.known["items"].model_copy(update={"doubted": True})
    contradicts(past, 4, number=0, other=3)
    # An operator states that the table is right as it is.
    newest = TableVersion(decision=3, snapshot=past.head("items"))
    past.known["items"] = past.known["items"].model_copy(update={"newest": newest, "doubted": False})
    past.commit(4, {"items": [4]})


def test_a_doubt_ends_when_the_history_shows_the_commit(past: Coordinator) -> None:
    past.commit(1, {"items": [1]})
    past.known["items"] = past.known["items"].model_copy(update={"doubted": True})
    past.commit(2, {"items": [2]})


def test_a_history_counts_before_a_mark(past: Coordinator) -> None:
    """An operator has said that the table is right after a rollback: the mark of before does not matter."""
    lake = past.tables.lakes["items"]
    past.commit(1, {"orders": [1], "items": [1]})
    first = past.known["items"]
    past.commit(2, {"orders": [2], "items": [2]})
    lake.rollback(1)
    past.known["items"] = first
    past.commit(3, {"items": [3]})
    assert lake.ids() == [1, 3]


def test_the_newest_snapshot_of_ours_outside_of_the_history_contradicts(past: Coordinator) -> None:
    lake = past.tables.lakes["items"]
    lake.foreign([100])
    past.commit(1, {"items": [1]})
    lake.rollback(1)
    contradicts(past, 2, number=0, other=1)
    lake.foreign([101])
    contradicts(past, 2, number=0, other=1)


def test_a_table_that_lost_the_commits_of_ours_contradicts(past: Coordinator) -> None:
    """A table that was set back before its first commit of ours, and whose history is whole."""
    knows(past, 1, SnapshotRef(1, "1"))
    contradicts(past, 2, number=0, other=1)
    past.tables.lakes["items"].foreign([100])
    contradicts(past, 2, number=0, other=1)


@pytest.mark.slow
def test_a_tag_that_keeps_a_snapshot_of_ours_is_no_contradiction(tmp_path: Path) -> None:
    """The snapshots after it have expired. The head lists the files of ours, so it was made on that one."""
    tables = SqlTables({each: SqliteNamed(tmp_path, each) for each in ("orders", "items")})
    lake, stream = tables.lakes["items"], Coordinator(tables, names=["items"])
    stream.commit(1, {"items": [1]})
    for number in range(2):
        lake.foreign([100 + number])
    lake.lose(2)
    assert stream.group.trouble(stream.known) == {}
    stream.commit(2, {"items": [2]})
    assert lake.ids() == [1, 2, 100, 101]
    tables.close()


@pytest.mark.slow
def test_a_listed_snapshot_whose_files_the_head_lacks_contradicts(tmp_path: Path) -> None:
    tables = SqlTables({each: SqliteNamed(tmp_path, each) for each in ("orders", "items")})
    lake, stream = tables.lakes["items"], Coordinator(tables, names=["items"])
    lake.foreign([100])
    stream.commit(1, {"items": [1]})
    lake.rollback(1)
    lake.foreign([101])
    lake.lose(1)
    contradicts(stream, 2, number=0, other=1)
    tables.close()


def test_a_table_that_was_made_again_is_refused(past: Coordinator) -> None:
    past.commit(1, {"items": [1]})
    past.tables.lakes["items"].replace()
    trouble = past.group.trouble(past.known)
    assert "is another table now" in str(trouble["items"])
    assert trouble.keys() == {"items"}
    with pytest.raises(LakeUnavailable, match="is another table now"):
        # The anchor has decision 1, and the table that it touched is not there.
        past.ask(1, ["items"])


def test_a_table_that_is_away_is_refused_by_its_name(past: Coordinator) -> None:
    files = past.files({"orders": [1], "items": [2], "bills": [3]})
    request = past.request(1, past.absent(1, files), files)
    past.tables.lakes["items"].drop()
    before = past.head("bills")
    outcome = past.group.publish(request)
    assert is_refused(outcome)
    assert outcome.table == "items"
    assert "no table" in outcome.reason
    assert past.head("bills") == before
    assert past.group.trouble(past.known).keys() == {"items"}


def test_a_table_that_is_gone_and_left_out_is_passed_over(past: Coordinator) -> None:
    """It is no obstacle once the settings lack it; one that is there gets the decision all the same."""
    files = past.files({"orders": [1], "items": [2], "bills": [3]})
    request = past.request(1, past.absent(1, files), files)
    past.tables.lakes["items"].drop()
    assert is_refused(past.group.publish(replace(request, left_out=frozenset({"bills"}))))
    outcome = past.group.publish(replace(request, left_out=frozenset({"items", "bills"})))
    assert isinstance(outcome, Published)
    assert outcome.tables == {"bills": past.head("bills")}


def test_an_impostor_is_no_commit_of_ours(past: Coordinator) -> None:
    past.commit(1, {"items": [1]})
    past.tables.lakes["items"].impostor(7, [100])
    past.commit(2, {"items": [2]})
    assert past.tables.lakes["items"].ids() == [1, 2, 100]


def test_commits_of_another_stream_are_none_of_ours(past: Coordinator) -> None:
    other = Coordinator(past.tables, "stream-b", anchor="bills", names=["items"])
    for decision in range(1, 4):
        other.commit(decision, {"items": [100 + decision]})
        past.commit(decision, {"orders": [decision], "items": [decision]})
    assert past.tables.lakes["items"].ids() == [1, 2, 3, 101, 102, 103]


def test_a_question_reads_the_other_tables_after_the_anchor(past: Coordinator) -> None:
    """Interleaving 1: a zombie publishes between the two."""
    zombie = past.twin()
    files = past.files({"orders": [1], "items": [2]})
    request = zombie.request(1, zombie.absent(1, files), files)
    ask: Callable[..., object] = past.group._anchor.ask

    def late(*arguments: object) -> object:
        assert isinstance(zombie.group.publish(request), Published)
        return ask(*arguments)

    vars(past.group._anchor)["ask"] = late
    assert past.ask(1, files) == Found(
        past.head() or SnapshotRef(0, ""), tables={"items": past.head("items")}
    )


def test_a_revert_asks_the_tables_though_the_anchor_lacks_the_decision(past: Coordinator) -> None:
    past.commit(1, {"orders": [1], "items": [1]})
    before = past.recorded
    files = past.files({"orders": [2], "items": [2], "bills": [2]})
    assert isinstance(past.publish(2, past.absent(2, files), files), Published)
    past.tables.lakes[ANCHOR].rollback(1)
    past.tables.lakes["bills"].drop()
    past.recorded = before
    answer = past.ask(2, files, undo=True)
    assert getattr(answer, "elsewhere", None) == ("items",)
    assert getattr(past.ask(2, files), "elsewhere", ()) is None
