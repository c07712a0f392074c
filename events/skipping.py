"""Records that only a newer release reads, and the orders of operators to skip them.

A record of a newer major version of a known type stalls its stream. An order (`stream skip`) names its offset
and its digest. A reader that meets the record looks on for such an order, applies nothing of what it looks
at, and then continues after the record: first with the record as a skipped one, which has no effect but to
stall its region. So all readers agree, wherever they start, and whatever came between record and order.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from sluicegate.events.attributes import RawHeader
from sluicegate.events.codec import newer_envelope
from sluicegate.events.envelope import LogRecord
from sluicegate.events.models import StreamCommand

_MOST: Final = 10_000
"""Orders that a reader remembers. Operators give few."""


def digest_of(key: bytes | None, headers: Sequence[RawHeader], value: bytes | None) -> str:
    """Return the digest of a record: SHA-256 over its key, its headers in order, and its value."""
    parts = [key, value]
    for name, held in headers:
        parts += [name.encode(errors="surrogateescape"), held]
    digest = hashlib.sha256()
    for part in parts:
        # Each part has its length before it, and an absent one differs from an empty one.
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return digest.hexdigest()


def skipped_record(offset: int, time: int, headers: Sequence[RawHeader], digest: str) -> LogRecord:
    """Return the record that takes the place of one that is skipped."""
    return LogRecord(offset, time, newer_envelope(headers), None, "skipped", digest)


class Skips:
    """The orders of one partition to skip records, as far as a reader has read them."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, int, str], None] = {}

    def note(self, record: LogRecord) -> bool:
        """Remember a record if it is such an order; return True if it is. It names an earlier record."""
        body = record.body
        if not isinstance(body, StreamCommand) or body.command != "skip":
            return False
        offset, digest = body.offset, body.digest
        if offset is None or digest is None or offset >= record.offset:
            return False
        self._named[record.envelope.stream, offset, digest] = None
        if len(self._named) > _MOST:
            del self._named[next(iter(self._named))]
        return True

    def name(self, stream: str, offset: int, digest: str) -> bool:
        """True if an order names this record."""
        return (stream, offset, digest) in self._named
