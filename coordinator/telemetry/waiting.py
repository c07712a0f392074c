"""Warnings in the log about completed work that waits long for its commit."""

from typing import Final

import structlog

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.gauges import oldest_uncut, waited_for

log = structlog.get_logger(__name__)

PATIENCE: Final = 60.0
"""Seconds that completed work may wait before the first warning."""
PAUSE: Final = 60.0
"""Seconds between two warnings of one stream."""


class Waiting:
    """Warnings of one stream."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._told: int | None = None

    def look(self, book: Book, now_ms: int, *reasons: str | None) -> None:
        """Log a warning if completed or sealed work has waited long; `reasons` are further known causes."""
        since = _oldest(book)
        if since is None or now_ms - since <= PATIENCE * 1000:
            return
        if self._told is not None and now_ms - self._told < PAUSE * 1000:
            return
        self._told = now_ms
        known = [*waited_for(book), *(reason for reason in reasons if reason)]
        pending = [f"decision {each.id} is not known to be in the table" for each in book.state.pending]
        log.warning(
            "completed work waits to be committed",
            stream=self._stream,
            seconds=round((now_ms - since) / 1000),
            waits_for=[*known, *pending]
            or ["the alignment timeout, or an end of the log that is being read"],
        )


def _oldest(book: Book) -> int | None:
    """Return the append time in milliseconds of the oldest completion or sealing in no decision."""
    completions = [
        entry.completion.time
        for ledger in book.ledgers.values()
        for entry in ledger.checkpoints.values()
        if entry.completion is not None
    ]
    sealed = oldest_uncut(book)
    return min(completions if sealed is None else [sealed, *completions], default=None)
