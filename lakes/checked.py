"""Events whose files a committer has checked: what passes between its check and its publication."""

from dataclasses import dataclass
from typing import Final, NamedTuple

CHECK_LASTS: Final = 600.0
"""Seconds for which a check that files exist counts. Cleaners of orphans wait longer before they delete."""


class Premises(NamedTuple):
    """The facts that checks depend on, beside the files."""

    table: str
    """Identity of the table."""
    terms: str
    """Changes with the schema, and with everything else of the table that checks depend on."""


@dataclass(frozen=True, slots=True)
class Checked:
    """An event that a committer has checked, in the form in which that committer publishes it.

    It holds while the committer's premises stay the same, for CHECK_LASTS at most.
    """

    premises: Premises
    files: int
    rows: int
    size: int
    """Bytes of the files."""
    paths: bytes
    """Digests of the paths, one after the other (`twins.path_digest`)."""
    content: object
    """The adapter's own."""
    held: int
    """Bytes of memory, about."""


class Outdated(Exception):
    """The premises of a check have changed since: the files must be checked again."""
