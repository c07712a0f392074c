"""Trace context of messages: the extension "distributed tracing" of CloudEvents, with W3C's `traceparent`.

Nothing is decided by it. A malformed one counts as absent.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from sluicegate.events.attributes import Header, RawHeader

TRACEPARENT: Final = "ce_traceparent"
"""Header with the context of the message."""
TRACELINKS: Final = "ce_tracelinks"
"""Header with the contexts that a commit includes, separated by commas, if there are several."""
MOST_LINKS: Final = 32
"""Contexts that a message names at most."""
_SHAPE: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[ -~]*)?"
)
_LENGTH: Final = 55
"""Characters of version 00; later versions may append more."""
_LONGEST: Final = 512


def parse_traceparent(raw: bytes | str | None) -> str | None:
    """Return the context as version 00 has it; None if the value is absent or malformed."""
    if isinstance(raw, str):
        raw = raw.encode(errors="replace")
    if raw is None or len(raw) > _LONGEST or not (match := _SHAPE.fullmatch(raw)):
        return None
    if raw.startswith(b"00-") and match[1] is not None:
        return None
    return "00" + raw[2:_LENGTH].decode()


def traceparent_of(headers: Iterable[RawHeader]) -> str | None:
    """Return the context of a message; None if it has none, or a malformed one."""
    return parse_traceparent(next((value for name, value in headers if name == TRACEPARENT), None))


def trace_headers(own: str | None, parents: Sequence[str]) -> list[Header]:
    """Return the headers of a message that has these parents; `own` is its context, if it has one.

    Without a context of its own, the message has that of its only parent.
    """
    links = list(dict.fromkeys(parents))[:MOST_LINKS]
    context = own or (links[0] if len(links) == 1 else None)
    headers = [(TRACEPARENT, context.encode())] if context else []
    return [*headers, *([(TRACELINKS, ",".join(links).encode())] if len(links) > 1 else [])]
