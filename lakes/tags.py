"""Capability of a table's maintenance: tags, which are names of snapshots that keep them from expiry."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sluicegate.lakes.port import SnapshotRef


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag to make."""

    name: str
    snapshot: SnapshotRef
    decision: int
    """Newest decision that the snapshot includes."""
    retained: int | None = None
    """Milliseconds after which the format's own upkeep may delete the tag; None: it stays."""


@dataclass(frozen=True, slots=True)
class TagMade:
    """The tag was not there, and is there now."""


@dataclass(frozen=True, slots=True)
class TagThere:
    """A tag of this name and this snapshot was there already."""


@dataclass(frozen=True, slots=True)
class TagTaken:
    """The name belongs to another snapshot, or to a branch."""

    holder: str
    """Such as `a tag of snapshot 7`."""


@dataclass(frozen=True, slots=True)
class SnapshotExpired:
    """The snapshot is not in the table any more, so it can get no tag."""

    tag_is_there: bool = False
    """True if it expired while the tag was made: the tag is there, and its files may be deleted."""


TagAnswer = TagMade | TagThere | TagTaken | SnapshotExpired


@runtime_checkable
class MakesTags(Protocol):
    """Capability: tags can be made. No tag is ever moved or deleted."""

    def make_tag(self, tag: Tag) -> TagAnswer:
        """Make a tag, unless its name is taken. It may be repeated, after any outcome.

        Raises LakeUnavailable, also if the outcome is unknown, and TableRefused if there is no such table.
        """
        ...
