"""A worker reads every outcome that any topic still has, also when the commits topic was made again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from sluicegate.coordinator.listeners import worker
from sluicegate.coordinator.listeners.records import ListenerRecord, furthest
from sluicegate.coordinator.listeners.worker import ListenerCode, Piece, Worker
from sluicegate.coordinator.settings.model import ListenerSettings
from sluicegate.coordinator.stream.outcomes import Announced, Outcomes, outcome_of
from sluicegate.events.notifications import (
    Committed,
    Notification,
    NotificationType,
    SavepointTaken,
    StreamAdopted,
)
from sluicegate.listeners.port import Action, Done, Outcome, Refused, Result, State, Step
from sluicegate.listeners.webhook import WebhookOptions
from tests.integration.waiting import until


class Nothing(State):
    """No state."""


class Listener:
    """Keeps the ids of the outcomes that it handled."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.result: Result = Done()

    def initial(self) -> Nothing:
        return Nothing()

    def load(self, state: Mapping[str, Any]) -> Nothing:
        return Nothing()

    def apply(self, outcome: Outcome, state: Nothing) -> Step[Nothing]:
        return Step(state, (Action(outcome.id, outcome.id),))

    def due(self, now: int, state: Nothing) -> Step[Nothing]:
        return Step(state)

    async def run(self, action: Action) -> Result:
        self.got.append(action.key)
        return self.result

    async def close(self) -> None:
        """Release nothing."""


class Topic:
    """The commits topic, in which another stream has records, too."""

    def __init__(self, id_: str = "first") -> None:
        self.id = id_
        self.records: list[Notification | None] = []

    def append(self, found: Notification | None) -> int:
        self.records.append(found)
        return len(self.records) - 1

    async def read(self, stream: str, partition: int, offset: int) -> Piece:
        end = len(self.records)
        at = 0 if offset > end else offset
        read = [(number, each) for number, each in enumerate(self.records) if number >= at and each]
        found = [(number, outcome_of(each, 0)) for number, each in read]
        outcomes = [Announced(number, each) for number, each in found if each is not None]
        return Piece(outcomes, end, 0, end, self.id)


class World:
    """A topic, an owner that announces outcomes in it, and one listener."""

    def __init__(self, *, ids: bool = True) -> None:
        self.ids = ids
        self.topic = Topic("first" if ids else "")
        self.outcomes = Outcomes()
        self.outcomes.place()
        self.listener = Listener()
        self.settled = 0
        self.record = ListenerRecord(
            stream="s", listener="l", type="webhook", owner="o", partition=0, offset=0, decision=0
        )
        self.skip_through = 0

    def adopt(self, decision: int) -> None:
        """Announce that the stream continues from its table after a decision."""
        body = StreamAdopted(decision=decision, snapshot=None)
        found = Notification(f"a{decision}", NotificationType.ADOPTED, "s", "", "", body)
        self.outcomes.announced(found, self.topic.append(found), 0)

    def announce(self, decision: int, savepoint: str = "", life: str = "c") -> None:
        """Announce a commit, or a savepoint at a decision."""
        kind = NotificationType.SAVEPOINT_TAKEN if savepoint else NotificationType.COMMITTED
        body = taken(decision, savepoint) if savepoint else commit(decision)
        found = Notification(savepoint or f"{life}{decision}", kind, "s", "", "", body)
        self.outcomes.announced(found, self.topic.append(found), 0)
        self.settled = max(self.settled, decision)

    def make_again(self, *, new_owner: bool = False) -> None:
        """Delete the topic and make it again; another owner has no outcomes in its memory."""
        self.topic.records.clear()
        self.topic.id = "second" if self.ids else ""
        if new_owner:
            self.outcomes = Outcomes()
            self.outcomes.place()

    def others(self, count: int) -> None:
        """Append records of another stream."""
        for _ in range(count):
            self.topic.append(None)

    async def write(self, record: ListenerRecord) -> None:
        self.record = record

    @property
    def code(self) -> str | None:
        shown = self.outcomes.shown.get("l")
        return shown.problem.code if shown is not None and shown.problem is not None else None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        options = WebhookOptions(url="https://nowhere", secret_file=Path("nowhere"))
        own = ListenerSettings(type="webhook", skip_through=self.skip_through, options=options)
        made = Worker(
            *(self.listener, own, "", self.record, self.outcomes, cast(Any, self.topic), cast(Any, self)),
            lambda: self.settled,
            MagicMock(),
        )
        task = asyncio.create_task(made.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until this is true, or the listener has a problem."""
        await until(lambda: condition() or self.code is not None)
        assert condition(), self.outcomes.shown

    async def got(self, *ids: str) -> None:
        await self.until(lambda: len(self.listener.got) >= len(ids))
        assert self.listener.got == list(ids)


def commit(decision: int) -> Committed:
    return Committed(decision=decision, cut={}, snapshot=None, watermark=None, files=0)


def taken(decision: int, name: str) -> SavepointTaken:
    return SavepointTaken(name=name, drained=False, decision=decision, cut={}, snapshot=None, watermark=None)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a listener look for losses at once."""
    monkeypatch.setattr(worker, "IDLE", 0.01)


async def test_a_topic_that_is_made_again_under_a_running_owner() -> None:
    """The offsets begin at 0 again, and the listener stands at a higher one."""
    world = World()
    world.others(20)
    async with world.running():
        world.announce(1)
        await world.got("c1")
        world.make_again()
        world.announce(2)
        await world.got("c1", "c2")
        world.announce(3)
        await world.got("c1", "c2", "c3")
    assert (world.code, world.record.topic) == (None, "second")


async def test_numbers_that_an_adoption_uses_again_are_of_other_decisions() -> None:
    """A listener that begins with the earliest outcome reads those that are given up, too."""
    world = World()
    world.record = world.record.model_copy(update={"decision": None})
    for decision in (1, 2, 3):
        world.announce(decision)
    world.adopt(1)
    world.settled = 1
    async with world.running():
        await world.got("c1", "c2", "c3")
        world.announce(2, life="again")
        await world.got("c1", "c2", "c3", "again2")
        # Under the key of another owner, a record of the former life is older, however high its number.
        assert (world.record.decision, world.record.adoptions) == (2, 1)
        former = world.record.model_copy(update={"decision": 3, "adoptions": 0, "step": 99})
        assert furthest([former, world.record]) is world.record


async def test_a_number_that_is_left_out_is_none_of_the_decisions_after_an_adoption() -> None:
    """Decision 3 was left out. The adoption gives it up, and the next ones have its number again."""
    world = World()
    world.skip_through = 3
    async with world.running():
        for decision in (1, 2, 3, 4):
            world.announce(decision)
        await world.got("c4")
        world.adopt(1)
        world.settled = 1
        world.announce(2, life="again")
        await until(lambda: world.code == ListenerCode.UNUSABLE)
        problem = world.outcomes.shown["l"].problem
        assert problem is not None
        assert "skip_through = 3" in problem.message
    world.skip_through = 0
    world.outcomes.shown.clear()
    async with world.running():
        await world.got("c4", "again2")
    world.skip_through = 3
    async with world.running():
        for decision in (3, 4):
            world.announce(decision, life="again")
        world.adopt(1)
        await world.got("c4", "again2", "again4")


async def test_a_topic_that_is_read_whole_gives_no_outcome_that_an_adoption_has_given_up() -> None:
    world = World()
    async with world.running():
        for decision in (1, 2, 3):
            world.announce(decision)
        await world.got("c1", "c2", "c3")
        world.adopt(1)
        world.settled = 1
        world.announce(2, life="again")
        await world.got("c1", "c2", "c3", "again2")
    # It was deleted, and made again from a copy.
    world.topic.id = "second"
    world.outcomes = Outcomes()
    world.outcomes.place()
    async with world.running():
        world.announce(3, life="again")
        await world.got("c1", "c2", "c3", "again2", "again3")
    # Decision 4 is lost. It is not the one that the topic has.
    world.announce(4)
    world.adopt(3)
    world.settled = 3
    async with world.running():
        world.announce(5, life="again")
        await until(lambda: world.code == ListenerCode.OUTCOMES_LOST)
    assert world.listener.got == ["c1", "c2", "c3", "again2", "again3", "c4"]


async def test_an_adoption_that_is_announced_again_has_no_effect() -> None:
    """An owner that was frozen announces it after the outcomes of the next one."""
    world = World()
    world.announce(1)
    world.adopt(1)
    async with world.running():
        world.announce(2)
        await world.got("c1", "c2")
        world.adopt(1)
        world.announce(3)
        await world.got("c1", "c2", "c3")
        assert (world.record.decision, world.record.adoptions) == (3, 1)


async def test_repeated_outcomes_of_one_decision_are_handled_once() -> None:
    """A new owner announces what the newest record owes, so several outcomes of a decision come twice."""
    world = World()
    world.announce(1)
    world.announce(1, savepoint="first")
    world.announce(1, savepoint="second")
    async with world.running():
        await world.got("c1", "first", "second")
        world.announce(1)
        world.announce(1, savepoint="first")
        world.announce(2)
        await world.got("c1", "first", "second", "c2")
    assert (world.record.decision, world.record.seen) == (2, ("c2",))


@pytest.mark.parametrize("ids", [True, False], ids=["with ids", "of brokers without ids"])
async def test_a_topic_that_is_made_again_between_two_owners(ids: bool) -> None:
    """The new topic is longer than the former one was, so the offset of the record is in it."""
    world = World(ids=ids)
    async with world.running():
        world.announce(1)
        await world.got("c1")
    world.make_again(new_owner=True)
    for decision in (2, 3, 4):
        world.announce(decision)
    async with world.running():
        await world.got("c1", "c2", "c3", "c4")
    assert world.code is None


async def test_the_savepoint_of_a_handled_decision_is_in_the_new_topic() -> None:
    """No decision is missing, so only the id of the topic shows that the offset is of another one."""
    world = World()
    async with world.running():
        world.announce(1)
        await world.got("c1")
    world.make_again(new_owner=True)
    world.announce(1, savepoint="sp")
    world.announce(2)
    async with world.running():
        await world.got("c1", "sp", "c2")


async def test_outcomes_in_memory_of_the_former_topic_are_handled() -> None:
    world = World()
    async with world.running():
        world.announce(1)
        await world.got("c1")
        world.announce(2)
        # Nothing was awaited: the listener has not seen it, and the topic has it no more.
        world.make_again()
        world.announce(3)
        await world.got("c1", "c2", "c3")


async def test_the_host_notices_a_topic_that_is_made_again_while_nothing_is_announced() -> None:
    world = World()
    async with world.running():
        world.announce(1)
        await world.got("c1")
        world.make_again()
        world.others(20)
        world.outcomes.begin_again()
        world.announce(2)
        await world.got("c1", "c2")
    assert world.record.topic == "second"


async def test_a_real_loss_is_named_and_the_way_out_works() -> None:
    world = World()
    async with world.running():
        world.announce(1)
        await world.got("c1")
        world.announce(2)
        world.make_again()
        world.outcomes.begin_again()
        world.outcomes.former = ()
        world.announce(3)
        await world.until(lambda: world.code is not None)
        assert world.code == ListenerCode.OUTCOMES_LOST
        problem = world.outcomes.shown["l"].problem
        assert problem is not None
        assert "of the decisions 2 to 2 any more" in problem.message
    world.skip_through = 2
    world.outcomes.shown.clear()
    async with world.running():
        await world.got("c1", "c3")


async def test_the_way_out_drops_no_decision_that_the_topic_has() -> None:
    """The listener was told of a loss of 2 to 3. Meanwhile the topic has 3, so only 2 is lost."""
    world = World(ids=False)
    async with world.running():
        world.announce(1)
        await world.got("c1")
    world.make_again(new_owner=True)
    for decision in (3, 4):
        world.announce(decision)
    world.others(5)
    async with world.running():
        await world.until(lambda: world.code is not None)
        problem = world.outcomes.shown["l"].problem
        assert problem is not None
        assert "skip_through = 2 in" in problem.message


async def test_decisions_up_to_the_named_one_are_skipped() -> None:
    world = World()
    world.skip_through = 2
    async with world.running():
        for decision in (1, 2, 3):
            world.announce(decision)
        await world.got("c3")
    assert world.record.decision == 3
    assert "has left this out, after the decisions 1 to 2: c1; c2. " in (world.outcomes.shown["l"].note or "")


async def test_a_refused_action_is_not_run_again_by_the_next_owner() -> None:
    world = World()
    world.listener.result = Refused("never")
    for _ in range(2):
        world.outcomes.shown.clear()
        async with world.running():
            world.announce(1)
            await until(lambda: world.code == ListenerCode.REFUSED)
    assert (world.listener.got, world.record.refused) == (["c1"], "never")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"decision": 2, "step": 1}, {"decision": 1, "step": 9}),
        ({"decision": 0, "step": 1}, {"decision": None, "step": 9}),
        ({"decision": 1, "step": 2}, {"decision": 1, "step": 1, "offset": 9}),
        ({"decision": 1, "offset": 2}, {"decision": 1, "offset": 1}),
    ],
)
def test_the_record_that_is_further_on_counts(one: dict[str, int], other: dict[str, int]) -> None:
    """A former owner that still runs writes more records, and handles nothing."""
    record = World().record
    first, second = record.model_copy(update=one), record.model_copy(update=other)
    assert furthest([first, second]) == furthest([second, first]) == first
