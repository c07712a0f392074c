"""Whether one snapshot was made on another: proven by what their manifests hold.

A snapshot does not name the one before it, and row counts may agree by chance. But whoever makes a snapshot
starts from all the manifests of the one before, or from a rewriting of them that holds the same files.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any, Final

import fastavro

from sluicegate.lakes.paimon.storage import Storage
from sluicegate.lakes.port import LakeUnavailable

_FOLDER: Final = "manifest"
_SIGN: Final = {0: 1, 1: -1}
"""Of an entry's kind: it adds a file, or takes one away."""

Fields = Mapping[str, Any]
"""What a snapshot says."""


class Gone(Exception):
    """A list or a manifest is not there any more."""


def made_on(storage: Storage, after: Fields, before: Fields) -> bool | None:
    """Whether `after` starts from the files of `before`; None if what it takes to tell is gone.

    Two snapshots without a file of their own that follow the same one cannot be told apart, and need not be.
    Raises LakeUnavailable.
    """
    try:
        left = _manifests(storage, before, "baseManifestList", "deltaManifestList")
        right = _manifests(storage, after, "baseManifestList")
        # Rewriting only ever drops pairs of an addition and a deletion, so the sums agree.
        return left == right or _files(storage, left - right) == _files(storage, right - left)
    except Gone:
        return None


def stems_from(storage: Storage, after: Fields, before: Fields) -> bool:
    """Whether `after` starts from files that `before` brought. Raises LakeUnavailable."""
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
    """How often each file is there, by partition, bucket and name."""
    found: Counter[tuple[bytes, int, str]] = Counter()
    for name in manifests:
        for entry in records(storage, name):
            file = (entry["_PARTITION"], entry["_BUCKET"], entry["_FILE"]["_FILE_NAME"])
            found[file] += _SIGN[entry["_KIND"]]
    return {file: count for file, count in found.items() if count}


def records(storage: Storage, name: str | None) -> list[dict[str, Any]]:
    """The lines of a manifest list, or the entries of a manifest. Raises Gone, LakeUnavailable."""
    raw = storage.read(f"{_FOLDER}/{name}") if name else None
    if raw is None:
        raise Gone
    try:
        return [dict(record) for record in fastavro.reader(BytesIO(raw)) if isinstance(record, dict)]
    except (ValueError, EOFError, LookupError) as error:
        raise LakeUnavailable(f"{name} of {storage.uri} cannot be read: {error!r}") from error
