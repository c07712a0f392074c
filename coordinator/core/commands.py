"""Orders of operators, as part of the log."""

from typing import Final

from sluicegate.coordinator.core import registration
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.state import (
    LogState,
    Proof,
    RegionPhase,
    RegionState,
    Revert,
    Savepoint,
    reaches,
)
from sluicegate.events.models import StreamCommand
from sluicegate.events.problems import Code, Problem

_MOST_SAVEPOINTS: Final = 5
"""Open savepoints and drains: each has a target for every region."""


def obey(log: Log, offset: int, body: StreamCommand) -> Problem | None:
    """Apply an order; return the reason if it has no effect."""
    state, problem = log.state, Problem(code=Code.NOT_APPLICABLE, region=body.region, number=body.number)
    current = state.assignment is not None and state.assignment.number == body.number
    match body.command:
        case "pause" | "resume":
            return _pause(log, body)
        case "remove" | "discard" if body.region is not None and current:
            return _remove(log, body.region, discard=body.command == "discard")
        case "close" if state.assignment is not None and current:
            for name in state.assignment.regions:
                _remove(log, name, discard=False)
            return None
        case "withdraw" if body.number is not None:
            return registration.withdraw(log, offset, body.number)
        case "revert":
            return _revert(log, offset, body)
        case "savepoint" | "drain" if body.name is not None:
            return _savepoint(log, body.name, drain=body.command == "drain")
        case "cancel" if any(each.name == body.name for each in state.savepoints):
            state.savepoints = [each for each in state.savepoints if each.name != body.name]
            return None
        case "skip":
            return _skip(state, body)
    return problem


def _pause(log: Log, body: StreamCommand) -> Problem | None:
    state = log.state
    if body.command == "pause":
        state.paused = True
        return None
    if body.head is not None:
        asked = state.pending.id if state.pending is not None else state.decided + 1
        if body.decision != asked:
            # The operator looked at an older state, so the statement proves nothing now.
            return Problem(code=Code.NOT_APPLICABLE, number=body.decision, other=asked)
        if not body.committed:
            state.proof = Proof(decision=asked, head=body.head)
        elif state.pending is not None:
            state.pending.vouched = body.head
        else:
            return Problem(code=Code.NOT_APPLICABLE, number=body.decision)
    state.paused = False
    return None


def _skip(state: LogState, body: StreamCommand) -> Problem | None:
    """Note the order of a record that was skipped for it; every reader has known the order before."""
    for each in state.skipped:
        if (each.offset, each.digest) == (body.offset, body.digest):
            again, each.ordered = each.ordered, True
            return Problem(code=Code.DUPLICATE, number=body.offset) if again else None
    return Problem(code=Code.NOT_APPLICABLE, number=body.offset)


def _remove(log: Log, name: str, *, discard: bool) -> Problem | None:
    """Close a region at its last sealed checkpoint (discard: at its position), and end its incarnation."""
    state = log.state
    if state.assignment is None or name not in state.assignment.regions:
        return Problem(code=Code.NOT_APPLICABLE, region=name)
    region = state.regions.setdefault(name, RegionState())
    if region.removed and not discard:
        return Problem(code=Code.NOT_APPLICABLE, region=name)
    sealed = [] if discard else log.sealed(name)
    end = sealed[-1].position if sealed else None
    log.end_incarnation(name, RegionPhase.REMOVED, upto=end)
    region.final = end.checkpoint if end is not None else None
    return None


def _revert(log: Log, offset: int, body: StreamCommand) -> Problem | None:
    decision = log.state.pending
    if decision is None or decision.id != body.decision or body.region not in decision.moves:
        return Problem(code=Code.NOT_APPLICABLE, number=body.decision, region=body.region)
    if decision.revert is not None:
        # The first order counts: its publication may be under way.
        return Problem(code=Code.DUPLICATE, number=body.decision)
    decision.revert = Revert(offset=offset, region=body.region)
    return None


def _savepoint(log: Log, name: str, *, drain: bool) -> Problem | None:
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


def reached(log: Log) -> list[Savepoint]:
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


def _is_reached(log: Log, savepoint: Savepoint) -> bool:
    if savepoint.drain:
        return log.state.assignment is not None and not any(True for _ in log.state.active())
    if any(log.is_awaited(savepoint, name) for name in savepoint.awaited):
        return False
    return not _late(log.state, savepoint)
