"""I12: what must hold once faults have stopped and everything has come to rest."""

from collections.abc import Sequence

from sluicegate.coordinator.core.state import StateRecord
from sluicegate.events.models import CutCommitted, CutVoided, OpeningAnswered, RegionOpened, SavepointTaken
from sluicegate.simulator.driver import Driver
from sluicegate.simulator.fleet import Fleet
from sluicegate.simulator.invariants import Checker
from sluicegate.simulator.violation import Violation
from sluicegate.simulator.world import Item, World


def missing(drivers: Sequence[Driver], checker: Checker) -> set[Item]:
    """The items that were read, or are still to be read, and are not in the table."""
    wanted = {
        (shard, number)
        for driver in drivers
        if not driver.stopped
        for shard in driver.reading
        for number in range(driver.job.items)
    }
    return wanted - set(checker.contents.taken)


def at_rest(drivers: Sequence[Driver], fleet: Fleet, checker: Checker) -> bool:
    """Whether nothing is left to do."""
    return (
        all(driver.done for driver in drivers)
        and all(not node.machine.outbox.busy and node.machine.ready for node in fleet.nodes)
        and all(not node.machine.book.state.pending for node in fleet.nodes)
        and not missing(drivers, checker)
        and all(
            _is_idle(driver, checker) for driver in drivers if not driver.stopped and driver.job.unbounded
        )
    )


def _is_idle(driver: Driver, checker: Checker) -> bool:
    """Whether the log says so too: what arrives late ends idleness, until the next heartbeat."""
    account = checker.reading.regions.get(driver.region)
    return account is not None and account.resting


def no_rest(drivers: Sequence[Driver], fleet: Fleet, checker: Checker) -> Violation:
    """What keeps it from coming to rest."""
    waiting = [
        f"{driver.region} at {driver.lineage}/{driver.batch} {driver.reading}, opened {driver.opened}"
        for driver in drivers
        if not driver.done
    ]
    stalls = [(node.machine.stall_reason, node.machine.retries) for node in fleet.nodes]
    return Violation(
        "I12",
        f"no end: not in the table {sorted(missing(drivers, checker))}; not done: {waiting}; stalls {stalls}",
    )


def check_end(world: World, checker: Checker) -> None:
    """Check that everything was told, and that the record knows all."""
    commits = checker.contents.committed
    told = {due.body.decision for due in world.commits if isinstance(due.body, CutCommitted | CutVoided)}
    if told != set(range(1, commits + 1)):
        raise Violation("I12", f"{commits} commits, but told of {sorted(told)}")
    record = StateRecord.model_validate_json(world.record or "{}")
    if record.state.committed != commits:
        raise Violation("I12", f"{commits} commits, but the record says {record.state.committed}")
    answered = {due.body.opening for due in world.commits if isinstance(due.body, OpeningAnswered)}
    asked = {entry.envelope.id for entry in world.log if isinstance(entry.body, RegionOpened)}
    if asked - answered:
        raise Violation("I12", f"not answered: {sorted(asked - answered)}")
    saved = {due.body.name for due in world.commits if isinstance(due.body, SavepointTaken)}
    if unsaved := set(checker.reading.saved) - saved:
        raise Violation("I12", f"savepoints that are taken and were not told of: {sorted(unsaved)}")
