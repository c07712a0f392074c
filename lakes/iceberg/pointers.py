"""Catalogs that keep no more of a table than the location of its metadata file.

A commit writes a metadata file, and replaces its name in the catalog if that is still the former one.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from sluicegate.lakes.iceberg.catalog import Identifier, StateMissing, discard_overtaken
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import Change, Metadata, parse
from sluicegate.lakes.port import LakeUnavailable

_TRIES: Final = 3


class PointerCatalog(ABC):
    """One table, whose catalog entry names its metadata file."""

    reads_files = True

    def __init__(self, identifier: Identifier, files: Files) -> None:
        self._identifier = identifier
        self._files = files
        self._known: Metadata | None = None

    def load(self) -> Metadata:
        # Maintenance may delete an old metadata file between the two reads.
        for _ in range(_TRIES):
            location = self._location()
            if self._known is not None and self._known.location == location:
                return self._known
            raw = self._files.read(location)
            if raw is not None:
                self._known = parse(location, raw)
                return self._known
        raise StateMissing(
            f"{location}, the metadata of {self._identifier}, is not there. Mount the storage of the "
            "table, or restore the file"
        )

    def commit(self, base: Metadata, change: Change, files: Mapping[str, bytes]) -> bool:
        made = base.after(change, base.next_location())
        new = {**files, made.location: made.render()}
        try:
            # Written together, most of them are in one folder, which is synced once. A write that fails
            # may have had its effect, with all answers lost.
            self._files.write(new)
            swapped = self._swap(base.location, made.location)
        except LakeUnavailable:
            self._files.discard(new)
            raise
        if swapped:
            self._known = made
            self._files.discard(made.superseded(base))
        else:
            discard_overtaken(self._files, new)
        return swapped

    @abstractmethod
    def _location(self) -> str:
        """Return the location that the entry names. Raises NoTable, LakeUnavailable or TableRefused."""

    @abstractmethod
    def _swap(self, old: str, new: str) -> bool:
        """Replace the name of the metadata file, the one step that decides a commit.

        Return False if the entry has changed since it named `old` and the new name is certainly not in it.
        Raises LakeUnavailable if certainly nothing is visible, Uncertain if that is unknown.
        """
