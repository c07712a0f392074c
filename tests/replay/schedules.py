"""Schedules of the simulator, with what an operator would have seen on the way."""

from collections.abc import Iterator
from typing import NamedTuple

from sluicegate.coordinator.core.state import StateRecord
from sluicegate.events.encoding import encode
from sluicegate.events.envelope import Event
from sluicegate.lakes.history import TableHistory, read_history
from sluicegate.lakes.memory import FOREIGN_USER
from sluicegate.replay.course import Course, Settled, Taken
from sluicegate.simulator import LENGTH, Schedule, draw_plan
from sluicegate.simulator.plan import Step
from sluicegate.simulator.world import Entry, World

EVERY = 12
"""Steps between two looks."""


class Look(NamedTuple):
    """What there was at one moment."""

    end: int
    """The end of the log."""
    record: str | None
    committed: int
    """The last decision in the table."""


class Watched(Schedule):
    """A schedule that is looked at now and then."""

    def __init__(self, seed: int) -> None:
        self.looks: list[Look] = []
        super().__init__(draw_plan(seed, LENGTH, ("void", "expire")))

    def _take(self, step: Step) -> None:
        super()._take(step)
        if self.taken % EVERY == 0:
            world = self.world
            self.looks.append(Look(len(world.log), world.record, newest(world)))


def watched(seed: int) -> Watched:
    """A schedule that has come to its end."""
    schedule = Watched(seed)
    schedule.run()
    return schedule


def newest(world: World) -> int:
    """The last decision in the table."""
    return max((each.decision for each in world.table.history if each.digest), default=0)


def commit_user(world: World) -> str:
    """Who commits the stream."""
    users = {past.commit_user for past in world.table.history} - {FOREIGN_USER}
    return users.pop() if users else ""


def history(world: World) -> TableHistory:
    """What can be read of the table."""
    table = world.table
    head = table.past(table.head.id) if table.head else None
    return read_history(table.identity, head, table.parent)


def record_of(look: Look) -> StateRecord | None:
    """The state record that there was."""
    return StateRecord.model_validate_json(look.record) if look.record is not None else None


def takings(course: Course, log: list[Entry]) -> Iterator[tuple[Entry, Taken]]:
    """What each record of a part of the log makes of the stream."""
    for entry in log:
        message = encode(Event(entry.envelope, entry.body))
        taken = course.take(entry.offset, entry.time, message.headers, message.value)
        if taken is not None:
            yield entry, taken


def decisions(course: Course, log: list[Entry]) -> Iterator[Settled]:
    """The decisions of a part of the log, in order."""
    yield from course.start()
    for _, taken in takings(course, log):
        yield from taken.settled
    yield from course.finish()
