"""The release that wrote a record: an older one, which cannot read it, names the release that it needs."""

from collections.abc import Iterable
from typing import Final

RELEASE_HEADER: Final = "sluicegate-release"


def release_named(headers: Iterable[tuple[str, bytes | None]]) -> tuple[str, ...]:
    """Return the release that wrote a record; empty if the record does not name it."""
    named = dict(headers).get(RELEASE_HEADER)
    return (named.decode(errors="replace"),) if named else ()
