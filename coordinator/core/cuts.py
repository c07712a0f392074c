"""Cuts: the choice of the next one, and the validity of a logged one.

A commit's content is a function of the log up to its decision. Time triggers partial cuts, and never makes a
decision valid. Fallback, its maximum and the forced full cut follow the Flink discussion of
independent checkpoints per pipeline region.
"""

import hashlib
import json
from collections.abc import Container, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from math import floor
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from sluicegate.coordinator.core import undo
from sluicegate.coordinator.core.log import Log, Sealed
from sluicegate.coordinator.core.state import Before, Decision, LogState, RegionState, reaches
from sluicegate.events.models import (
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    Position,
    StreamPolicy,
    TableVersion,
)
from sluicegate.events.problems import Code, Problem

# Texts of all regions: source offsets, and the state of listeners. Their sum has a limit.
#
# A state record has them all, up to four times while a decision is unresolved, and has to fit into one
# message. So no cut may take more of them along than that. The limit counts at the decision, by the log
# alone, so all readers agree. A region with too much stays at its position, with a condition, and the
# others commit.

MOST: Final = 256 << 10
"""Bytes of JSON of all texts. A topic takes messages of 1 MiB by default."""
_LONGEST: Final = 6
"""Bytes of JSON that one character has at most."""

_Texts = tuple[str | None, Mapping[str, str]]
"""Source offsets and states of listeners, at one position."""


def texts_problem(log: Log, moves: Mapping[str, Position]) -> Problem | None:
    """Return the reason if a cut would have too much text; one with less than before never has."""
    return next(iter(_too_large(log, moves)), None)


def problems(log: Log) -> list[Problem]:
    """Return the regions of which the newest sealed checkpoint has too much text."""
    moves = {name: sealed[-1].position for name in log.state.regions if (sealed := log.known(name))}
    return _too_large(log, moves)


def _too_large(log: Log, moves: Mapping[str, Position]) -> list[Problem]:
    """Return the moves that do not fit: those that add most, so that as many as possible do.

    Each text is measured once: regions are many, and texts are long.
    """
    texts = _after(log, moves)
    if _fits(texts):
        return []
    before = {name: _size(each) for name, each in _after(log, {}).items()}
    growth = {name: _size(texts[name]) - before[name] for name in moves}
    total = sum(before.values())
    limit, found = max(MOST, total), list[Problem]()
    for name in sorted(moves, key=lambda name: growth[name]):
        if total + growth[name] <= limit:
            total += growth[name]
        else:
            number = total + growth[name]
            found.append(Problem(code=Code.TEXTS_TOO_LARGE, region=name, number=number, other=MOST))
    return found


def _after(log: Log, moves: Mapping[str, Position]) -> dict[str, _Texts]:
    """Return the texts of all regions after these moves."""
    return {
        name: _moved(region, log.pending[name].upto(moves[name]))
        if name in moves and name in log.pending
        else (region.source_offsets, region.listeners)
        for name, region in log.state.regions.items()
    }


def _moved(region: RegionState, sealed: Sequence[Sealed]) -> _Texts:
    offsets, listeners = region.source_offsets, region.listeners
    for each in sealed:
        if (body := each.checkpoint.body) is not None:
            offsets = body.source_offsets
            listeners = {**listeners, **body.listeners}
    return offsets, listeners


def _fits(texts: Mapping[str, _Texts]) -> bool:
    """True if the number of characters alone shows that the texts fit."""
    found = 0
    for offsets, listeners in texts.values():
        found += len(offsets or "") + sum(map(len, chain.from_iterable(listeners.items())))
    return found * _LONGEST <= MOST


def _size(texts: _Texts) -> int:
    return len(json.dumps(texts, ensure_ascii=False).encode())


# Watermarks that no driver can mean: they count as none, or are shown.
#
# A time is no reason to refuse a completion, which its driver believes in the log. But the stream's
# watermark never falls, so one event time of the year 2099 would end a day before its rows are there, for
# ever.
#
# The comparison is with the append time of the completion and with the logged policy, as of the decision.
# Every reader has both, so all of them agree.

_FIRST: Final = -62_135_596_800_000
"""The beginning of the year 1, in Unix milliseconds."""
_LAST: Final = 253_402_300_799_999
"""The end of the year 9999."""
_DAY: Final = 86_400_000
_YEAR: Final = 365 * _DAY


def watermark_problem(region: str, sealed: Sealed, policy: StreamPolicy) -> Problem | None:
    """Return the problem of a completion's watermark: it counts as none, or its unit is doubtful."""
    entry, at = sealed.checkpoint, sealed.position
    mark = entry.body.watermark if entry.body is not None else None
    if mark is None:
        return None
    code = Code.WATERMARK_IGNORED
    if _FIRST <= mark <= min(_LAST, entry.completed_at + policy.future_limit):
        if not _is_seconds(mark, entry.completed_at):
            return None
        code = Code.WATERMARK_IN_SECONDS
    return Problem(
        code=code,
        region=region,
        incarnation=at.incarnation,
        checkpoint=at.checkpoint,
        names=(str(mark),),
    )


def _is_seconds(mark: int, time: int) -> bool:
    """True if a watermark is of 1970, and right now if it counts seconds. Rows of that day are unlikely."""
    return time > _YEAR and abs(mark * 1_000 - time) <= _DAY


Moves = Mapping[str, Position]
"""By region, the sealed position that it moves to."""
_UNLIMITED: Final[Moves] = MappingProxyType({})


class Waited(NamedTuple):
    """Permissions that follow from the wait for lagging regions; time alone gives them."""

    partial: bool = False
    """The cut may be taken without them: each has had its time, or has given its answer."""
    forced: bool = False
    """A forced attempt may be abandoned."""
    ratio: bool = False
    """An attempt that leaves too many behind may be abandoned."""


NOT_WAITED: Final = Waited()


# --- choosing -------------------------------------------------------------------------------------


def choose(
    log: Log, excluded: Container[str] = (), *, waited: Waited = NOT_WAITED, upto: Moves = _UNLIMITED
) -> CutDecided | CutAbandoned | None:
    """Return the next cut, or the attempt to abandon; None while regions are waited for.

    `excluded` are regions whose files the table would not take. `upto`: the last checkpoint of a region that
    fits into the cut.
    """
    state = log.state
    if state.assignment is None or state.paused or state.unresolved is not None:
        return None
    moves = next_moves(log, excluded, upto)
    if not moves:
        return None
    lacking = falling_back(log, moves)
    if not lacking:
        return decision(log, moves)
    if state.assignment.provisional or not may_be_partial(log):
        return None
    # The regions that do not move fall back, unless there are too many of them, or the cut must be full.
    if is_forced(log):
        return _abandon(log, "forced", lacking) if waited.forced else None
    if len(lacking) > most_fallbacks(log):
        return _abandon(log, "ratio", lacking) if waited.ratio else None
    return decision(log, moves) if waited.partial else None


def cannot_move(log: Log, name: str, excluded: Container[str]) -> bool:
    """True if a lagging region has given its answer: nothing of it can enter a cut soon."""
    return name in excluded or log.state.region(name).is_absent or log.unknown_table(name) is not None


def next_moves(log: Log, excluded: Container[str] = (), upto: Moves = _UNLIMITED) -> Moves:
    """Return the moves of the next cut, once all timeouts have passed.

    That is, for each region that a cut may move, its newest sealed position that fits.
    """
    moves: dict[str, Position] = {}
    for name in sorted(log.state.regions):
        sealed = log.known(name)
        if sealed and name in upto:
            sealed = log.pending[name].upto(upto[name])[: len(sealed)]
        if sealed and name not in excluded and _move_problem(log, name, sealed[-1].position) is None:
            moves[name] = sealed[-1].position
    left = {each.region for each in _too_large(log, moves)}
    return {name: at for name, at in moves.items() if name not in left}


def _abandon(log: Log, kind: Literal["forced", "ratio"], lacking: list[str]) -> CutAbandoned:
    decision, attempt = log.state.decided + 1, log.state.attempt + 1
    return CutAbandoned(decision=decision, attempt=attempt, kind=kind, regions=tuple(lacking))


def decision(log: Log, moves: Moves) -> CutDecided:
    """Return the event of the decision for these moves; the caller adds the table's head."""
    return CutDecided(
        decision=log.state.decided + 1,
        cut=whole_cut(log, moves),
        digest=digest_of(log, moves),
    )


# --- fallbacks ------------------------------------------------------------------------------------


def falling_back(log: Log, moves: Container[str]) -> list[str]:
    """Return the regions that fall back to their position with a cut; a full cut has none."""
    return [name for name in log.expected() if name not in moves]


def most_fallbacks(log: Log) -> int:
    """Return how many regions may fall back with one cut, by the logged policy."""
    return floor(Fraction(str(log.state.policy.max_failure_ratio)) * sum(1 for _ in log.expected()))


def is_forced(log: Log) -> bool:
    """True if the next cut must be full: a region fell back as often in a row as it may."""
    most = log.state.policy.max_consecutive_fallbacks
    return any(log.state.region(name).fallbacks >= most for name in log.expected())


def may_be_partial(log: Log) -> bool:
    """True if a cut may leave regions at their positions."""
    return log.state.policy.partial == "allow" and log.state.policy.single_region is None


# --- urgency --------------------------------------------------------------------------------------


def is_urgent(log: Log, moves: Moves) -> bool:
    """True if a cut with these moves waits for no interval: an operator waits, or nothing follows it."""
    state = log.state
    if is_forced(log) or state.has_savepoint:
        return True
    # It is the last one: the assignment ends.
    return state.assignment is not None and all(_ends(log, name, moves) for name in state.active())


def _ends(log: Log, name: str, moves: Moves) -> bool:
    region = log.state.region(name)
    if not region.ends or region.final is None or region.incarnation is None:
        return False
    return reaches(moves.get(name), region.incarnation.id, region.final)


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
    if problem := texts_problem(log, moves):
        return problem
    # The vector names the regions that stay, too: a reader of one event knows the whole cut.
    if body.cut != whole_cut(log, moves):
        return Problem(code=Code.INCOMPLETE_CUT, number=number)
    if problem := _fullness_problem(log, moves):
        return problem
    if body.digest != digest_of(log, moves):
        return Problem(code=Code.OTHER_DIGEST, number=number)
    return None


def _order_problem(log: Log, number: int) -> Problem | None:
    """Return the reason if the next decision is another one, or cannot be made or abandoned now."""
    state = log.state
    if number != state.decided + 1:
        return Problem(code=Code.OUT_OF_ORDER, number=number, other=state.decided)
    if state.unresolved is not None:
        return Problem(code=Code.UNRESOLVED, number=number, other=state.unresolved.id)
    return Problem(code=Code.PAUSED, number=number) if state.paused else None


def _move_problem(log: Log, name: str, at: Position) -> Problem | None:
    # An end of an incarnation leaves nothing sealed that is after the end of its region.
    # The newest comes first: a coordinator chooses that one.
    known = any(each.position == at for each in reversed(log.known(name)))
    if not known:
        lacking = Problem(code=Code.NOT_SEALED, region=name, checkpoint=at.checkpoint)
        return log.unknown_table(name) or lacking
    if log.state.region(name).fault is not None:
        return Problem(code=Code.REGION_STALLED, region=name)
    return None


def _fullness_problem(log: Log, moves: Moves) -> Problem | None:
    """Return the reason if too few regions move with the next decision."""
    assignment, number = log.state.assignment, log.state.decided + 1
    provisional = assignment is not None and assignment.provisional
    lacking = falling_back(log, moves)
    if lacking and (provisional or not may_be_partial(log) or is_forced(log)):
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
    if not named or not {*log.lagging()} <= named <= {*falling_back(log, ())}:
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
    return {name: at for name, at in cut.items() if at != log.state.region(name).position}


def checkpoints_in(log: Log, moves: Moves) -> dict[str, list[Sealed]]:
    """Return, by region, the sealed checkpoints that the moves include, in commit order."""
    return {name: log.pending[name].upto(moves[name]) for name in sorted(moves) if name in log.pending}


def digest_of(log: Log, moves: Moves) -> str:
    """Return the digest of the completions that the moves include."""
    content = [
        [name, each.position.incarnation, each.position.checkpoint, each.position.digest, *_events(each)]
        for name, checkpoints in checkpoints_in(log, moves).items()
        for each in checkpoints
    ]
    text = json.dumps([log.stream, content], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _events(sealed: Sealed) -> list[list[str]]:
    """Return the events of a checkpoint and, unless all are for the anchor, the table of each."""
    body, named = sealed.checkpoint.body, sealed.checkpoint.named
    events = list(dict.fromkeys(body.events)) if body is not None else []
    return [events, [part.table for part in named]] if sealed.tables else [events]


# Decisions and their outcomes: the changes of the log's state, and the revert that undoes them.


def decide(log: Log, offset: int, time: int, body: CutDecided) -> Problem | None:
    """Apply a decision: positions, watermark and counters move at its offset.

    `time`: its append time, for status alone. Return the reason if it is void.
    """
    if (problem := problem_of(log, body)) is not None:
        return problem
    state, moves = log.state, moves_of(log, body.cut)
    fallbacks = falling_back(log, moves)
    # A region that ends with this cut still counts: the cut contains rows of it.
    counted = {*log.expected(), *moves}
    content = checkpoints_in(log, moves)
    flat = [each.checkpoint for checkpoints in content.values() for each in checkpoints]
    parts = [part for entry in flat for part in entry.named]
    touched = sorted({part.table for part in parts if part.table})
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
        fallbacks={name: state.region(name).position for name in fallbacks},
        parts=[part.offset for part in parts],
        files=sum(part.files for part in parts),
        parts_of={name: [part.offset for part in parts if part.table == name] for name in touched},
        # A policy names each table that it lets a cut touch, and the registry each that a policy named.
        tables={name: state.tables[name] for name in touched},
        first_offset=offset,
        head=body.head,
        before=before,
    )
    _count(log, fallbacks, moves, time)
    _advance(log, content)
    first = [each.first_offset() for each in log.taken.values()]
    made.first_offset = min(each for each in (offset, *first) if each is not None)
    _keep_assignment(log)
    state.watermark = made.watermark = _watermark(log, counted)
    state.decided, state.attempt, state.unresolved = made.id, 0, made
    return None


def _keep_assignment(log: Log) -> None:
    """End the time in which the assignment can be withdrawn: this is its first decision, or a later one."""
    state = log.state
    for name, region in state.former.regions.items() if state.former is not None else ():
        if region.accepts_checkpoints:
            log.remember_ended(name, region)
    state.former = None
    if state.assignment is not None:
        state.assignment.provisional = False


def _count(log: Log, fallbacks: list[str], moves: Moves, time: int) -> None:
    for name in (*fallbacks, *moves):
        # The first cut of an assignment is full, so each region has registered, or was removed.
        region = log.state.regions[name]
        if name in moves:
            region.fallbacks, region.behind_since, region.moved_at = 0, None, time
        else:
            region.fallbacks += 1
            region.behind_since = time if region.behind_since is None else region.behind_since


def _advance(log: Log, content: dict[str, list[Sealed]]) -> None:
    """Move the positions, with everything that the included completions state."""
    log.taken = {}
    for name, checkpoints in content.items():
        region = log.state.regions[name]
        log.taken[name] = log.pending[name].split(checkpoints[-1].position)
        for each in checkpoints:
            _advance_to(region, each, watermark_problem(name, each, log.state.policy))
        if region.rests and not log.pending[name].checkpoints:
            region.idle = True


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
    region.offsets_kind = region.incarnation.offsets_kind if region.incarnation is not None else ""


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
    if (problem := abandonment_problem(log, body)) is not None:
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
    made = log.state.unresolved
    if made is None or made.id != body.decision:
        return Problem(code=Code.OUT_OF_ORDER, number=body.decision, other=log.state.decided)
    wanted = made.digest if isinstance(body, CutCommitted) else undo.revert_digest(made)
    if body.digest != wanted:
        return Problem(code=Code.OTHER_DIGEST, number=body.decision)
    return None


def _note_tables(state: LogState, made: Decision, body: CutCommitted) -> None:
    """Note the new snapshots of the further tables; a table in the place of another one has none.

    One that is left out is touched, too: once it is named again, it must show the decision, or be repaired.
    """
    for name, snapshot in {**body.tables, **dict.fromkeys(body.left_out)}.items():
        before = state.registered(name, made.tables[name]) if name in made.tables else None
        if before is not None:
            newest = TableVersion(decision=made.id, snapshot=snapshot)
            state.tables[name] = before.model_copy(update={"newest": newest})


def resolve(log: Log, body: CutCommitted | CutReverted) -> Problem | None:
    """Apply an outcome: the decision is visible, or it was given up. Return the reason if it is void."""
    state, made = log.state, log.state.unresolved
    if (problem := outcome_problem(log, body)) is not None or made is None:
        return problem
    state.unresolved = None
    state.snapshot, state.outcome, state.table = body.snapshot, body.digest, state.table or body.table
    if isinstance(body, CutReverted):
        undo.revert(log, made)
    else:
        _note_tables(state, made, body)
        log.forget_ended(made.moves.keys())
    log.taken = {}
    return None
