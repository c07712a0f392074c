"""The files of an Iceberg table that a reader of its newest snapshot opens."""

from collections.abc import Iterator
from typing import Final

from sluicegate.lakes.avro import BadContainer, records
from sluicegate.lakes.bases import missing
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.lists import Lists
from sluicegate.lakes.iceberg.metadata import Snapshot
from sluicegate.lakes.port import LakeError, LakeUnavailable, TableRefused
from sluicegate.lakes.samples import MOST, Sampled, first_of, spread

_NEWEST: Final = 3
_MANIFESTS: Final = 16
"""Manifests that are read; all others are looked at."""
_DELETED: Final = 2


def sample(files: Files, head: Snapshot | None) -> list[Sampled]:
    """Return data files and delete files of a snapshot. Raises LakeUnavailable if a manifest is missing."""
    if head is None or "manifest-list" not in head:
        return []
    path = str(head["manifest-list"])
    try:
        manifests = [line.path for line in Lists(_NEWEST, "null").read(_read(files, path))]
    except (BadContainer, LakeError) as error:
        raise unreadable(path, error) from error
    for manifest, size in zip(manifests, files.sizes(manifests), strict=True):
        if size is None:
            raise missing(manifest)
    found = [first_of(_live(files, manifest)) for manifest in spread(manifests, _MANIFESTS)]
    return spread([each for of_one in found for each in of_one], MOST)


def _live(files: Files, manifest: str) -> Iterator[Sampled]:
    """Yield the files of one manifest. Raises LakeUnavailable."""
    try:
        for entry in records(_read(files, manifest)):
            if entry["status"] != _DELETED:
                file = entry["data_file"]
                storage, path = files.place(file["file_path"])
                yield Sampled(storage, path, file["file_size_in_bytes"])
    except (BadContainer, KeyError, TypeError, TableRefused) as error:
        raise unreadable(manifest, error) from error


def _read(files: Files, path: str) -> bytes:
    raw = files.read(path)
    if raw is None:
        raise missing(path)
    return raw


def unreadable(path: str, error: Exception) -> LakeUnavailable:
    """Return the error of a file of the metadata that is damaged."""
    if isinstance(error, LakeUnavailable):
        return error
    return LakeUnavailable(f"{path} cannot be read: {error}. Restore the file from a backup")
