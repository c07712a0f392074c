"""Notices a file that is named twice, in about a hundred bytes for each file of a commit."""

from hashlib import blake2b

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.port import BadFiles


class Twins:
    """The paths that were met so far."""

    def __init__(self) -> None:
        self._met: set[bytes] = set()

    def add(self, event: FilesWritten) -> None:
        """Take note of an event's files. Raises BadFiles if one was met before."""
        for file in event.files:
            met = len(self._met)
            self._met.add(blake2b(file.path.encode(), digest_size=16).digest())
            if len(self._met) == met:
                raise BadFiles(f"the file {file.path} is there twice")
