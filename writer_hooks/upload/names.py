"""Names of the entries of a spool."""

import re
from typing import Final, NamedTuple

_NAME: Final = re.compile(r"(\d{20})\.([0-9a-f]{16})\.(\d{1,19})\.(\d{1,19})\.([0-9a-f]{32})")


class EntryName(NamedTuple):
    """Name of an entry, which has what the limits of a spool count. Names are in the order of their times."""

    created: int
    """Nanoseconds since the Unix epoch."""
    region: str
    """Digest of stream, region and incarnation."""
    checkpoint: int
    size: int
    """Bytes of its files."""
    attempt: str

    def __str__(self) -> str:
        return f"{self.created:020d}.{self.region}.{self.checkpoint}.{self.size}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> "EntryName | None":
        """Read a name; None if it is not that of an entry."""
        found = _NAME.fullmatch(text)
        if found is None:
            return None
        created, region, checkpoint, size, attempt = found.groups()
        return cls(int(created), region, int(checkpoint), int(size), attempt)
