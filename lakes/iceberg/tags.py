"""Tags of an Iceberg table: references of its metadata to snapshots."""

import time
from collections.abc import Callable
from typing import Final

from sluicegate.lakes.iceberg.catalog import Catalog
from sluicegate.lakes.iceberg.metadata import Metadata, NewTag
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import Uncertain
from sluicegate.lakes.tags import SnapshotExpired, Tag, TagAnswer, TagMade, TagTaken, TagThere

_TRIES: Final = 20
"""Commits of others that may come in between before the caller tries again later."""


def make_tag(catalog: Catalog, load: Callable[[], Metadata], tag: Tag) -> TagAnswer:
    """Make a tag, unless its name is taken. Raises LakeUnavailable or TableRefused."""
    for _ in range(_TRIES):
        metadata = load()
        ref = (metadata.fields.get("refs") or {}).get(tag.name)
        if ref is not None:
            kind, holder = ref.get("type", "branch"), str(ref["snapshot-id"])
            same = kind == "tag" and holder == tag.snapshot.identity
            return TagThere() if same else TagTaken(f"a {kind} of snapshot {holder}")
        snapshot = int(tag.snapshot.identity)
        if snapshot not in metadata.by_id:
            return SnapshotExpired()
        change = NewTag(tag.name, snapshot, tag.retained, time.time_ns() // 1_000_000)
        try:
            if catalog.commit(metadata, change, {}):
                return TagMade()
        except Uncertain as error:
            raise LakeUnavailable(f"the tag {tag.name} was not made, or perhaps it was: {error}") from error
    raise LakeUnavailable(f"the tag {tag.name} was not made: other writers changed the table each time")
