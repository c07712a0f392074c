"""Tags of a Paimon table: copies of snapshot files, which Paimon's expiry respects.

The file is that of Paimon's own tags. With a retention it has the two fields that Paimon's upkeep reads.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic_core import to_json

from sluicegate.lakes.paimon.snapshots import DECISION
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import CannotPut, Storage, Uncertain
from sluicegate.lakes.tags import SnapshotExpired, Tag, TagAnswer, TagMade, TagTaken, TagThere

_SAME: Final = ("id", "commitUser", "commitIdentifier", "baseManifestList", "deltaManifestList")
"""Fields that no two snapshots of a table share."""


def make_tag(storage: Storage, tag: Tag) -> TagAnswer:
    """Make a tag, unless its name is taken. Raises LakeUnavailable."""
    name, source = f"tag/tag-{tag.name}", f"snapshot/snapshot-{tag.snapshot.id}"
    found = storage.read(name)
    if found is not None:
        return _compared(storage, tag, found, storage.read(source))
    raw = storage.read(source)
    if raw is None or _identity(raw) != tag.snapshot.identity:
        return SnapshotExpired()
    try:
        put = storage.put_if_absent(name, _content(raw, tag.retained))
    except (Uncertain, CannotPut) as error:
        raise LakeUnavailable(f"the tag {tag.name} was not made, or perhaps it was: {error}") from error
    if not put:
        raise LakeUnavailable(f"another process made the tag {tag.name} meanwhile; it is compared")
    # An expiry that has listed the tags before does not know of this one.
    return TagMade() if storage.size(source) is not None else SnapshotExpired(tag_is_there=True)


def _content(snapshot: bytes, retained: int | None) -> bytes:
    if retained is None:
        return snapshot
    now = datetime.now()
    created = [now.year, now.month, now.day, now.hour, now.minute, now.second, now.microsecond * 1000]
    fields = {**json.loads(snapshot), "tagCreateTime": created, "tagTimeRetained": retained / 1000}
    return to_json(fields, indent=2)


def _compared(storage: Storage, tag: Tag, found: bytes, snapshot: bytes | None) -> TagAnswer:
    """Compare a tag that is there with the snapshot, which may have expired since the tag was made."""
    try:
        fields = json.loads(found)
        same = _is_of(fields, tag, snapshot)
        holder = f"a tag of snapshot {fields['id']}"
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LakeUnavailable(
            f"tag/tag-{tag.name} of {storage.uri} is unreadable: {error!r}. Look at that file"
        ) from error
    return TagThere() if same else TagTaken(holder)


def _is_of(fields: Mapping[str, Any], tag: Tag, snapshot: bytes | None) -> bool:
    if fields["id"] != tag.snapshot.id:
        return False
    if snapshot is not None and _identity(snapshot) == tag.snapshot.identity:
        kept = json.loads(snapshot)
        return all(fields.get(name) == kept.get(name) for name in _SAME)
    # A rollback may have given the number to another snapshot, which is of a later decision, or of none.
    decision = str((fields.get("properties") or {}).get(DECISION, ""))
    return decision.isdigit() and 0 < int(decision) <= tag.decision


def _identity(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:32]
