"""Decisions and their outcomes: the changes of the log's state, and the revert that undoes them."""

import hashlib

from sluicegate.coordinator.core import cuts, watermarks
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.log_state import Before, Decision, LogState, RegionPhase, RegionState
from sluicegate.coordinator.core.pending import Sealed
from sluicegate.events.models import CutAbandoned, CutCommitted, CutDecided, CutReverted
from sluicegate.events.problems import Code, Problem


def decide(log: Log, offset: int, body: CutDecided) -> Problem | None:
    """Apply a decision: positions, watermark and counters move at its offset.

    Return the reason if it is void.
    """
    if (problem := cuts.problem_of(log, body)) is not None:
        return problem
    state, moves = log.state, cuts.moves_of(log, body.cut)
    fallbacks = cuts.fallbacks(log, moves)
    # A region that ends with this cut still counts: the cut contains rows of it.
    counted = {*log.expected(), *moves}
    content = cuts.included(log, moves)
    flat = [each.checkpoint for checkpoints in content.values() for each in checkpoints]
    parts = [part for entry in flat for part in entry.named]
    before = Before(
        regions={name: region.model_copy() for name, region in state.regions.items()},
        watermark=state.watermark,
        provisional=state.assignment is not None and state.assignment.provisional,
        former=state.former,
    )
    made = Decision(
        id=body.decision,
        digest=body.digest,
        offset=offset,
        cut=body.cut,
        fallbacks={name: log.position(name) for name in fallbacks},
        parts=[part.offset for part in parts],
        files=sum(part.files for part in parts),
        first_offset=offset,
        head=body.head,
        before=before,
    )
    _count(log, fallbacks, moves)
    _advance(log, content)
    first = [each.first_offset() for each in log.decided.values()]
    made.first_offset = min(each for each in (offset, *first) if each is not None)
    _keep_assignment(log)
    state.watermark = made.watermark = _watermark(log, counted)
    state.decided, state.attempt, state.pending = made.id, 0, made
    return None


def _keep_assignment(log: Log) -> None:
    """End the time in which the assignment can be withdrawn: this is its first decision, or a later one."""
    state = log.state
    for name, region in state.former.regions.items() if state.former is not None else ():
        if region.live:
            log.remember_ended(name, region)
    state.former = None
    if state.assignment is not None:
        state.assignment.provisional = False


def _count(log: Log, fallbacks: list[str], moves: cuts.Moves) -> None:
    for name in (*fallbacks, *moves):
        # The first cut of an assignment is full, so each region has registered, or was removed.
        region = log.state.regions[name]
        region.fallbacks = 0 if name in moves else region.fallbacks + 1


def _advance(log: Log, content: dict[str, list[Sealed]]) -> None:
    """Move the positions, with everything that the included completions state."""
    log.decided = {}
    for name, checkpoints in content.items():
        region = log.state.regions[name]
        log.decided[name] = log.pending[name].split(checkpoints[-1].position)
        for each in checkpoints:
            _advance_to(region, each, watermarks.problem_of(name, each, log.state.policy))


def _advance_to(region: RegionState, sealed: Sealed, doubt: Problem | None) -> None:
    """Move to the next checkpoint; `doubt` is the problem of its watermark."""
    body, before = sealed.checkpoint.body, region.position
    region.position, region.doubt = sealed.position, doubt
    if body is None:
        return
    same = before is not None and before.incarnation == sealed.position.incarnation
    if not same:
        # What a former incarnation stated is no promise about the sources that this one reads.
        region.watermark = None
    if body.watermark is not None and (doubt is None or doubt.code is not Code.WATERMARK_IGNORED):
        # A writer sends each checkpoint's own maximum, which may be lower than the one before.
        lower = region.watermark is not None and body.watermark < region.watermark
        region.watermark = region.watermark if lower else body.watermark
    if body.listeners:
        region.listeners = {**region.listeners, **body.listeners}
    region.source_offsets = body.source_offsets


def _watermark(log: Log, names: set[str]) -> int | None:
    """Return the maximum of the former watermark and the minimum over these regions.

    Without a watermark of one of them, the former one stays.
    """
    former, regions = log.state.watermark, log.state.regions
    known = [at for name in names if name in regions and (at := regions[name].watermark) is not None]
    if not names or len(known) < len(names):
        return former
    return min(known) if former is None else max(former, min(known))


def abandon(log: Log, body: CutAbandoned) -> Problem | None:
    """Apply an abandoned attempt; return the reason if it is void.

    Forced ones reset all counters, the others raise them.
    """
    if (problem := cuts.abandonment_problem(log, body)) is not None:
        return problem
    state = log.state
    if body.kind == "forced":
        for region in state.regions.values():
            region.fallbacks = 0
    else:
        for name in body.regions:
            state.regions.setdefault(name, RegionState()).fallbacks += 1
    state.attempt += 1
    return None


# --- outcomes -------------------------------------------------------------------------------------


def outcome_problem(log: Log, body: CutCommitted | CutReverted) -> Problem | None:
    """Return the reason for which an outcome is void; None if it is valid. Time is no reason."""
    made = log.state.pending
    if made is None or made.id != body.decision:
        return Problem(code=Code.OUT_OF_ORDER, number=body.decision, other=log.state.decided)
    wanted = made.digest if isinstance(body, CutCommitted) else revert_digest(made)
    if body.digest != wanted:
        return Problem(code=Code.OTHER_DIGEST, number=body.decision)
    return None


def resolve(log: Log, body: CutCommitted | CutReverted) -> Problem | None:
    """Apply an outcome: the decision is visible, or it was given up. Return the reason if it is void."""
    state, made = log.state, log.state.pending
    if (problem := outcome_problem(log, body)) is not None or made is None:
        return problem
    state.pending = None
    state.snapshot, state.table = body.snapshot, state.table or body.table
    if isinstance(body, CutReverted):
        _revert(log, made)
    else:
        log.forget_ended(made.moves.keys())
    log.decided = {}
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
    log.state.pending = None
    _revert(log, made)
    return log.state


def _revert(log: Log, made: Decision) -> None:
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
        region.listeners, region.fallbacks = was.listeners, was.fallbacks
        region.doubt = was.doubt
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
    log.retarget(name, to)
    log.pending[name].restore(log.decided[name])
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
