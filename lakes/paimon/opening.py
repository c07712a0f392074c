"""The files of a Paimon table that a reader of its newest snapshot opens."""

from typing import Any, Final

from pypaimon.table.row.generic_row import GenericRowDeserializer

from sluicegate.lakes.bases import missing
from sluicegate.lakes.paimon.descent import Gone, records
from sluicegate.lakes.paimon.entries import partition_folder
from sluicegate.lakes.paimon.manifests import FOLDER
from sluicegate.lakes.paimon.snapshots import Snapshot
from sluicegate.lakes.paimon.table import Table
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.samples import MOST, Sampled
from sluicegate.lakes.storage import Storage

_LISTS: Final = ("baseManifestList", "deltaManifestList")
_DELETED: Final = 1


def sample(storage: Storage, head: Snapshot | None) -> list[Sampled]:
    """Return data files of a snapshot. Raises LakeUnavailable if its metadata lacks a file."""
    table = Table(storage)
    table.identity()
    newest = table.newest()
    if head is None:
        return []
    manifests = [name for which in _LISTS for name in _named(storage, str(head.fields[which]))]
    sizes = storage.sizes([f"{FOLDER}/{name}" for name in manifests])
    for name, size in zip(manifests, sizes, strict=True):
        if size is None:
            raise missing(f"{storage.uri}/{FOLDER}/{name}")
    found: list[Sampled] = []
    deleted: set[tuple[bytes, int, str]] = set()
    # An entry that deletes a file comes after the one that adds it.
    for name in reversed(manifests):
        for entry in reversed(_records(storage, name)):
            file = entry["_FILE"]
            key = (entry["_PARTITION"], entry["_BUCKET"], file["_FILE_NAME"])
            if entry["_KIND"] == _DELETED:
                deleted.add(key)
            elif key not in deleted and not file.get("_EXTERNAL_PATH"):
                partition = GenericRowDeserializer.from_bytes(key[0], newest.partition_keys_fields)
                folder = partition_folder(newest, partition, key[1]).folder
                found.append(Sampled(storage, f"{folder}/{key[2]}", file["_FILE_SIZE"]))
        if len(found) >= MOST:
            break
    return found[:MOST]


def _named(storage: Storage, name: str) -> list[str]:
    return [str(meta["_FILE_NAME"]) for meta in _records(storage, name)]


def _records(storage: Storage, name: str) -> list[dict[str, Any]]:
    try:
        return records(storage, name)
    except Gone:
        raise missing(f"{storage.uri}/{FOLDER}/{name}") from None
    except (KeyError, TypeError) as error:
        raise LakeUnavailable(f"{name} of {storage.uri} cannot be read: {error!r}") from error
