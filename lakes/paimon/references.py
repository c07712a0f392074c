"""Data files to which a Paimon table refers from its snapshots, tags, changelogs and branches."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

from sluicegate.lakes.paimon.descent import Gone, records
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import Storage

_LISTS: Final = ("baseManifestList", "deltaManifestList", "changelogManifestList")
_KINDS: Final = ("snapshot", "tag", "changelog")
_BRANCHES: Final = "branch"


class References:
    """Search for a set of file names in all snapshots, tags, changelogs and branches of a table.

    Manifests never change, so each is read once. Each `refresh` reads only new ones. An entry that deletes a
    file also counts as a reference.
    """

    def __init__(self, storage: Storage, names: set[str]) -> None:
        self._storage = storage
        self._names = names
        self._known: set[str] = set()
        """Digests of snapshots, and names of lists and manifests, that were read to their end."""
        self.found: set[str] = set()

    def refresh(self) -> None:
        """Read new snapshots and manifests.

        Raises LakeUnavailable: then no name may be considered unreferenced.
        """
        for file in list(self._entrances()):
            raw = self._storage.read(file)
            if raw is None:
                continue  # it has expired meanwhile
            digest = hashlib.sha256(raw).hexdigest()
            if digest in self._known:
                continue
            try:
                self._read(_fields(file, raw))
            except Gone:
                # An expiry deletes the manifests first. A file that stays without its manifests is damaged,
                # so its references are unknown.
                if self._storage.size(file) is not None:
                    raise LakeUnavailable(
                        f"{file} of {self._storage.uri} is there, but a manifest of it is not: what it refers"
                        " to cannot be told"
                    ) from None
                continue
            self._known.add(digest)

    def _entrances(self) -> Iterator[str]:
        """Yield the files from which readers start: snapshots, tags and changelogs of all branches."""
        folders = ["", *(f"{_BRANCHES}/{name}/" for name in self._storage.names(_BRANCHES))]
        for folder in folders:
            for kind in _KINDS:
                for name in self._storage.names(f"{folder}{kind}"):
                    if name.startswith(f"{kind}-"):
                        yield f"{folder}{kind}/{name}"

    def _read(self, snapshot: dict[str, Any]) -> None:
        for each in _LISTS:
            name = snapshot.get(each)
            if not name or name in self._known:
                continue
            for manifest in records(self._storage, name):
                self._read_manifest(str(manifest["_FILE_NAME"]))
            self._known.add(name)

    def _read_manifest(self, name: str) -> None:
        if name in self._known:
            return
        for entry in records(self._storage, name):
            described = entry["_FILE"]
            present = {described["_FILE_NAME"], *(described.get("_EXTRA_FILES") or ())}
            self.found |= present & self._names
        self._known.add(name)


def _fields(file: str, raw: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(raw)
    except ValueError as error:
        raise LakeUnavailable(f"{file} cannot be read: {error}") from error
    if not isinstance(fields, dict):
        raise LakeUnavailable(f"{file} cannot be read: it is no snapshot")
    return fields
