"""Evidence of a further table before a publication: its history counts before its mark."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.events.models import SnapshotRef, TableVersion
from sluicegate.events.problems import Cause, CauseCode
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
    assert stream.group.trouble(stream.known)["items"].cause == cause


def knows(stream: Coordinator, decision: int, snapshot: SnapshotRef | None) -> None:
    """Let the log know another newest decision of `items`."""
    newest = TableVersion(decision=decision, snapshot=snapshot)
    stream.known["items"] = stream.known["items"].model_copy(update={"newest": newest})


def test_a_table_with_foreign_commits_takes_part(safe: Coordinator) -> None:
    safe.commit(1, {"orders": [1], "items": [2]})
    for number in range(3):
        safe.tables.lakes["items"].foreign([100 + number])
    assert safe.group.trouble(safe.known) == {}
    safe.commit(2, {"items": [3]})
    assert safe.tables.lakes["items"].ids() == [2, 3, 100, 101, 102]


@pytest.mark.parametrize("foreign", [0, 2])
def test_an_expired_history_is_no_obstacle(safe: Coordinator, foreign: int) -> None:
    lake = safe.tables.lakes["items"]
    for decision in (1, 2):
        safe.commit(decision, {"orders": [decision], "items": [decision]})
    for number in range(foreign):
        lake.foreign([100 + number])
    lake.expire(1)
    # Decisions that do not touch it come between.
    safe.commit(3, {"orders": [3]})
    assert safe.group.trouble(safe.known) == {}
    safe.commit(4, {"items": [4]})
    assert lake.ids() == sorted([1, 2, 4, *(100 + number for number in range(foreign))])


def test_a_table_that_no_decision_has_touched_takes_part(safe: Coordinator) -> None:
    lake = safe.tables.lakes["items"]
    for number in range(3):
        lake.foreign([100 + number])
    lake.expire(1)
    safe.commit(1, {"items": [1]})
    assert lake.ids() == [1, 100, 101, 102]


@pytest.mark.parametrize("expired", [False, True])
def test_a_table_that_has_the_decision_is_left_out(safe: Coordinator, expired: bool) -> None:
    """A catalog that is not atomic, or an anchor that was rolled back: `items` keeps the decision once."""
    lake = safe.tables.lakes["items"]
    safe.commit(1, {"orders": [1], "items": [1], "bills": [1]})
    before, known = safe.recorded, dict(safe.known)
    files = safe.files({"orders": [2], "items": [2], "bills": [2]})
    assert isinstance(safe.publish(2, safe.absent(2, files), files), Published)
    items = safe.head("items")
    lake.foreign([100])
    if expired:
        lake.expire(1)
    safe.tables.lakes[ANCHOR].rollback(1)
    safe.tables.lakes["bills"].rollback(1)
    again = safe.twin()
    again.recorded, again.known = before, known
    head = again.absent(2, files)
    outcome = again.publish(2, head, files)
    assert isinstance(outcome, Published)
    assert outcome.tables["items"] == (None if expired else items)
    assert outcome.tables["bills"] == again.head("bills")
    assert lake.ids() == [1, 2, 100]
    assert safe.tables.lakes["bills"].ids() == [1, 2]
    assert safe.tables.lakes[ANCHOR].ids() == [1, 2]
    vector = safe.tables.vector()
    assert vector["items"] == (2, None if expired or items is None else items.identity)


def test_another_content_of_the_decision_contradicts(safe: Coordinator) -> None:
    safe.commit(1, {"orders": [1], "items": [1]})
    other = Coordinator(safe.tables, anchor="bills", names=["items"])
    # The same commit user, by another log: its decision has another digest.
    other.known["items"] = safe.known["items"]
    request = other.request(2, None, other.files({"items": [50]}))
    object.__setattr__(request, "digest", "digest-of-another-log")
    assert isinstance(other.group.publish(request), Published)
    contradicts(safe, 2, number=2, other=1)


@pytest.mark.parametrize("known", [0, 1, 3])
def test_a_commit_that_the_log_does_not_know_contradicts(safe: Coordinator, known: int) -> None:
    safe.commit(1, {"orders": [1], "items": [1]})
    first = safe.known["items"].newest.snapshot
    safe.commit(2, {"items": [2]})
    knows(safe, known, first if known else None)
    contradicts(safe, 4, number=2, other=known)


def test_a_mark_that_the_log_does_not_know_contradicts(safe: Coordinator) -> None:
    lake = safe.tables.lakes["items"]
    safe.commit(1, {"items": [1]})
    first = safe.known["items"].newest.snapshot
    safe.commit(2, {"items": [2]})
    lake.foreign([100])
    lake.expire(1)
    knows(safe, 1, first)
    contradicts(safe, 3, number=2, other=1)


def test_a_table_that_was_rolled_back_contradicts(safe: Coordinator) -> None:
    lake = safe.tables.lakes["items"]
    for decision in (1, 2):
        safe.commit(decision, {"orders": [decision], "items": [decision]})
    lake.rollback(1)
    contradicts(safe, 3, number=1, other=2)
    # Commits of others on top change nothing about it, though the mark names decision 2.
    lake.foreign([100])
    contradicts(safe, 3, number=1, other=2)


def test_a_history_counts_before_a_mark(safe: Coordinator) -> None:
    """An operator has said that the table is right after a rollback: the mark of before does not matter."""
    lake = safe.tables.lakes["items"]
    safe.commit(1, {"orders": [1], "items": [1]})
    first = safe.known["items"]
    safe.commit(2, {"orders": [2], "items": [2]})
    lake.rollback(1)
    safe.known["items"] = first
    safe.commit(3, {"items": [3]})
    assert lake.ids() == [1, 3]


def test_the_newest_snapshot_of_ours_outside_of_the_history_contradicts(safe: Coordinator) -> None:
    lake = safe.tables.lakes["items"]
    lake.foreign([100])
    safe.commit(1, {"items": [1]})
    lake.rollback(1)
    contradicts(safe, 2, number=0, other=1)
    lake.foreign([101])
    contradicts(safe, 2, number=0, other=1)


def test_a_table_that_lost_the_commits_of_ours_contradicts(safe: Coordinator) -> None:
    """A table that was set back before its first commit of ours, and whose history is whole."""
    knows(safe, 1, SnapshotRef(1, "1"))
    contradicts(safe, 2, number=0, other=1)
    safe.tables.lakes["items"].foreign([100])
    contradicts(safe, 2, number=0, other=1)


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


def test_a_table_that_was_made_again_is_refused(safe: Coordinator) -> None:
    safe.commit(1, {"items": [1]})
    safe.tables.lakes["items"].replace()
    trouble = safe.group.trouble(safe.known)
    assert "is another table now" in trouble["items"].detail
    assert trouble.keys() == {"items"}
    with pytest.raises(LakeUnavailable, match="is another table now"):
        # The anchor has decision 1, and the table that it touched is not there.
        safe.ask(1, ["items"])


def test_a_table_that_is_away_is_refused_by_its_name(safe: Coordinator) -> None:
    files = safe.files({"orders": [1], "items": [2], "bills": [3]})
    request = safe.request(1, safe.absent(1, files), files)
    safe.tables.lakes["items"].drop()
    before = safe.head("bills")
    outcome = safe.group.publish(request)
    assert is_refused(outcome)
    assert outcome.table == "items"
    assert "no table" in outcome.reason
    assert safe.head("bills") == before
    assert safe.group.trouble(safe.known).keys() == {"items"}


def test_an_impostor_is_no_commit_of_ours(safe: Coordinator) -> None:
    safe.commit(1, {"items": [1]})
    safe.tables.lakes["items"].impostor(7, [100])
    safe.commit(2, {"items": [2]})
    assert safe.tables.lakes["items"].ids() == [1, 2, 100]


def test_commits_of_another_stream_are_none_of_ours(safe: Coordinator) -> None:
    other = Coordinator(safe.tables, "stream-b", anchor="bills", names=["items"])
    for decision in range(1, 4):
        other.commit(decision, {"items": [100 + decision]})
        safe.commit(decision, {"orders": [decision], "items": [decision]})
    assert safe.tables.lakes["items"].ids() == [1, 2, 3, 101, 102, 103]


def test_a_question_reads_the_other_tables_after_the_anchor(safe: Coordinator) -> None:
    """Interleaving 1: a zombie publishes between the two."""
    zombie = safe.twin()
    files = safe.files({"orders": [1], "items": [2]})
    request = zombie.request(1, zombie.absent(1, files), files)
    ask: Callable[..., object] = safe.group._anchor.ask

    def late(*arguments: object) -> object:
        assert isinstance(zombie.group.publish(request), Published)
        return ask(*arguments)

    vars(safe.group._anchor)["ask"] = late
    assert safe.ask(1, files) == Found(
        safe.head() or SnapshotRef(0, ""), tables={"items": safe.head("items")}
    )


def test_a_revert_asks_the_tables_though_the_anchor_lacks_the_decision(safe: Coordinator) -> None:
    safe.commit(1, {"orders": [1], "items": [1]})
    before = safe.recorded
    files = safe.files({"orders": [2], "items": [2], "bills": [2]})
    assert isinstance(safe.publish(2, safe.absent(2, files), files), Published)
    safe.tables.lakes[ANCHOR].rollback(1)
    safe.tables.lakes["bills"].drop()
    safe.recorded = before
    answer = safe.ask(2, files, undo=True)
    assert getattr(answer, "elsewhere", None) == ("items",)
    assert getattr(safe.ask(2, files), "elsewhere", None) == ()
