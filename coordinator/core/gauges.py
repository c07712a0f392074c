"""What waits in a book, for those who watch."""

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.owing import expected, owing


def pending_files(book: Book) -> int:
    """How many files have been written and are not in a decision."""
    return sum(
        part.files
        for ledger in book.ledgers.values()
        for entry in ledger.checkpoints.values()
        for part in entry.parts.values()
    )


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
    for name in owing(book, expected(book), {}):
        region_state = book.state.regions.get(name)
        if region_state is None or not region_state.chain:
            found.append(f"region {name} has never been opened")
        elif book.frontier(name) is None:
            found.append(f"region {name} has completed nothing since its last commit")
    return found
