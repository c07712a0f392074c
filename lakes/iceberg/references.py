"""Data files to which an Iceberg table refers from its snapshots, which all branches and tags are among."""

from typing import Any, Final
from urllib.parse import unquote

from sluicegate.lakes.avro import BadContainer, records
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.lists import Lists
from sluicegate.lakes.iceberg.metadata import Metadata
from sluicegate.lakes.port import LakeError, LakeUnavailable, TableRefused

_NEWEST: Final = 3


def _name_forms(path: str) -> tuple[str, str]:
    """Return the name at the end of an address, as it is and decoded."""
    name = path.rpartition("/")[2]
    return name, unquote(name)


class References:
    """Search for a set of names of data files in all snapshots of a table.

    Names are compared without their folders: products write the address of one file in several forms.
    Manifests and lists never change, so each is read once. An entry that deletes a file also counts as a
    reference.
    """

    def __init__(self, files: Files, names: set[str]) -> None:
        self._files = files
        self._names = names
        self._known: set[str] = set()
        """Locations of lists and manifests that were read to their end."""
        self._lists = Lists(_NEWEST, "null")
        self.found: set[str] = set()
        """Places of the files with a reference."""

    def refresh(self, metadata: Metadata) -> None:
        """Read new lists and manifests.

        Raises LakeUnavailable: then no file may be considered unreferenced.
        """
        for snapshot in metadata.snapshots:
            if "manifest-list" not in snapshot:
                raise LakeUnavailable(
                    f"the snapshot {snapshot['snapshot-id']} of {metadata.table_location} has no manifest "
                    "list, as only format version 1 allows: what it refers to cannot be told. Expire it"
                )
            path = str(snapshot["manifest-list"])
            if path in self._known:
                continue
            for manifest in self._manifests(path):
                self._read_manifest(manifest)
            self._known.add(path)

    def _manifests(self, path: str) -> list[str]:
        try:
            return [line.path for line in self._lists.read(self._read(path))]
        except (BadContainer, LakeError) as error:
            raise LakeUnavailable(f"{path} cannot be read: {error}") from error

    def _read_manifest(self, path: str) -> None:
        if path in self._known:
            return
        try:
            for entry in records(self._read(path)):
                file: dict[str, Any] = entry["data_file"]
                # A deletion vector names the data file that it is about.
                paths = (file["file_path"], file.get("referenced_data_file") or "")
                self.found |= {each for path in paths for each in _name_forms(path)} & self._names
        except (BadContainer, KeyError, TypeError, AttributeError) as error:
            raise LakeUnavailable(f"{path} cannot be read: {error!r}") from error
        self._known.add(path)

    def _read(self, path: str) -> bytes:
        try:
            raw = self._files.read(path)
        except TableRefused as error:
            raise LakeUnavailable(f"{path} cannot be read: {error}") from error
        if raw is None:
            raise LakeUnavailable(
                f"{path} is not there, but a snapshot of the table names it: what it refers to cannot be told"
            )
        return raw
