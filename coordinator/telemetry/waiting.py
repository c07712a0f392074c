"""Says in the log what a stream waits for, once something completed has waited for long."""

from typing import Final

import structlog

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.gauges import oldest_uncut, waited_for

log = structlog.get_logger(__name__)

PATIENCE: Final = 60.0
"""Seconds that completed work may wait before that is told."""
PAUSE: Final = 60.0
"""Seconds between two warnings of one stream."""


class Waiting:
    """The warnings of one stream."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._told: int | None = None

    def look(self, book: Book, now_ms: int, *reasons: str | None) -> None:
        """Warn if something sealed or completed has waited for long; `reasons`: what else is known."""
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
    """Append time in milliseconds of the oldest completion, or sealing, that is in no decision."""
    completions = [
        entry.completion.time
        for ledger in book.ledgers.values()
        for entry in ledger.checkpoints.values()
        if entry.completion is not None
    ]
    sealed = oldest_uncut(book)
    return min(completions if sealed is None else [sealed, *completions], default=None)
