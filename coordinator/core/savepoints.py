"""Savepoints and drains: what an operator waits for, until it is reached.

A savepoint has a target for each region, and is reached when all positions are at their targets. A drain has
none, and is reached when every region of the assignment has ended. Nothing counts as reached while a decision
has no outcome.
"""

from typing import TYPE_CHECKING, Final

from sluicegate.coordinator.core.state import LogState, Savepoint, reaches
from sluicegate.events.models import Position
from sluicegate.events.problems import Code, Problem

if TYPE_CHECKING:
    from sluicegate.coordinator.core.log import Log

_MOST_SAVEPOINTS: Final = 5
"""Open savepoints and drains: each has a target for every region."""


def order(log: "Log", name: str, *, drain: bool) -> Problem | None:
    """Set the targets: the newest sealed checkpoints, and the next sealed one of every lagging region."""
    state = log.state
    if any(each.name == name for each in state.savepoints):
        return Problem(code=Code.DUPLICATE)
    if len(state.savepoints) >= _MOST_SAVEPOINTS:
        return Problem(
            code=Code.TOO_MANY_SAVEPOINTS, number=_MOST_SAVEPOINTS, names=(state.savepoints[0].name,)
        )
    savepoint = Savepoint(name=name, drain=drain)
    if not drain:
        sealed = {region: log.sealed(region) for region in state.active()}
        savepoint.targets = {region: each[-1].position for region, each in sealed.items() if each}
        # The target of an idle region is its position, which is reached.
        savepoint.awaited = log.lagging()
    state.savepoints.append(savepoint)
    return None


def reached(log: "Log") -> list[Savepoint]:
    """Remove and return the savepoints and drains that the positions reach.

    Nothing counts while a decision has no outcome: a revert would take its positions back.
    """
    state = log.state
    if state.pending is not None:
        return []
    done = [each for each in state.savepoints if _is_reached(log, each)]
    state.savepoints = [each for each in state.savepoints if each not in done]
    return done


def unreached(state: LogState, savepoint: Savepoint) -> list[str]:
    """Return the regions that keep a savepoint or a drain from its end."""
    if savepoint.drain:
        return list(state.active())
    return sorted({*_late(state, savepoint), *(name for name in savepoint.awaited if name in state.regions)})


def _late(state: LogState, savepoint: Savepoint) -> list[str]:
    """Return the regions whose positions do not reach their targets."""
    at = {name: region.position for name, region in state.regions.items()}
    targets = savepoint.targets.items()
    return [name for name, to in targets if not reaches(at.get(name), to.incarnation, to.checkpoint)]


def _is_reached(log: "Log", savepoint: Savepoint) -> bool:
    if savepoint.drain:
        return log.state.assignment is not None and not any(True for _ in log.state.active())
    if any(is_awaited(log, savepoint, name) for name in savepoint.awaited):
        return False
    return not _late(log.state, savepoint)


def is_awaited(log: "Log", savepoint: Savepoint, name: str) -> bool:
    """True if a savepoint waits for the region's next sealed checkpoint."""
    region = log.state.regions.get(name)
    gone = region is not None and region.has_ended
    return name in savepoint.awaited and not gone and not log.is_idle(name)


def retarget(state: LogState, name: str, at: Position) -> None:
    """Make a position the target of every savepoint that waits for the region."""
    for savepoint in state.savepoints:
        if name in savepoint.awaited:
            savepoint.targets[name] = at
            savepoint.awaited = [each for each in savepoint.awaited if each != name]


def cap_targets(state: LogState, name: str, upto: Position | None, end: Position | None) -> None:
    """Move a region's targets to its end, unless `upto` includes them; without an end drop them."""
    for savepoint in state.savepoints:
        target = savepoint.targets.pop(name, None)
        if end is not None and (target is not None or name in savepoint.awaited):
            kept = target if target and upto and target.checkpoint <= upto.checkpoint else None
            savepoint.targets[name] = kept or end
        savepoint.awaited = [each for each in savepoint.awaited if each != name]
