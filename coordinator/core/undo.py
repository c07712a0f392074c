"""Orders that take back: a decision that the table refuses, and an assignment that has decided nothing yet.

Both put back a state that LogState keeps for it: `Decision.before` until the outcome, `LogState.former` until
the first decided cut. Nothing older comes back.
"""

import hashlib

from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.savepoints import discard, retarget
from sluicegate.coordinator.core.state import Decision, LogState, RegionPhase, RegionState, Revert
from sluicegate.events.models import StreamCommand
from sluicegate.events.problems import Code, Problem

# Revert: an empty commit takes the place of the unresolved decision.


def order_revert(log: Log, offset: int, body: StreamCommand) -> Problem | None:
    """Note the order to give the unresolved decision up; return the reason if it has no effect."""
    decision = log.state.unresolved
    if decision is None or decision.id != body.decision or body.region not in decision.moves:
        return Problem(code=Code.NOT_APPLICABLE, number=body.decision, region=body.region)
    if decision.revert is not None:
        # The first order counts: its publication may be under way.
        return Problem(code=Code.DUPLICATE, number=body.decision)
    decision.revert = Revert(offset=offset, region=body.region)
    return None


def revert_digest(made: Decision) -> str | None:
    """Return the digest of the empty commit that takes a decision's place; None without a valid order."""
    if made.revert is None:
        return None
    text = f"revert/{made.id}/{made.digest}/{made.revert.offset}/{made.revert.region}"
    return hashlib.sha256(text.encode()).hexdigest()


def undone(stream: str, state: LogState, made: Decision) -> LogState:
    """Return the state after a revert of the unresolved decision; `state` stays as it is."""
    log = Log(stream, state.model_copy(deep=True))
    log.state.unresolved = None
    revert(log, made)
    return log.state


def revert(log: Log, made: Decision) -> None:
    """Undo the effects of a decision that was given up.

    Its checkpoints are pending again, except those of incarnations that have ended. The incarnation of the
    named region ends. No other one stands on the decision: a new incarnation begins at a committed position.
    `_restore` comes first: the end of an incarnation then discards everything after the position before.
    """
    state = log.state
    _restore_assignment(log, made)
    for name, region in state.regions.items():
        was = made.before.regions.get(name, RegionState())
        region.watermark, region.source_offsets = was.watermark, was.source_offsets
        region.offsets_kind = was.offsets_kind
        region.listeners, region.fallbacks = was.listeners, was.fallbacks
        region.doubt, region.behind_since, region.moved_at = was.doubt, was.behind_since, was.moved_at
    state.watermark = made.before.watermark
    for name in made.moves:
        region = state.regions[name]
        _restore(log, name, region, made)
        if made.revert is not None and name == made.revert.region:
            _end_reverted(log, name, region, made.id)


def _restore(log: Log, name: str, region: RegionState, made: Decision) -> None:
    """Put one region back to the position before the decision."""
    was, to = made.before.regions[name], made.moves[name]
    region.position = was.position
    if region.removed and region.final is None:
        # The operator removed the region at the position that is undone, which it must reach again.
        region.final = to.checkpoint
    # Savepoints that await the region were ordered after the decision, when all of this was sealed.
    retarget(log.state, name, to, sealed_later=False)
    log.pending[name].restore(log.taken[name])
    if region.removed:
        log.pending[name].keep_sealed()


def _end_reverted(log: Log, name: str, region: RegionState, number: int) -> None:
    """End an incarnation that a revert leaves without its position: the region reads again."""
    log.end_incarnation(name, region.phase if region.removed else RegionPhase.WAITING)
    region.final = None
    if not region.removed:
        region.fault = Problem(code=Code.REVERTED, region=name, number=number)


def _restore_assignment(log: Log, made: Decision) -> None:
    state, before = log.state, made.before
    if not before.provisional or state.assignment is None:
        return
    state.assignment.provisional, state.former = True, before.former
    back = before.former.suspended if before.former is not None else []
    state.ended = {life: name for life, name in state.ended.items() if life not in back}


# Withdraw: the assignment before is in force again.


def withdraw(log: Log, offset: int, number: int) -> Problem | None:
    """Undo the acceptance of an assignment; return the reason if that is impossible."""
    state, current, former = log.state, log.state.assignment, log.state.former
    if current is None or current.number != number or not current.provisional:
        return Problem(code=Code.NOT_APPLICABLE, number=number)
    suspended = former.suspended if former is not None else []
    for name, region in state.regions.items():
        if region.incarnation is not None and region.incarnation.id not in suspended:
            log.remember_ended(name, region)
    for name in current.regions:
        # Nothing of it was decided, so a savepoint waits for nothing of it.
        discard(state, name, None, gone=True)
    state.assignment = former.assignment if former is not None else None
    # A take-over that was sent before a registration stays late, whatever has become of that one.
    registered = {name: region.registered for name, region in state.regions.items()}
    state.regions, state.former = former.regions if former is not None else {}, None
    state.withdrawn = max(state.withdrawn, number)
    log.pending.clear()
    for name, region in state.regions.items():
        region.registered = max(region.registered, registered.get(name, -1))
        if region.accepts_checkpoints and region.incarnation is not None:
            # Events that a zombie of it sent meanwhile had no effect. A recovery reads them again.
            region.incarnation.from_offset = offset
            log.begin_pending(name, region)
    return None
