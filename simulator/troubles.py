"""What goes wrong with a driver: each trouble does one thing, or nothing where it does not apply."""

from collections.abc import Callable
from typing import Any, Final

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointFailed,
    FilesWritten,
    Parent,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionOpened,
)
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.driver import Driver
from sluicegate.simulator.world import STREAM

Trouble = Callable[[Driver, Dice], bool]
"""Returns whether it applied."""


def _speculate(driver: Driver, dice: Dice) -> bool:
    """Two attempts of a task publish, and the job takes one of them."""
    if not driver.active or driver.at_end or driver.in_trouble:
        return False
    driver.run_batch(dice, speculate=True)
    return True


def _redo(driver: Driver, dice: Dice) -> bool:
    """The driver crashes before the completion: the batch runs again, with other files."""
    if not driver.active or driver.at_end or driver.in_trouble:
        return False
    driver.run_batch(dice, completed=False)
    return True


def _replay(driver: Driver, dice: Dice) -> bool:
    """The driver crashes between the completion and the job's own log: the batch runs again."""
    if not driver.active or not driver.finished or driver.in_trouble or driver.newer is not None:
        return False
    following, driver.batch = driver.batch, driver.finished.pop()
    before = driver.stands()
    driver.reading = dict(driver.lineage_start) if before is None else driver.reading_at(before)
    driver.run_batch(dice)
    driver.batch = following
    return True


def _skip(driver: Driver, dice: Dice) -> bool:
    """A batch is given up after its writers have written; the next one has another number."""
    if not driver.active or driver.at_end or driver.in_trouble:
        return False
    driver.run_batch(dice, completed=False)
    driver.batch += 1
    return True


def _zombie(driver: Driver, dice: Dice) -> bool:
    """A task that should be gone writes once more, under the name of a batch that was or will be run."""
    if not driver.opened:
        return False
    if len(driver.lived) > 1 and dice.chance(0.3):
        _zombie_driver(driver, dice)
        return True
    # A task belongs to a batch that was planned: a job that has one runs it, and then is idle.
    is_planned = (driver.lineage, driver.batch) in driver.planned and not driver.at_end
    newest = driver.batch if is_planned else driver.batch - 1
    number = max(driver.first, newest - dice.below(3))
    if number > newest:
        return False
    at = (driver.region, driver.lineage, number)
    event = driver.world.files_event(at, f"w{dice.below(2)}", driver.world.new_id("a"))
    if dice.chance(0.5):
        driver.world.append(*event)
    else:
        driver.stray.append(event)
    return True


def _zombie_driver(driver: Driver, dice: Dice) -> None:
    """The driver of a replaced lineage says that it is idle, or that it has come to its end."""
    body = dice.pick((RegionHeartbeat(idle=True), RegionClosed(final=max(0, driver.first - 1))))
    kind = EventType.REGION_HEARTBEAT if isinstance(body, RegionHeartbeat) else EventType.REGION_CLOSED
    envelope = Envelope(driver.world.new_id("d"), kind, STREAM, driver.region, driver.lived[-2])
    driver.world.append(envelope, body)


def _duplicate(driver: Driver, dice: Dice) -> bool:
    """What was said of a checkpoint is said again, sooner or later; an order to the stream only at once."""
    log = driver.world.log
    own = [entry for entry in log[-60:] if entry.envelope.region == driver.region]
    own = [entry for entry in own if entry.offset not in driver.world.newer]
    if not own:
        return False
    entry = dice.pick(own)
    is_old = entry is not own[-1] or entry.envelope.lineage != driver.lineage
    if entry.envelope.checkpoint < 0 and (is_old or driver.stopped):
        return False
    driver.world.append(entry.envelope, entry.body)
    return True


def _deliver(driver: Driver, dice: Dice) -> bool:
    return driver.deliver(dice) != "nothing"


def _idle(driver: Driver, dice: Dice) -> bool:
    """The source has nothing new, or has something again."""
    if not driver.active:
        return False
    driver.say(EventType.REGION_HEARTBEAT, RegionHeartbeat(idle=dice.chance(0.6)))
    return True


def _idle_in_a_batch(driver: Driver, dice: Dice) -> bool:
    """A heartbeat claims that there is no work, while the writers of a batch are at it."""
    if not driver.active or driver.at_end or driver.in_trouble:
        return False
    driver.run_batch(dice, completed=False)
    driver.say(EventType.REGION_HEARTBEAT, RegionHeartbeat(idle=True))
    return True


def _hint(driver: Driver, dice: Dice) -> bool:
    if not driver.active:
        return False
    if driver.finished and dice.chance(0.3):
        # Somebody believes that files are lost; they may be there all the same.
        outcome = CheckpointFailed(outcome="lost", reason="an executor died")
        driver.say(EventType.CHECKPOINT_FAILED, outcome, driver.last)
    else:
        outcome = CheckpointFailed(outcome=dice.pick(("late", "redo")))
        driver.say(EventType.CHECKPOINT_FAILED, outcome, driver.batch)
    return True


def _restart(driver: Driver, dice: Dice) -> bool:
    """The driver crashes and opens its lineage again."""
    if not driver.opened or driver.dead or driver.stopped:
        return False
    driver.restart()
    return True


def _rewind(driver: Driver, dice: Dice) -> bool:
    """Back to the committed checkpoint, to one that may be decided meanwhile, or to one that surely is."""
    if not driver.active and not (driver.closed and driver.opened and not driver.dead):
        return False
    target = driver.committed()
    way = dice.below(4)
    done = driver.finished
    if way == 0 and done and not driver.lacking:
        target = Position(lineage=driver.lineage, checkpoint=done[-1 - dice.below(min(len(done), 3))])
    elif (
        way == 1
        and target is not None
        and (driver.region, target.lineage, target.checkpoint - 1) in driver.marks
    ):
        target = Position(lineage=target.lineage, checkpoint=target.checkpoint - 1)
    driver.rewind(target)
    return True


def _may_lose(driver: Driver) -> bool:
    """Whether the location may be lost: nobody goes on from it who would have to be told."""
    sound = driver.active and bool(driver.finished) and not driver.in_trouble
    return sound and driver.newer is None and not driver.tied


def _amnesia(driver: Driver, dice: Dice) -> bool:
    """The checkpoint location is deleted, and the query begins again: refused, if anything is committed."""
    if not _may_lose(driver) or driver.root is None:
        return False
    driver.lose_all()
    driver.parent_digest = None
    driver.restart()
    return True


def _set_back(driver: Driver, dice: Dice) -> bool:
    """A backup of the checkpoint location takes its place, and the query plans the next batch anew."""
    if not _may_lose(driver):
        return False
    batches = min(dice.pick((1, 1, 2, 3)), len(driver.finished))
    driver.lose(batches, planned=dice.chance(0.3))
    driver.plan(dice)
    driver.restart()
    if dice.chance(0.3):
        # Somebody sets it back to what is committed, which it may have with another range.
        driver.rewind(driver.committed())
    return True


def _accept(driver: Driver, dice: Dice) -> bool:
    """The checkpoint location was deleted, and the operator accepts it: the source goes on from the ref.

    The old driver may have completed more, and get it committed before the new one starts.
    """
    if not driver.active or driver.root is None or driver.tied:
        return False
    driver.parents = ()
    driver.accept_behind(driver.committed())
    driver.restart()
    return True


def _lose(driver: Driver, dice: Dice) -> bool:
    """An upload never comes: its executor died with the spool."""
    if not driver.active or driver.at_end or driver.in_trouble:
        return False
    driver.run_batch(dice, lose=True)
    return bool(driver.never)


def _old_file(driver: Driver, dice: Dice) -> bool:
    """A writer names a file of another checkpoint, of its own region or of another one."""
    if not driver.active or driver.at_end or driver.in_trouble:
        return False
    world = driver.world
    old = [entry.body for entry in world.log[-80:] if isinstance(entry.body, FilesWritten)]
    if not old:
        return False
    body = dice.pick(old)

    def wrong(at: tuple[str, str, int]) -> list[tuple[Envelope, Body]]:
        return [(world.files_event(at, "w9", world.new_id("a"))[0], body)]

    driver.run_batch(dice, wrong=wrong)
    return True


def _both_attempts(driver: Driver, dice: Dice) -> bool:
    """A completion names the events of two attempts of one task."""
    if not driver.active or driver.at_end or driver.in_trouble:
        return False
    world = driver.world
    driver.run_batch(
        dice, wrong=lambda at: [world.files_event(at, "w9", world.new_id("a")) for _ in range(2)]
    )
    return True


def _misplace(driver: Driver, dice: Dice) -> bool:
    """A writer sends an event for another checkpoint or lineage than the one that names it."""
    if not driver.active or driver.at_end or driver.in_trouble:
        return False
    driver.misplace(dice)
    return True


def _out_of_order(driver: Driver, dice: Dice) -> bool:
    """A completion comes later than those after it."""
    if not driver.active or driver.at_end or driver.in_trouble:
        return False
    driver.run_batch(dice, late=True)
    return True


def _contradict(driver: Driver, dice: Dice) -> bool:
    """The last checkpoint is completed again, for another range of the source."""
    if not driver.active or not driver.finished or driver.completes_later:
        return False
    last = driver.last
    driver.contradict()
    if dice.chance(0.3) and not driver.mislabelled:
        # The job wants to go on from there all the same.
        driver.rewind(Position(lineage=driver.lineage, checkpoint=last))
    return True


def _silence(driver: Driver, dice: Dice) -> bool:
    """Neither progress nor a failure is heard of for a while."""
    if not driver.active:
        return False
    driver.silent_until = driver.world.now + dice.pick((500, 2_000, 10_000))
    return True


def _die(driver: Driver, dice: Dice) -> bool:
    """The region fails, and comes back when it pleases."""
    if driver.stopped:
        return False
    if driver.dead:
        driver.dead = False
        driver.restart()
        return True
    if not driver.active:
        return False
    driver.dead = True
    return True


def _close_early(driver: Driver, dice: Dice) -> bool:
    """The job is stopped behind its last checkpoint; the next run goes on in the same lineage."""
    if not driver.active or not driver.finished or driver.in_trouble:
        return False
    driver.send_late()
    older = driver.last if dice.chance(0.6) else max(0, driver.last - 3)
    driver.say(EventType.REGION_CLOSED, RegionClosed(final=older))
    if dice.chance(0.7):
        driver.restart()
        driver.silent_until = driver.world.now + dice.pick((100, 1_000))
    return True


Wrong = tuple[str, RegionOpened]
"""Lineage, and what is said of it."""


def _wrongs(driver: Driver) -> list[Wrong]:
    """What no opening of this region may say."""
    held, fresh = driver.assignment, driver.world.new_id(f"bad-{driver.region}")
    last = Parent(region=driver.region, lineage=driver.lineage, checkpoint=driver.last)
    unknown = Parent(region=driver.region, lineage="nothing", checkpoint=0)
    other = next((name for name in held.regions if name != driver.region), None)
    more = Assignment(number=held.number, regions=(*held.regions, "r99"))
    without = Assignment(number=held.number + 1, regions=("r99",))

    def opening(*parents: Parent, under: Assignment = held, **said: Any) -> RegionOpened:
        sink = driver.job.sink
        return RegionOpened(assignment=under, parents=parents, bounded=True, sink=sink, **said)

    found: list[Wrong] = [
        (fresh, opening(unknown)),
        (fresh, opening(last, last)),
        (fresh, opening(last, under=more)),
        (fresh, opening(last, under=without)),
    ]
    if other is not None:
        found.append((fresh, opening(last, unknown.model_copy(update={"region": other}))))
    if len(driver.lived) > 1:
        found += [(driver.lived[-2], opening(last))] * 3
    if held.number > 0:
        older = Assignment(number=held.number - 1, regions=held.regions)
        found += [(fresh, opening(last, under=older))] * 2
    if driver.parents and driver.parents[0].region == driver.region:
        named = driver.parents[0]
        beyond = (named.checkpoint if named.checkpoint is not None else -1) + 1
        found.append((fresh, opening(named.model_copy(update={"checkpoint": beyond}))))
    return found + _wrong_locations(driver, fresh, opening)


def _wrong_locations(driver: Driver, fresh: str, opening: Callable[..., RegionOpened]) -> list[Wrong]:
    """Openings of locations that are not what is committed."""
    at = driver.committed()
    if at is None:
        return []
    parent, another = Parent(region=driver.region, lineage=at.lineage, checkpoint=at.checkpoint), "another"
    found = [(fresh, opening(parent, parent_digest=another))] * 2
    if at.lineage == driver.lineage:
        found += [(driver.lineage, opening(planned=at.checkpoint, planned_digest=another))] * 2
        found += [(driver.lineage, opening(planned=at.checkpoint + 1, previous_digest=another))] * 2
        if at.checkpoint > 0:
            found += [(driver.lineage, opening(planned=at.checkpoint - 1))] * 2
    return found


def _bad_opening(driver: Driver, dice: Dice) -> bool:
    """Somebody opens what must not be opened: an old lineage, an old assignment, a parent that never was."""
    if not driver.active or not driver.finished:
        return False
    lineage, body = dice.pick(_wrongs(driver))
    opening = Envelope(driver.world.new_id("o"), EventType.REGION_OPENED, STREAM, driver.region, lineage)
    driver.world.append(opening, body)
    return True


TROUBLES: Final[dict[str, Trouble]] = {
    "speculate": _speculate,
    "redo": _redo,
    "replay": _replay,
    "skip": _skip,
    "zombie": _zombie,
    "duplicate": _duplicate,
    "deliver": _deliver,
    "idle": _idle,
    "idle in a batch": _idle_in_a_batch,
    "hint": _hint,
    "restart": _restart,
    "rewind": _rewind,
    "amnesia": _amnesia,
    "set back": _set_back,
    "accept": _accept,
    "lose": _lose,
    "old file": _old_file,
    "both attempts": _both_attempts,
    "misplace": _misplace,
    "out of order": _out_of_order,
    "contradict": _contradict,
    "silence": _silence,
    "die": _die,
    "close early": _close_early,
    "bad opening": _bad_opening,
}
