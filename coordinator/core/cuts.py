"""Cuts: choosing one, and judging one at its own offset.

A commit's content is a function of the log up to its decision, and of nothing else: time decides when a
partial cut is proposed, never whether it is valid.
"""

from collections.abc import Container, Mapping

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.decisions import completions_digest, included
from sluicegate.coordinator.core.descent import Place, bases, last
from sluicegate.coordinator.core.owing import (
    Moves,
    exhausted,
    expected,
    finals,
    may_be_partial,
    owing,
    reaches,
    staying,
    unreached,
)
from sluicegate.events.models import CutAbandoned, CutDecided, Position

Choice = CutDecided | CutAbandoned


def choose(book: Book, barred: Container[str] = (), *, expired: bool = False) -> Choice | None:
    """The next cut, as far as everything is sealed; None while it is worth waiting.

    A barred region has files that the table would not take; it does not move. Once the alignment has
    expired, those that owe fall back, or the full cut that was forced is abandoned.
    """
    state = book.state
    if state.assignment is None or state.policy is None:
        return None
    frontiers = _frontiers(book, barred)
    if not frontiers:
        return None
    whole = _with_parents(book, frontiers)
    waits_for = state.next.regions if state.next else expected(book)
    if whole and not staying(book, waits_for, whole) and not _unfinished(book, whole):
        return _decision(book, whole)
    moves = _open_moves(book, frontiers)
    late = owing(book, expected(book), moves)
    if moves and not late:
        return _decision(book, moves)
    if not expired or not may_be_partial(book):
        return None
    if exhausted(book, late):
        number = state.decided + 1
        return CutAbandoned(decision=number, attempt=state.attempt + 1, regions=tuple(sorted(late)))
    return _decision(book, moves) if moves else None


def left_behind(book: Book, choice: Choice) -> set[str]:
    """Who owes and does not move."""
    if isinstance(choice, CutAbandoned):
        return set(choice.regions)
    refs = {name: region.ref for name, region in book.state.regions.items()}
    moves = {name: at for name, at in choice.cut.items() if at != refs[name]}
    return set(owing(book, expected(book), moves))


def waiting(book: Book, barred: Container[str] = ()) -> list[str]:
    """The regions that could move in a partial cut."""
    return list(_open_moves(book, _frontiers(book, barred)))


def _frontiers(book: Book, barred: Container[str]) -> dict[str, Position]:
    return {
        name: position
        for name, region in book.state.regions.items()
        if region.fault is None and name not in barred and (position := book.frontier(name))
    }


def _open_moves(book: Book, frontiers: Moves) -> dict[str, Position]:
    """The moves that need not wait for a full cut."""
    return _with_parents(book, _without_finals(book, _in_force(book, frontiers)))


def refusal(book: Book, body: CutDecided) -> str | None:
    """Why a decision is void at the offset that the book has reached; None if it is valid."""
    state = book.state
    if body.decision != state.decided + 1:
        return f"decision {body.decision} does not follow {state.decided}"
    if state.blocked is not None:
        return "the stream is stalled"
    regions = state.regions
    moves = {name: at for name, at in body.cut.items() if name not in regions or at != regions[name].ref}
    problem = next((found for name in moves if (found := _move_problem(book, name, moves[name]))), None)
    if problem is not None:
        return problem
    if not moves:
        return "no region moves"
    if body.cut != _vector(book, moves):
        return "the cut leaves out a region"
    if _with_parents(book, moves) != moves:
        return "the cut has a region without the checkpoints that it builds on"
    if body.final != _carries_final(book, moves):
        return "the final mark is wrong"
    problem = _fallback_problem(book, moves)
    if problem is None and body.completions != completions_digest(included(book, moves)):
        problem = "the digest of the completions differs"
    return problem


def _move_problem(book: Book, name: str, to: Position) -> str | None:
    region = book.state.regions.get(name)
    if region is None:
        return f"region {name} was never opened"
    if region.fault is not None:
        return f"region {name} is stalled"
    if not any((at, number) == (to.lineage, to.checkpoint) for at, number, _ in book.sealed(name)):
        return f"checkpoint {to.checkpoint} of region {name} is not sealed beyond its ref"
    return None


def abandonment_refusal(book: Book, body: CutAbandoned) -> str | None:
    """Why an abandonment is void at the offset that the book has reached; None if it is valid."""
    state = book.state
    if (body.decision, body.attempt) != (state.decided + 1, state.attempt + 1):
        return f"attempt {body.attempt} at decision {body.decision} does not follow {state.attempt}"
    if state.blocked is not None or not may_be_partial(book) or not exhausted(book, expected(book)):
        return "no full cut is forced"
    return None


def _fallback_problem(book: Book, moves: Moves) -> str | None:
    following = book.state.next
    if following is not None and _in_force(book, moves) != moves and owing(book, following.regions, moves):
        return f"the first cut of assignment {following.number} is not full"
    late = owing(book, expected(book), moves)
    final = _carries_final(book, moves)
    if final and (staying(book, expected(book), moves) or _unfinished(book, moves)):
        return "a cut with a final checkpoint is not full"
    if not late:
        return None
    if not may_be_partial(book):
        return "the cut is not full"
    if tired := exhausted(book, late):
        return f"region {tired[0]} fell back as often as it may: the cut is not full"
    return None


def _with_parents(book: Book, moves: Moves) -> dict[str, Position]:
    """The moves without those that build on checkpoints of other regions which are not in the cut."""
    kept = dict(moves)
    while lacking := [name for name, at in kept.items() if not _stands_on(book, name, at, kept)]:
        for name in lacking:
            del kept[name]
    return kept


def _stands_on(book: Book, name: str, at: Position, moves: Moves) -> bool:
    region = book.state.regions[name]
    for lineage in region.chain[: region.chain.index(at.lineage) + 1]:
        for parent in bases(book, Place(name, lineage)):
            decided = book.state.regions[parent.region].lineages[parent.lineage].decided
            if decided is not None and decided >= last(parent):
                continue
            target = Position(lineage=parent.lineage, checkpoint=last(parent))
            if parent.region not in moves or not reaches(book, parent.region, moves[parent.region], target):
                return False
    return True


def _in_force(book: Book, moves: Moves) -> dict[str, Position]:
    """The moves up to the last checkpoint of a lineage that was opened under the assignment in force."""
    state = book.state
    if state.next is None or state.assignment is None:
        return dict(moves)
    kept: dict[str, Position] = {}
    for name, at in moves.items():
        lineages = state.regions[name].lineages
        if lineages[at.lineage].assignment <= state.assignment.number:
            kept[name] = at
            continue
        for lineage, number, _ in book.sealed(name):
            if lineages[lineage].assignment > state.assignment.number:
                break
            kept[name] = Position(lineage=lineage, checkpoint=number)
    return kept


def _without_finals(book: Book, moves: Moves) -> dict[str, Position]:
    """The moves up to before the checkpoints that only a full cut may reach."""
    kept: dict[str, Position] = {}
    for name, at in moves.items():
        ends = list(finals(book, name))
        if not any(reaches(book, name, at, end) for end in ends):
            kept[name] = at
            continue
        for lineage, number, _ in book.sealed(name):
            position = Position(lineage=lineage, checkpoint=number)
            if any(reaches(book, name, position, end) for end in ends):
                break
            kept[name] = position
    return kept


def _decision(book: Book, moves: Moves) -> CutDecided:
    return CutDecided(
        decision=book.state.decided + 1,
        cut=_vector(book, moves),
        final=_carries_final(book, moves),
        completions=completions_digest(included(book, moves)),
    )


def _vector(book: Book, moves: Moves) -> dict[str, Position]:
    """The whole cut: the moves, and the refs of the regions that stay."""
    stay = {name: region.ref for name, region in book.state.regions.items() if region.ref is not None}
    return dict(sorted({**stay, **moves}.items()))


def _carries_final(book: Book, moves: Moves) -> bool:
    return any(reaches(book, name, at, end) for name, at in moves.items() for end in finals(book, name))


def _unfinished(book: Book, moves: Mapping[str, Position]) -> bool:
    """Whether the moves reach a part of the savepoint's targets only."""
    savepoint = book.state.savepoint
    if savepoint is None:
        return False
    return bool(unreached(book, moves)) and any(
        name in savepoint.targets and reaches(book, name, at, savepoint.targets[name])
        for name, at in moves.items()
    )
