"""Data files to which a Delta table refers: from any version or checkpoint that its log still has."""

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote

from sluicegate.lakes.delta.actions import Malformed, read_line
from sluicegate.lakes.delta.checkpoints import FOLDER, Gone, checkpoint_paths
from sluicegate.lakes.delta.log import Log, commit_name
from sluicegate.lakes.port import LakeUnavailable

_ABOUT_FILES: Final = frozenset({"add", "remove", "cdc"})


class References:
    """Search for a set of file names in all versions and checkpoints of a log.

    A removed file counts, too: older versions can be read, and a restore brings it back. Files of the log
    never change, so each is read once. Each `refresh` reads only new ones.
    """

    def __init__(self, log: Log, names: set[str]) -> None:
        self._log = log
        self._names = names
        self._known: set[str] = set()
        """Files of the log that were read to their end."""
        self.found: set[str] = set()

    def refresh(self) -> bool:
        """Read new files of the log; return False if there is no log.

        Raises LakeUnavailable: then no name may be considered unreferenced.
        """
        listing = self._log.listing()
        commits = {commit_name(number) for number in listing.commits}
        checkpoints = {f"{FOLDER}/{name}" for each in listing.checkpoints for name in each.names}
        # Clean-up may delete a file that was listed. Its content is in a newer checkpoint, so that one is
        # read afterwards.
        for name in sorted(commits - self._known):
            self._add(name, self._in_commit(name))
        for name in sorted(checkpoints - self._known):
            self._add(name, checkpoint_paths(self._log.storage, name.rpartition("/")[2]))
        return bool(listing.commits or listing.checkpoints)

    def _add(self, name: str, paths: Iterable[str]) -> None:
        try:
            for path in paths:
                # A name may be encoded, and an absolute path leads to a file of another table.
                for each in (path, unquote(path)):
                    base = each.rpartition("/")[2]
                    if base in self._names:
                        self.found.add(base)
        except Gone:
            raise LakeUnavailable(
                f"{name} of {self._log.storage.uri} was deleted while its references were read. Try again"
            ) from None
        except Malformed as error:
            raise LakeUnavailable(
                f"{name} of {self._log.storage.uri} cannot be read, so its references are unknown: {error}. "
                "Restore that file from a backup"
            ) from error
        self._known.add(name)

    def _in_commit(self, name: str) -> Iterator[str]:
        raw = self._log.storage.read(name)
        if raw is None:
            raise Gone(name)
        for line in raw.split(b"\n"):
            for kind, fields in read_line(line):
                if kind in _ABOUT_FILES and isinstance(path := fields.get("path"), str):
                    yield path
