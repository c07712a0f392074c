"""Cuts: the choice of the next one, and the validity of a logged one.

A commit's content is a function of the log up to its decision. Time triggers partial cuts, and never makes a
decision valid. Fallback, its maximum and the forced full cut follow the Flink discussion of
independent checkpoints per pipeline region.
"""

import hashlib
import json
from collections.abc import Container, Mapping, Sequence
from fractions import Fraction
from itertools import takewhile
from math import floor
from types import MappingProxyType
from typing import Final, Literal

from sluicegate.coordinator.core import texts
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.log_state import reaches
from sluicegate.coordinator.core.pending import Sealed
from sluicegate.events.models import CutAbandoned, CutDecided, Position
from sluicegate.events.problems import Code, Problem

Moves = Mapping[str, Position]
"""By region, the sealed position that it moves to."""
_UNLIMITED: Final[Moves] = MappingProxyType({})


# --- choosing -------------------------------------------------------------------------------------


def choose(
    log: Log, excluded: Container[str] = (), *, expired: bool = False, upto: Moves = _UNLIMITED
) -> CutDecided | CutAbandoned | None:
    """Return the next cut, or the attempt to abandon; None while regions are waited for.

    `excluded` are regions whose files the table would not take. `expired`: the alignment timeout has passed,
    so lagging regions fall back. `upto`: the last checkpoint of a region that fits into the cut.
    """
    state = log.state
    if state.assignment is None or state.policy is None or state.paused or state.pending is not None:
        return None
    moves, is_full = _next_moves(log, excluded, upto)
    if is_full:
        return decision(log, moves)
    if state.assignment.provisional:
        return None
    lacking = fallbacks(log, moves)
    if lacking and not (expired and may_be_partial(log)):
        return None
    # The regions that do not move fall back, unless there are too many of them, or the cut must be full.
    if _fullness_problem(log, moves) is not None:
        return _abandon(log, "forced" if is_forced(log) else "ratio", lacking)
    return decision(log, moves) if moves else None


def next_moves(log: Log, excluded: Container[str] = ()) -> Moves:
    """Return the moves of the next cut, once all timeouts have passed, and if everything fits into it."""
    return _next_moves(log, excluded, _UNLIMITED)[0]


def _next_moves(log: Log, excluded: Container[str], upto: Moves) -> tuple[Moves, bool]:
    """Return the moves of the next cut, and True if it is a full one."""
    whole = texts.fitting(log, _frontiers(log, excluded, upto))
    # A full cut first: it is the only one that may reach the barrier.
    if whole and not unmoved(log, whole) and _fullness_problem(log, whole) is None:
        return whole, True
    moves = {name: at for name in whole if (at := _before_barrier(log, name, upto)) is not None}
    return texts.fitting(log, moves), False


def movable(log: Log, excluded: Container[str] = ()) -> list[str]:
    """Return the regions that could move in a partial cut; their alignment timeouts count."""
    whole = texts.fitting(log, _frontiers(log, excluded))
    return [name for name in whole if _before_barrier(log, name) is not None]


def _frontiers(log: Log, excluded: Container[str], upto: Moves = _UNLIMITED) -> dict[str, Position]:
    """Return, by region, its newest sealed position that fits, if a cut may move it there."""
    fitting = {name: _fitting(log, name, upto) for name in sorted(log.state.regions)}
    newest = {name: sealed[-1].position for name, sealed in fitting.items() if sealed}
    return {
        name: at
        for name, at in newest.items()
        if name not in excluded and _move_problem(log, name, at) is None
    }


def _fitting(log: Log, name: str, upto: Moves) -> Sequence[Sealed]:
    """Return the sealed checkpoints of a region that fit into a cut."""
    sealed, last = log.sealed(name), upto.get(name)
    if last is None or not any(each.position == last for each in sealed):
        return sealed
    return [each for each in sealed if each.position.checkpoint <= last.checkpoint]


def _before_barrier(log: Log, name: str, upto: Moves = _UNLIMITED) -> Position | None:
    """Return the last sealed position that is no target, and follows none; None if there is none."""
    fitting = _fitting(log, name, upto)
    before = list(takewhile(lambda each: not log.at_barrier(name, each.position), fitting))
    return before[-1].position if before else None


def _abandon(log: Log, kind: Literal["forced", "ratio"], lacking: list[str]) -> CutAbandoned:
    decision, attempt = log.state.decided + 1, log.state.attempt + 1
    return CutAbandoned(decision=decision, attempt=attempt, kind=kind, regions=tuple(lacking))


def decision(log: Log, moves: Moves) -> CutDecided:
    """Return the event of the decision for these moves; the caller adds the table's head."""
    return CutDecided(
        decision=log.state.decided + 1,
        cut=whole_cut(log, moves),
        final=reaches_barrier(log, moves),
        digest=digest_of(log, moves),
    )


# --- fallbacks ------------------------------------------------------------------------------------


def unmoved(log: Log, moves: Container[str]) -> list[str]:
    """Return the expected regions that a cut does not move; a full cut has none."""
    return [name for name in log.expected() if name not in moves]


def fallbacks(log: Log, moves: Container[str]) -> list[str]:
    """Return the regions that fall back to their position with a cut: unmoved, and not held by a barrier."""
    return [name for name in unmoved(log, moves) if not log.is_held(name)]


def most_fallbacks(log: Log) -> int:
    """Return how many regions may fall back with one cut, by the logged policy."""
    policy = log.state.policy
    return floor(Fraction(str(policy.max_failure_ratio if policy else 1.0)) * sum(1 for _ in log.expected()))


def is_forced(log: Log) -> bool:
    """True if the next cut must be full: a region fell back as often in a row as it may."""
    policy, regions = log.state.policy, log.state.regions
    most = policy.max_consecutive_fallbacks if policy else 1
    return any(name in regions and regions[name].fallbacks >= most for name in log.expected())


def single_region_reason(log: Log) -> str | None:
    """Return the reason for which the stream is one failure domain; None if its regions are independent."""
    state = log.state
    if state.policy is not None and state.policy.single_region is not None:
        return state.policy.single_region
    active = (state.regions[name] for name in state.active() if name in state.regions)
    return next((each.single_region for each in active if each.single_region), None)


def may_be_partial(log: Log) -> bool:
    """True if a cut may leave regions at their positions."""
    policy = log.state.policy
    return policy is not None and policy.partial == "allow" and single_region_reason(log) is None


# --- barriers -------------------------------------------------------------------------------------


def reaches_barrier(log: Log, moves: Moves) -> bool:
    """True if a move reaches a target, which only full cuts may."""
    return any(log.at_barrier(name, at) for name, at in moves.items())


def barrier_reached(log: Log, moves: Moves) -> bool:
    """True if these moves reach every target, or none."""
    if not reaches_barrier(log, moves):
        return True
    state = log.state
    if any(log.is_awaited(each, name) for each in state.savepoints for name in each.awaited):
        return False
    return all(reaches(moves.get(name), *target) for name in state.regions for target in log.targets(name))


# --- validity -------------------------------------------------------------------------------------


def problem_of(log: Log, body: CutDecided) -> Problem | None:
    """Return the reason for which a decision is void at the current offset; None if it is valid."""
    number = body.decision
    if problem := _order_problem(log, number):
        return problem
    moves = moves_of(log, body.cut)
    for name, at in moves.items():
        if problem := _move_problem(log, name, at):
            return problem
    if not moves:
        return Problem(code=Code.NOTHING_MOVES, number=number)
    if problem := texts.problem_of(log, moves):
        return problem
    # The vector names the regions that stay, too: a reader of one event knows the whole cut.
    if body.cut != whole_cut(log, moves):
        return Problem(code=Code.INCOMPLETE_CUT, number=number)
    if problem := _fullness_problem(log, moves):
        return problem
    if body.final != reaches_barrier(log, moves) or body.digest != digest_of(log, moves):
        return Problem(code=Code.OTHER_DIGEST, number=number)
    return None


def _order_problem(log: Log, number: int) -> Problem | None:
    """Return the reason if the next decision is another one, or cannot be made or abandoned now."""
    state = log.state
    if number != state.decided + 1:
        return Problem(code=Code.OUT_OF_ORDER, number=number, other=state.decided)
    if state.pending is not None:
        return Problem(code=Code.UNRESOLVED, number=number, other=state.pending.id)
    return Problem(code=Code.PAUSED, number=number) if state.paused else None


def _move_problem(log: Log, name: str, at: Position) -> Problem | None:
    region = log.state.regions.get(name)
    # The newest first: a coordinator chooses that one.
    sealed = any(each.position == at for each in reversed(log.sealed(name)))
    if region is None or not sealed or not log.may_move(name, at):
        return Problem(code=Code.NOT_SEALED, region=name, checkpoint=at.checkpoint)
    if region.fault is not None:
        return Problem(code=Code.REGION_STALLED, region=name)
    return None


def _fullness_problem(log: Log, moves: Moves) -> Problem | None:
    """Return the reason if too few regions move with the next decision."""
    assignment, number = log.state.assignment, log.state.decided + 1
    provisional = assignment is not None and assignment.provisional
    if provisional or reaches_barrier(log, moves):
        lacking = unmoved(log, moves)
        if lacking or not barrier_reached(log, moves):
            return Problem(code=Code.NOT_FULL, number=number, names=tuple(lacking))
        return None
    lacking = fallbacks(log, moves)
    if lacking and (not may_be_partial(log) or is_forced(log)):
        return Problem(code=Code.NOT_FULL, number=number, names=tuple(lacking))
    if len(lacking) > most_fallbacks(log):
        return Problem(code=Code.TOO_MANY_BEHIND, number=number, names=tuple(lacking))
    return None


def abandonment_problem(log: Log, body: CutAbandoned) -> Problem | None:
    """Return the reason for which an abandoned attempt is void at the current offset."""
    state, number = log.state, body.decision
    if body.attempt != state.attempt + 1:
        return Problem(code=Code.OUT_OF_ORDER, number=number, other=state.decided)
    if problem := _order_problem(log, number):
        return problem
    forced = is_forced(log)
    if not may_be_partial(log) or (body.kind == "forced") != forced:
        return Problem(code=Code.NOT_FORCED, number=number)
    named = {*body.regions}
    if not named or not {*log.lagging()} <= named <= {*fallbacks(log, ())}:
        return Problem(code=Code.NOT_APPLICABLE, number=number, names=body.regions)
    if not forced and len(body.regions) <= most_fallbacks(log):
        return Problem(code=Code.NOT_FORCED, number=number, names=body.regions)
    return None


# --- content --------------------------------------------------------------------------------------


def whole_cut(log: Log, moves: Moves) -> dict[str, Position]:
    """Return the whole vector: the moves, and the positions of the regions that stay."""
    return dict(sorted({**log.state.cut, **moves}.items()))


def moves_of(log: Log, cut: Moves) -> dict[str, Position]:
    """Return the components of a cut that differ from the newest decided one."""
    return {name: at for name, at in cut.items() if at != log.position(name)}


def included(log: Log, moves: Moves) -> dict[str, list[Sealed]]:
    """Return, by region, the sealed checkpoints that the moves include, in commit order."""
    return {name: log.pending[name].upto(moves[name]) for name in sorted(moves) if name in log.pending}


def digest_of(log: Log, moves: Moves) -> str:
    """Return the digest of the completions that the moves include."""
    content = [
        [name, each.position.incarnation, each.position.checkpoint, each.position.digest, _events(each)]
        for name, checkpoints in included(log, moves).items()
        for each in checkpoints
    ]
    text = json.dumps([log.stream, content], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _events(sealed: Sealed) -> list[str]:
    body = sealed.checkpoint.body
    return list(dict.fromkeys(body.events)) if body is not None else []
