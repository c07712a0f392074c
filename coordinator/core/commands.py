"""Orders of operators, as part of the log."""

from sluicegate.coordinator.core import savepoints, undo
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.state import (
    LogState,
    Proof,
    RegionPhase,
    RegionState,
)
from sluicegate.events.models import StreamCommand, TableVersion
from sluicegate.events.problems import Code, Problem


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
            return undo.withdraw(log, offset, body.number)
        case "revert":
            return undo.order_revert(log, offset, body)
        case "savepoint" | "drain" if body.name is not None:
            return savepoints.order(log, body.name, offset, drain=body.command == "drain")
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
    if body.head is not None and body.table is not None:
        known = state.tables.get(body.table)
        if known is None or known.newest.decision != body.known:
            # The operator looked at an older state.
            return Problem(code=Code.NOT_APPLICABLE, table=body.table)
        newest = TableVersion(decision=body.decision or 0, snapshot=body.head)
        state.tables[body.table] = known.model_copy(update={"newest": newest})
        return None
    if body.head is not None:
        asked = state.unresolved.id if state.unresolved is not None else state.decided + 1
        if body.decision != asked:
            # The operator looked at an older state, so the statement proves nothing now.
            return Problem(code=Code.NOT_APPLICABLE, number=body.decision, other=asked)
        state.proof = Proof(decision=asked, head=body.head)
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
