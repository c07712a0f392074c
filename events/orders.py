"""The sender of an order: the attribute `ce_order` of a message that an operator's command wrote.

It is a claim of that command, for people. Nothing is decided from it, and a malformed one counts as absent.
It is a header, not a field of a body: a reader that does not know it reads the same log.
"""

import hashlib
import re
import uuid
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

from pydantic import AfterValidator, StringConstraints

from sluicegate.events.codec import other_envelope, parse_body
from sluicegate.events.envelope import Header, LogRecord, RawHeader
from sluicegate.events.models import Body, Millis, StreamCommand

ORDER: Final = "ce_order"
"""Header with the claim, as JSON in UTF-8."""
MOST_BYTES: Final = 8_192
"""Size of a claim. A larger one counts as malformed, and is not parsed."""
MOST_CHARACTERS: Final = 200
MOST_OF_REASON: Final = 500
MOST_ABOUT: Final = 300

_NOTE: Final = "note."
_NOTE_NAME: Final = re.compile(r"note\.[0-9a-f]{32}")


def printable(text: str) -> str:
    """Return a text of one line without invisible characters. Raises ValueError for another one."""
    if not text.isprintable():
        # Line breaks forge lines of a log, and escape sequences or bidirectional marks disguise text.
        raise ValueError("control characters, line breaks and invisible marks are not allowed")
    return text


_Name = Annotated[str, StringConstraints(min_length=1, max_length=MOST_CHARACTERS), AfterValidator(printable)]


class Order(Body):
    """Sender, place, time and reason of an order. All of it is a claim of the command that sent it."""

    order: _Name
    """The command, such as `stream pause`."""
    by: _Name
    """Name of the user, or of the automation."""
    host: _Name
    """Host on which the command ran."""
    at: Millis
    """Time of the order by the clock of that host."""
    release: _Name
    """Release of the command."""
    reason: Annotated[str, StringConstraints(max_length=MOST_OF_REASON), AfterValidator(printable)] = ""
    about: Annotated[str, StringConstraints(max_length=MOST_ABOUT), AfterValidator(printable)] = ""
    """Arguments of the order that its body does not have."""


def order_header(order: Order) -> Header:
    """Return the header of a message that an order wrote."""
    return ORDER, order.model_dump_json(exclude_defaults=True).encode()


def has_order(headers: Iterable[RawHeader]) -> bool:
    """True if a message has a claim, malformed or not."""
    return any(name == ORDER for name, _ in headers)


def read_order(headers: Iterable[RawHeader]) -> Order | None:
    """Return the claim of a message; None if it has none, or a malformed one."""
    raw = next((value for name, value in headers if name == ORDER), None)
    if raw is None or len(raw) > MOST_BYTES:
        return None
    read = parse_body(Order, raw)
    return read if isinstance(read, Order) else None


def make_note() -> StreamCommand:
    """Return the body of a note: the record of an order whose work is outside of the log.

    It cancels a savepoint of a name that no savepoint has. So it has no effect, in any release.
    """
    return StreamCommand(command="cancel", name=f"{_NOTE}{uuid.uuid4().hex}")


def is_note(body: Body | None) -> bool:
    """True for the body of a note."""
    return (
        isinstance(body, StreamCommand)
        and body.command == "cancel"
        and _NOTE_NAME.fullmatch(body.name or "") is not None
    )


# Records that only another release reads, and the orders of operators to skip them.
#
# A record of another major version of a known type stalls its stream. An order (`stream skip`) names its
# offset and its digest. A reader that meets the record looks on for such an order, applies nothing of what
# it looks at, and then continues after the record: first with the record as a skipped one, which has no
# effect but to stall its region. So all readers agree, wherever they start, and whatever came between
# record and order.

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
    return LogRecord(offset, time, other_envelope(headers), None, "skipped", digest)


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
