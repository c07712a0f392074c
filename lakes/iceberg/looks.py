"""Checks that the files of events exist. They stay valid for some time."""

import posixpath
from collections.abc import Callable

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.port import CHECK_LASTS, BadFiles
from sluicegate.lakes.storage import Storage


class Looks:
    """File checks of the events of one committer."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._looked: dict[int, float] = {}
        """Time of the last check of each event, by the hash of its paths."""

    def look(self, storage: Storage, event: FilesWritten) -> None:
        """Check that the event's files exist with the right size, inside the folder after all links are
        resolved.

        Raises BadFiles or LakeUnavailable.
        """
        for folder in {posixpath.dirname(file.path) for file in event.files}:
            if storage.leads_out(folder):
                raise BadFiles(f"the folder {folder} of {storage.uri} leads out of the table by a link")
        sizes = storage.sizes([file.path for file in event.files])
        for file, size in zip(event.files, sizes, strict=True):
            if size is None:
                raise BadFiles(f"the file {file.path} is not in {storage.uri}")
            if size != file.size:
                raise BadFiles(f"the file {file.path} has {size} bytes instead of {file.size}")
            if storage.is_link(file.path) and storage.leads_out(file.path):
                raise BadFiles(f"the file {file.path} of {storage.uri} is a link out of the table")
        self._looked[_paths(event)] = self._clock()

    def has(self, event: FilesWritten) -> bool:
        """Return True if there is a check of these files."""
        return _paths(event) in self._looked

    def forget_old(self) -> None:
        """Drop checks that are no longer valid."""
        late = self._clock() - CHECK_LASTS
        self._looked = {paths: seen for paths, seen in self._looked.items() if seen > late}

    def clear(self) -> None:
        """Drop all checks."""
        self._looked.clear()


def _paths(event: FilesWritten) -> int:
    return hash(tuple(file.path for file in event.files))
