"""Savepoints and drains: orders that stay open until they are reached.

Neither delays a cut. The targets of a savepoint are lower bounds. They are what was sealed at the order; of a
region with nothing sealed its position, and the first checkpoint that it seals afterwards, unless it is idle.
The savepoint is reached when every position has reached its target. What was sealed at the order is committed
then, except what an order, a revert or a new incarnation has discarded since. A drain has no targets. It is
reached at the end of the stream, when every region of the assignment has ended.
"""

from typing import TYPE_CHECKING, Final

from sluicegate.coordinator.core.state import LogState, Savepoint, reaches
from sluicegate.events.models import Position
from sluicegate.events.problems import Code, Problem

if TYPE_CHECKING:
    from sluicegate.coordinator.core.log import Log

_MOST_SAVEPOINTS: Final = 5
"""Open savepoints and drains: each has a target for every region."""


def order(log: "Log", name: str, offset: int, *, drain: bool) -> Problem | None:
    """Open a savepoint or a drain by the order at this offset; return the reason if that is impossible."""
    state = log.state
    if any(each.name == name for each in state.savepoints):
        return Problem(code=Code.DUPLICATE)
    if len(state.savepoints) >= _MOST_SAVEPOINTS:
        return Problem(
            code=Code.TOO_MANY_SAVEPOINTS, number=_MOST_SAVEPOINTS, names=(state.savepoints[0].name,)
        )
    savepoint = Savepoint(name=name, offset=offset, drain=drain)
    if not drain:
        # An unresolved decision may have taken all that was sealed, and ended a region with it; a revert may
        # give that back.
        for region in {**dict.fromkeys(state.active()), **log.taken_checkpoints}:
            sealed = log.sealed(region)
            if (at := sealed[-1].position if sealed else state.region(region).position) is not None:
                savepoint.targets[region] = at
        savepoint.awaited = log.lagging()
    state.savepoints.append(savepoint)
    return None


def reached(log: "Log") -> list[Savepoint]:
    """Remove and return the savepoints and drains that are reached.

    Nothing counts while a decision has no outcome: a revert would take its positions back. A target that is
    committed is reached for ever, whatever becomes of its incarnation.
    """
    state = log.state
    if state.unresolved is not None or not state.savepoints:
        return []
    for each in state.savepoints:
        late = _late(state, each)
        each.targets = {name: at for name, at in each.targets.items() if name in late}
    done = [each for each in state.savepoints if _is_reached(log, each)]
    state.savepoints = [each for each in state.savepoints if each not in done]
    return done


def unreached(state: LogState, savepoint: Savepoint) -> list[str]:
    """Return the regions that keep a savepoint or a drain from its end."""
    if savepoint.drain:
        return list(state.active())
    return sorted({*_late(state, savepoint), *(name for name in savepoint.awaited if name in state.regions)})


def lacking(log: "Log", savepoint: Savepoint) -> list[str]:
    """Return the regions of which a savepoint needs another checkpoint; of a drain, those that continue.

    The others that are unreached wait for the commit alone.
    """
    found = unreached(log.state, savepoint)
    if savepoint.drain:
        return found
    sealed = {
        name for name in found for each in log.sealed(name) if each.position == savepoint.targets.get(name)
    }
    return [name for name in found if name not in sealed]


def _late(state: LogState, savepoint: Savepoint) -> list[str]:
    """Return the regions whose positions do not reach their targets."""
    at = {name: region.position for name, region in state.regions.items()}
    targets = savepoint.targets.items()
    return [name for name, to in targets if not reaches(at.get(name), to.incarnation, to.checkpoint)]


def _is_reached(log: "Log", savepoint: Savepoint) -> bool:
    if savepoint.drain:
        return log.state.assignment is not None and not any(True for _ in log.state.active())
    # A region that has ended, or that is idle, seals nothing more for it.
    ended = (log.state.region(name).has_ended or log.is_idle(name) for name in savepoint.awaited)
    return all(ended) and not _late(log.state, savepoint)


def retarget(state: LogState, name: str, at: Position, *, sealed_later: bool) -> None:
    """Make a position the target of every savepoint that waits for the region.

    `sealed_later`: it was sealed after the orders of these savepoints.
    """
    for savepoint in state.savepoints:
        if name in savepoint.awaited:
            savepoint.targets[name] = at
            if sealed_later:
                savepoint.sealed_later.append(name)
            savepoint.awaited = [each for each in savepoint.awaited if each != name]


def discard(state: LogState, name: str, upto: Position | None, *, gone: bool) -> None:
    """Lower the targets of a region of which everything sealed after `upto` is discarded.

    `upto` None: all of it, so its position is the target. A revert takes that back, and the region must reach
    it again. `gone`: the region seals nothing more.
    """
    end = upto if upto is not None else state.region(name).position
    for savepoint in state.savepoints:
        target = savepoint.targets.get(name)
        if target is not None and (end is None or not reaches(end, target.incarnation, target.checkpoint)):
            if name not in savepoint.sealed_later:
                savepoint.discarded = sorted({*savepoint.discarded, name})
            del savepoint.targets[name]
            if end is not None:
                savepoint.targets[name] = end
        if gone:
            savepoint.awaited = [each for each in savepoint.awaited if each != name]
