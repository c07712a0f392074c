"""Who a cut waits for: regions that owe, and regions that are held for a final checkpoint.

It is a function of the log. See the FLIP discussion on checkpoints per pipeline region for
where fallback, its maximum and the forced full cut come from.
"""

from collections.abc import Iterable, Iterator, Mapping

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.state import RegionState
from sluicegate.events.models import Position

Moves = Mapping[str, Position]


def expected(book: Book) -> tuple[str, ...]:
    """The regions that a cut waits for: until its first full cut, a new assignment has only its old ones."""
    held, following = book.state.assignment, book.state.next
    if held is None:
        return ()
    return tuple(name for name in held.regions if following is None or name in following.regions)


def staying(book: Book, names: Iterable[str], moves: Moves) -> list[str]:
    """Those that have work and do not move; opened or not."""
    return [name for name in names if name not in moves and _is_active(book, name)]


def owing(book: Book, names: Iterable[str], moves: Moves) -> list[str]:
    """Those that have work, do not move, and are not held for a final checkpoint."""
    return [name for name in staying(book, names, moves) if not _is_held(book, name)]


def active(book: Book, moves: Moves) -> list[str]:
    """The regions of the assignment that move, or have work: opened or not, neither idle nor gone."""
    held = book.state.assignment
    return [name for name in held.regions if name in moves or _is_active(book, name)] if held else []


def _is_active(book: Book, name: str) -> bool:
    region = book.state.regions.get(name)
    return region is None or not (region.resting or region.left or region.removed)


def _is_held(book: Book, name: str) -> bool:
    """Whether the next sealed checkpoint carries a final mark, so that it waits for a full cut."""
    if name not in book.state.regions:
        return False
    following = next(book.sealed(name), None)
    if following is None:
        return False
    at = Position(lineage=following[0], checkpoint=following[1])
    return any(reaches(book, name, at, final) for final in finals(book, name))


def finals(book: Book, name: str) -> Iterator[Position]:
    """The checkpoints of a region that only a full cut may reach: its end, a savepoint's target."""
    region, savepoint = book.state.regions[name], book.state.savepoint
    if region.closed and region.final is not None and region.live is not None:
        yield Position(lineage=region.live, checkpoint=region.final)
    if savepoint is not None and name in savepoint.targets:
        yield savepoint.targets[name]


def reaches(book: Book, name: str, at: Position, target: Position) -> bool:
    """Whether a position is at the target or beyond; a target of a lineage that is gone is never reached."""
    chain = book.state.regions[name].chain
    if target.lineage not in chain or at.lineage not in chain:
        return False
    place, wanted = chain.index(at.lineage), chain.index(target.lineage)
    return place > wanted or (place == wanted and at.checkpoint >= target.checkpoint)


def unreached(book: Book, moves: Moves) -> list[str]:
    """The savepoint's regions that would not be at their targets; void ones count as reached."""
    savepoint, regions = book.state.savepoint, book.state.regions
    if savepoint is None:
        return []
    return [
        name
        for name, target in savepoint.targets.items()
        if _can_reach(regions[name], target)
        and not regions[name].removed
        and not ((at := moves.get(name, regions[name].ref)) and reaches(book, name, at, target))
    ]


def _can_reach(region: RegionState, target: Position) -> bool:
    limit = region.lineages[target.lineage].limit
    return target.lineage in region.chain and (limit is None or target.checkpoint <= limit)


def exhausted(book: Book, names: Iterable[str]) -> list[str]:
    """Those that have fallen back as often in a row as they may."""
    state = book.state
    most = state.policy.max_consecutive_fallbacks if state.policy else 1
    return [name for name in names if name in state.regions and state.regions[name].fallbacks >= most]


def joined(book: Book) -> str | None:
    """Why the stream is one region, whatever its assignment says; None if its regions are independent."""
    state = book.state
    if state.policy is not None and state.policy.joined:
        return state.policy.joined
    names = state.assignment.regions if state.assignment else ()
    return next((reason for name in names if (reason := _joined_by(state.regions.get(name)))), None)


def _joined_by(region: RegionState | None) -> str | None:
    return region.joined if region is not None else None


def may_be_partial(book: Book) -> bool:
    """Whether regions may fall back at all."""
    policy = book.state.policy
    return policy is not None and policy.partial == "allow" and joined(book) is None


def first_sealed(book: Book) -> dict[str, tuple[Position, int]]:
    """By region, the first sealed checkpoint beyond its ref, and the append time of what sealed it."""
    found: dict[str, tuple[Position, int]] = {}
    for name in book.state.regions:
        if (first := next(book.sealed(name), None)) is not None:
            lineage, checkpoint, entry = first
            found[name] = (Position(lineage=lineage, checkpoint=checkpoint), entry.sealed_at)
    return found
