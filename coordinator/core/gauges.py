"""What waits in a book, for those who watch."""

from collections.abc import Iterator

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.owing import expected, owing
from sluicegate.coordinator.core.state import Waiting


def pending_files(book: Book) -> int:
    """How many files have been written and are not in a decision."""
    return sum(entry.files for ledger in book.ledgers.values() for entry in ledger.checkpoints.values())


def waiting(book: Book) -> dict[str, Waiting]:
    """By region, what has been written and is not in a decision; regions without are absent."""
    found: dict[str, Waiting] = {}
    for (region, _), ledger in book.ledgers.items():
        for entry in ledger.checkpoints.values():
            known = found.get(region)
            found[region] = Waiting(
                files=entry.files + (known.files if known else 0),
                rows=entry.rows + (known.rows if known else 0),
                since=min(entry.first_time, known.since if known else entry.first_time),
            )
    return found


def oldest_unsealed(book: Book) -> int | None:
    """Append time in milliseconds of the first event of the oldest checkpoint that is not sealed."""
    return min(
        (
            entry.first_time
            for ledger in book.ledgers.values()
            for number, entry in ledger.checkpoints.items()
            if number not in ledger.sealed
        ),
        default=None,
    )


def oldest_uncut(book: Book) -> int | None:
    """Append time in milliseconds of the event that sealed the oldest checkpoint that is in no decision."""
    firsts = [next(book.sealed(name), None) for name in book.state.regions]
    return min((first[2].sealed_at for first in firsts if first is not None), default=None)


def waited_for(book: Book) -> list[str]:
    """What the next cut waits for, in sentences: events that are missing, and regions that owe."""
    found: list[str] = []
    for (region, lineage), ledger in book.ledgers.items():
        for number, entry in ledger.checkpoints.items():
            if entry.missing:
                some = ", ".join(sorted(entry.missing)[:3])
                found.append(
                    f"region {region}: checkpoint {number} of lineage {lineage} is completed, and "
                    f"{len(entry.missing)} of its events have not arrived ({some})"
                )
    sealed = any(book.frontier(name) is not None for name in book.state.regions)
    for name in owing(book, expected(book), {}):
        if not _is_opened(book, name):
            found.append(f"region {name} has never been opened")
        elif sealed and book.frontier(name) is None:
            found.append(f"region {name} has completed nothing since its last commit")
    return found + list(_never_opened(book))


def _never_opened(book: Book) -> Iterator[str]:
    """Without which the next assignment has no first full cut."""
    held, following = book.state.assignment, book.state.next
    if held is None or following is None:
        return
    for name in following.regions:
        if name not in held.regions and not _is_opened(book, name):
            yield f"region {name} of assignment {following.number} has never been opened"


def _is_opened(book: Book, name: str) -> bool:
    region = book.state.regions.get(name)
    return region is not None and bool(region.chain)
