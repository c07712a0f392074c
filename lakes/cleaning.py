"""The age from which cleaners of other products delete files that no snapshot has.

The files of a pending checkpoint are such files until their commit.
"""

from typing import NamedTuple, Protocol, runtime_checkable


class Cleaner(NamedTuple):
    """A cleaner that users of a table format run, and the age that it uses if nothing else is said."""

    name: str
    age: float
    """Seconds."""
    setting: str
    """Property of the table that sets the age; empty: only an argument of the cleaner does."""
    remedy: str
    """Change that makes the age longer; `{hours}` stands for the hours."""


@runtime_checkable
class NamesCleaner(Protocol):
    """Capability: the cleaner of a table is known. `sluicegate check` compares its age with the stream."""

    def cleaner(self) -> Cleaner | None:
        """Return the cleaner; None if the table forbids that any deletes. Raises LakeUnavailable."""
        ...
