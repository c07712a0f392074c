"""Proof that one snapshot was made on another, from their manifests.

A snapshot does not name its predecessor, and equal row counts may be a coincidence. But each writer starts
from all manifests of the predecessor, or from a rewritten set with the same files.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sluicegate.lakes import avro
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import Storage

_FOLDER: Final = "manifest"
_SIGN: Final = {0: 1, 1: -1}
"""Change of a file's count by an entry's kind: 0 adds the file, 1 deletes it."""

Fields = Mapping[str, Any]
"""Fields of a snapshot file."""


class Gone(Exception):
    """A manifest list or a manifest no longer exists."""


def made_on(storage: Storage, after: Fields, before: Fields) -> bool | None:
    """Return True if `after` starts from the files of `before`; None if manifests for the proof are missing.

    Two snapshots on the same predecessor that change no files are indistinguishable. The distinction is not
    needed. Raises LakeUnavailable.
    """
    try:
        left = _manifests(storage, before, "baseManifestList", "deltaManifestList")
        right = _manifests(storage, after, "baseManifestList")
        # A rewrite only drops pairs of an addition and a deletion, so the sums stay equal.
        return left == right or _files(storage, left - right) == _files(storage, right - left)
    except Gone:
        return None


def stems_from(storage: Storage, after: Fields, before: Fields) -> bool:
    """Return True if `after` starts from files that `before` added. Raises LakeUnavailable."""
    try:
        brought = _manifests(storage, before, "deltaManifestList")
        present = _manifests(storage, after, "baseManifestList")
        if brought & present:
            return True
        return not _files(storage, brought).keys().isdisjoint(_files(storage, present))
    except Gone:
        return False


def _manifests(storage: Storage, snapshot: Fields, *lists: str) -> set[str]:
    return {str(meta["_FILE_NAME"]) for each in lists for meta in records(storage, snapshot.get(each))}


def _files(storage: Storage, manifests: Iterable[str]) -> dict[tuple[bytes, int, str], int]:
    """Return the net count of each file, by partition, bucket and name."""
    found: Counter[tuple[bytes, int, str]] = Counter()
    for name in manifests:
        for entry in records(storage, name):
            file = (entry["_PARTITION"], entry["_BUCKET"], entry["_FILE"]["_FILE_NAME"])
            found[file] += _SIGN[entry["_KIND"]]
    return {file: count for file, count in found.items() if count}


def records(storage: Storage, name: str | None) -> list[dict[str, Any]]:
    """Return the lines of a manifest list, or the entries of a manifest. Raises Gone or LakeUnavailable."""
    raw = storage.read(f"{_FOLDER}/{name}") if name else None
    if raw is None:
        raise Gone
    try:
        return avro.records(raw)
    except avro.BadContainer as error:
        raise LakeUnavailable(f"{name} of {storage.uri} cannot be read: {error}") from error
