"""Detection of files that a commit lists twice. It uses about a hundred bytes for each file."""

from hashlib import blake2b

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.port import BadFiles


class Twins:
    """Set of the paths that were added so far."""

    def __init__(self) -> None:
        self._met: set[bytes] = set()

    def add(self, event: FilesWritten) -> None:
        """Add an event's files. Raises BadFiles if one was added before."""
        for file in event.files:
            met = len(self._met)
            # A digest is smaller than most paths, and a commit may have a million files.
            self._met.add(blake2b(file.path.encode(), digest_size=16).digest())
            if len(self._met) == met:
                raise BadFiles(f"the file {file.path} is there twice")
