"""A conflict publishes nothing anywhere, an unknown outcome deletes nothing, and late effects come once."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.port import Absent, Ahead, Found, OutcomeUnknown, Published
from tests.contracts.groups.harness import ANCHOR, Around, Coordinator, Late, Tables, first, landed, lost
from tests.lakes.outcomes import is_refused

ROWS = {"orders": [1], "items": [2], "bills": [3]}


def count_compositions(stream: Coordinator) -> Counter[str]:
    """Count how often a part of each table is composed from now on."""
    counts: Counter[str] = Counter()
    halves = {name: stream.group.table(known.terms) for name, known in stream.known.items()}
    for name, half in {ANCHOR: stream.group._anchor, **halves}.items():

        def counted(*arguments: object, _name: str = name, _compose: object = half.compose) -> object:
            counts[_name] += 1
            assert callable(_compose)
            return _compose(*arguments)

        vars(half)["compose"] = counted
    return counts


@pytest.mark.parametrize("name", ["orders", "items", "bills"])
def test_a_conflict_in_one_table_publishes_nothing_anywhere(safe: Coordinator, name: str) -> None:
    # Nessie lists the newest snapshot alone, so the mark of a first decision is the proof of its absence.
    safe.commit(1, {"orders": [9]})
    files = safe.files(ROWS)
    counts = count_compositions(safe)
    safe.at_step(first(lambda: safe.tables.lakes[name].foreign([100])))
    head, before = safe.absent(2, files), safe.heads()
    assert is_refused(safe.publish(2, head, files), again=True)
    after = safe.heads()
    assert {each for each in after if after[each] != before[each]} == {name}
    assert counts == dict.fromkeys(ROWS, 1)
    outcome = safe.publish(2, safe.absent(2, files), files)
    assert isinstance(outcome, Published)
    # Only the tables that moved are composed again. The anchor's part has the vector.
    assert counts == {each: 2 if each in (name, ANCHOR) else 1 for each in ROWS}
    ids = {each: lake.ids() for each, lake in safe.tables.lakes.items()}
    assert ids == {
        "orders": [1, 9, *([100] if name == "orders" else [])],
        "items": [2, *([100] if name == "items" else [])],
        "bills": [3, *([100] if name == "bills" else [])],
    }


def test_conflicts_in_one_table_after_the_other(safe: Coordinator) -> None:
    safe.commit(1, {"items": [10]})
    files = safe.files(ROWS)
    for number, name in enumerate(["bills", "items", "orders", "items", "bills"]):
        lake = safe.tables.lakes[name]
        safe.at_step(first(lambda lake=lake, number=number: lake.foreign([100 + number])))  # type: ignore[misc]
        assert is_refused(safe.publish(2, safe.absent(2, files), files), again=True)
    assert isinstance(safe.publish(2, safe.absent(2, files), files), Published)
    assert safe.tables.lakes["orders"].ids() == [1, 102]
    assert safe.tables.lakes["items"].ids() == [2, 10, 101, 103]
    assert safe.tables.lakes["bills"].ids() == [3, 100, 104]


def test_a_publication_of_a_zombie_fails_as_a_whole(safe: Coordinator) -> None:
    """It needs the anchor's head, whatever became of the other tables."""
    zombie = safe.twin()
    files = safe.files(ROWS)
    request = zombie.request(1, zombie.absent(1, files), files)
    safe.settle(1, files)
    before = safe.heads()
    assert is_refused(zombie.group.publish(request), again=True)
    safe.commit(2, {"orders": [4]})
    assert is_refused(zombie.group.publish(request), again=True)
    assert {name: safe.heads()[name] for name in ("items", "bills")} == {
        name: before[name] for name in ("items", "bills")
    }
    # Nessie lists the newest snapshot alone, and its mark is of a higher decision.
    assert isinstance(zombie.ask(1, files), Found | Ahead)


def test_a_zombie_that_publishes_at_the_deciding_step_is_found(safe: Coordinator) -> None:
    zombie = safe.twin()
    files = safe.files(ROWS)
    safe.at_step(first(lambda: zombie.settle(1, files)))
    assert safe.settle(1, files) == 1
    assert {name: lake.ids() for name, lake in safe.tables.lakes.items()} == ROWS


def lacking(stream: Coordinator) -> tuple[Found, dict[str, FilesWritten]]:
    """Let the anchor and `items` have decision 2, which `bills` lacks, and return the anchor's answer."""
    stream.commit(1, {"orders": [9]})
    files = stream.files(ROWS)
    some = {name: files[name] for name in ("orders", "items")}
    assert isinstance(stream.publish(2, stream.absent(2, some), some), Published)
    answer = stream.ask(2, files)
    assert isinstance(answer, Found)
    assert answer.tables.keys() == {"items"}
    return answer, {"bills": files["bills"]}


def test_a_table_that_lacks_a_decision_gets_it_on_the_state_of_the_anchor_that_was_read(
    stream: Coordinator,
) -> None:
    answer, files = lacking(stream)
    stream.at_step(first(lambda: stream.tables.lakes["orders"].foreign([100])))
    before = stream.head("bills")
    assert is_refused(stream.publish(2, answer.snapshot, files, apart=True), again=True)
    assert stream.head("bills") == before
    stream.at_step(lambda step: step())
    assert isinstance(stream.publish(2, answer.snapshot, files, apart=True), Published)
    assert stream.tables.lakes["bills"].ids() == [3]
    stream.tables.lakes["orders"].foreign([101])
    assert stream.tables.lakes["orders"].ids() == [1, 9, 100, 101]


@pytest.mark.parametrize("when", ["before the publication", "before a later commit", "at its step"])
def test_a_table_gets_no_decision_that_the_anchor_lost(past: Coordinator, when: str) -> None:
    """The anchor is rolled back, and its decision reverted, while another process completes the tables."""
    answer, files = lacking(past)
    reverting, anchor = past.twin(), past.tables.lakes["orders"]

    def give_up() -> None:
        anchor.rollback(1)
        head = past.head()
        assert isinstance(reverting.ask(2, [], "revert-2", undo=True), Absent)
        request = replace(reverting.request(2, head, {}), digest="revert-2")
        assert isinstance(reverting.group.publish(request), Published)
        if when == "before a later commit":
            # The further tables are as the frozen process knows them.
            reverting.commit(3, {"orders": [30]})

    if when == "at its step":
        past.at_step(first(give_up))
    else:
        give_up()
    before = past.head("bills")
    assert is_refused(past.publish(2, answer.snapshot, files, apart=True), again=True)
    assert past.head("bills") == before
    assert past.tables.lakes["bills"].ids() == []


def test_a_lost_request_leaves_nothing_and_deletes_nothing(safe: Coordinator) -> None:
    files = safe.files(ROWS)
    safe.at_step(lost)
    head, before = safe.absent(1, files), safe.heads()
    assert isinstance(safe.publish(1, head, files), OutcomeUnknown)
    assert safe.heads() == before
    assert safe.settle(1, files) == 1
    assert {name: lake.ids() for name, lake in safe.tables.lakes.items()} == ROWS


def test_a_lost_answer_is_found(safe: Coordinator) -> None:
    files = safe.files(ROWS)
    safe.at_step(landed)
    assert isinstance(safe.publish(1, safe.absent(1, files), files), OutcomeUnknown)
    assert safe.settle(1, files) == 0
    assert {name: lake.ids() for name, lake in safe.tables.lakes.items()} == ROWS
    safe.commit(2, {"orders": [4], "items": [5], "bills": [6]})


@pytest.mark.parametrize("when", ["before the question", "after the question", "after the outcome"])
def test_an_effect_that_comes_late_comes_once(safe: Coordinator, when: str) -> None:
    """Interleaving 12: the answer of the COMMIT is lost, and its effect comes later."""
    safe.commit(1, {"orders": [9], "items": [9], "bills": [9]})
    files, late = safe.files(ROWS), Late()
    safe.at_step(late)
    assert isinstance(safe.publish(2, safe.absent(2, files), files), OutcomeUnknown)
    if when == "before the question":
        late.arrive()
        assert safe.settle(2, files) == 0
    elif when == "after the question":
        answer = safe.ask(2, files)
        assert isinstance(answer, Absent)
        late.arrive()
        assert is_refused(safe.publish(2, answer.head, files), again=True)
        assert safe.settle(2, files) == 0
    else:
        assert safe.settle(2, files) == 1
        late.arrive()
    assert {name: lake.ids() for name, lake in safe.tables.lakes.items()} == {
        name: [*rows, 9] for name, rows in ROWS.items()
    }
    safe.commit(3, {"orders": [4], "items": [5], "bills": [6]})


def test_two_streams_share_a_table(safe: Coordinator) -> None:
    """Interleaving 11: one conflict after the other."""
    other = Coordinator(safe.tables, "stream-b", anchor="bills", names=["items"])
    for decision in range(1, 5):
        mine = safe.files({"orders": [decision], "items": [decision]})
        theirs = other.files({"bills": [decision], "items": [100 + decision]})
        if decision % 2:
            safe.at_step(first(lambda theirs=theirs, number=decision: other.settle(number, theirs)))  # type: ignore[misc]
            assert safe.settle(decision, mine) == 2
        else:
            other.at_step(first(lambda mine=mine, number=decision: safe.settle(number, mine)))  # type: ignore[misc]
            assert other.settle(decision, theirs) == 2
    assert safe.tables.lakes["items"].ids() == [1, 2, 3, 4, 101, 102, 103, 104]
    assert safe.tables.lakes["orders"].ids() == [1, 2, 3, 4]
    assert safe.tables.lakes["bills"].ids() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(each, marks=pytest.mark.matrix) for each in range(3, 12))]
)
def test_nothing_is_lost_or_doubled(atomic: Tables, seed: int) -> None:
    """Coordinators that overlap, die and come back, with lost and late commits and foreign ones."""
    chance, writer = random.Random(seed), Coordinator(atomic)
    names = tuple(ROWS)
    rows = [{name: [number] for name in chance.sample(names, chance.randint(0, 3))} for number in range(1, 7)]
    files = [writer.files(each) for each in rows]
    # Before the first decision, a catalog that lists the newest snapshot alone proves nothing.
    log = [writer.twin()]
    """Coordinators as of each outcome in the log."""
    writer.settle(1, files[0])
    log.append(writer.twin())
    live, late, foreign = [writer.twin(), writer.twin()], list[Late](), Counter[str]()
    while len(log) <= len(rows):
        kind, one = chance.random(), chance.choice(live)
        if kind < 0.1:
            live = [chance.choice(live), log[0].twin()]
        elif kind < 0.2:
            name = chance.choice(names)
            foreign[name] += 1
            atomic.lakes[name].foreign([100 + foreign[name]])
        elif kind < 0.3 and late:
            late.pop(chance.randrange(len(late))).arrive()
        elif kind < 0.65:
            # It may not have read the newest outcome.
            before = chance.choice(log[-2:])
            one.recorded, one.known = before.recorded, dict(before.known)
            decision = log.index(before) + 1
            choices: list[Around] = [lost, landed, Late()]
            around = chance.choice(choices)
            one.at_step(around)
            answer = one.ask(decision, files[decision - 1])
            if isinstance(answer, Absent):
                one.publish(decision, answer.head, files[decision - 1])
            if isinstance(around, Late) and hasattr(around, "arrive"):
                late.append(around)
        else:
            one.recorded, one.known = log[-1].recorded, dict(log[-1].known)
            one.settle(len(log), files[len(log) - 1])
            log.append(one.twin())
    for each in late:
        each.arrive()
    for name, lake in atomic.lakes.items():
        own = [number for number, each in enumerate(rows, 1) if name in each]
        assert lake.ids() == [*own, *(100 + number for number in range(1, foreign[name] + 1))]
