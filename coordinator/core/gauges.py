"""What waits in a book, for those who watch."""

from sluicegate.coordinator.core.book import Book


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
