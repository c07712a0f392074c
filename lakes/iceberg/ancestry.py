"""The history of a branch of an Iceberg table: snapshots name their parents."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from sluicegate.events.models import SnapshotRef, TableVersion
from sluicegate.lakes import history
from sluicegate.lakes.history import Evidence, Marker, Newest, NoParent, PastSnapshot, TableHistory
from sluicegate.lakes.iceberg.metadata import MAIN, Metadata, Snapshot
from sluicegate.lakes.port import Answer

USER: Final = "sluicegate.user"
DECISION: Final = "sluicegate.decision"
DIGEST: Final = "sluicegate.digest"
WATERMARK: Final = "sluicegate.watermark"
"""Keys of a snapshot's summary. The watermark is in milliseconds since the Unix epoch."""
_COMMITTED: Final = "sluicegate.committed"
_ACCOUNT: Final = "sluicegate.account"
_VECTOR: Final = "sluicegate.cut"
_SOURCE: Final = "source-snapshot-id"
"""Iceberg's key in the summary of a snapshot that was picked from another branch, or from the past."""


class Ancestry:
    """One branch of one state of a table, for questions about its history."""

    def __init__(
        self,
        metadata: Metadata,
        branch: str,
        has_files_of: Callable[[Snapshot, Snapshot], bool] | None = None,
    ) -> None:
        """Find the head. Raises LakeUnavailable if the branch does not exist.

        `has_files_of` returns True if the first snapshot shows files that the second one added.
        """
        self._metadata = metadata
        self._branch = branch
        self._has_files_of = has_files_of
        self._head = metadata.head(branch)

    def look_for(self, commit_user: str, asked: tuple[int, str], recorded: SnapshotRef | None) -> Answer:
        """Answer whether a decision is in the history, as `history.look_for` does."""
        marker = self._marker(commit_user)
        # A snapshot of unknown origin cannot be a decision of which the table was never given the mark.
        guarded = marker is None or marker.decision >= asked[0]
        parent = self._known_parent if guarded else self._parent
        return history.look_for(self._newest, parent, self._at, commit_user, asked, recorded, marker)

    def evidence(self, commit_user: str, asked: tuple[int, str], newest: TableVersion) -> Evidence:
        """Return what a further table shows about a decision, as `history.evidence_of` does."""
        known = self._newest, self._known_parent, self._at
        return history.evidence_of(*known, commit_user, asked, newest, self._marker(commit_user))

    def newest_decisions(self, commit_user: str) -> Newest:
        """Return the highest decisions of this user."""
        marker = self._marker(commit_user)
        return history.newest_decisions(self._newest, self._parent, self._at, commit_user, marker)

    def _marker(self, commit_user: str) -> Marker | None:
        """Return the mark of a user, with the proof of its place where the history between has expired.

        A tag, or another branch, keeps a snapshot while those after it expire.
        """
        marker = marker_of(self._metadata, commit_user, self._branch)
        below = self._head
        while marker is not None and below is not None and ref_of(below).id > marker.snapshot.id:
            before = self._before(below)
            if isinstance(before, NoParent):
                return marker._replace(certain=self._is_made_on(marker.snapshot))
            below = before
        return marker

    def _is_made_on(self, ref: SnapshotRef) -> bool:
        """Return True if the head shows files that a listed snapshot added."""
        there = self._metadata.by_id.get(_number(ref.identity) or 0)
        if self._has_files_of is None or self._head is None or there is None:
            return False
        return self._has_files_of(self._head, there)

    def history(self) -> TableHistory:
        """Read the history back from its head."""
        return history.read_history(self._metadata.identity, self._newest, self._parent)

    @property
    def _newest(self) -> PastSnapshot | None:
        return past_of(self._head, self._metadata) if self._head is not None else None

    def child_of(self, ref: SnapshotRef | None) -> PastSnapshot | None:
        """Return the snapshot of the history that was made on this one; None: on the empty branch."""
        past: PastSnapshot | NoParent | None = self._newest
        while isinstance(past, PastSnapshot):
            parent = self._parent(past)
            if parent is NoParent.FIRST:
                return past if ref is None else None
            if isinstance(parent, PastSnapshot) and parent.ref == ref:
                return past
            past = parent
        return None

    def watermark(self) -> int | None:
        """Return the newest watermark of the history, in milliseconds; None if there is none."""
        snapshot = self._head
        while snapshot is not None:
            summary = snapshot.get("summary") or {}
            value = _number(summary.get(WATERMARK))
            # Each commit of this product repeats the watermark before it, so there is none below one without.
            if value is not None or DECISION in summary:
                return value
            before = self._before(snapshot)
            if before is NoParent.UNREADABLE:
                return self._kept_watermark()
            snapshot = before if not isinstance(before, NoParent) else None
        return None

    def _kept_watermark(self) -> int | None:
        """Return the watermark that the table's property has: the snapshot with it has expired."""
        name = watermark_property(self._branch)
        identity, _, value = self._metadata.properties.get(name, "").partition(":")
        return _number(value) if identity == self._metadata.identity else None

    def _parent(self, past: PastSnapshot) -> PastSnapshot | NoParent:
        before = self._before(self._metadata.by_id[int(past.ref.identity)])
        return before if isinstance(before, NoParent) else past_of(before, self._metadata)

    def _known_parent(self, past: PastSnapshot) -> PastSnapshot | NoParent:
        """Return the parent, unless this snapshot is the copy of one that has expired: it may be a commit."""
        snapshot = self._metadata.by_id[int(past.ref.identity)]
        unknown = not past.digest and _origin(snapshot, self._metadata) is None
        return NoParent.UNREADABLE if unknown else self._parent(past)

    def _before(self, snapshot: Snapshot) -> Snapshot | NoParent:
        position, parent = ref_of(snapshot).id, snapshot.get("parent-snapshot-id")
        if parent is None or parent == -1:
            return NoParent.FIRST if self._nothing_expired_before(position) else NoParent.UNREADABLE
        before = self._metadata.by_id.get(parent)
        # Snapshots of format version 1 have no sequence numbers, so nothing shows their order.
        if before is None or ref_of(before).id >= position:
            return NoParent.UNREADABLE
        return before

    def _nothing_expired_before(self, sequence_number: int) -> bool:
        """Return True if every lower sequence number is still there.

        Some tools remove the name of the parent from a snapshot when they expire that parent. Such a snapshot
        looks like the first one.
        """
        known = self._metadata.by_sequence
        return all(number in known for number in range(1, sequence_number))

    def _at(self, position: int) -> PastSnapshot | None:
        found = self._metadata.by_sequence.get(position)
        return past_of(found, self._metadata) if found is not None else None


def ref_of(snapshot: Snapshot) -> SnapshotRef:
    """Return a snapshot's position, which is its sequence number, and its identity."""
    return SnapshotRef(int(snapshot.get("sequence-number") or 0), str(snapshot["snapshot-id"]))


def past_of(snapshot: Snapshot, metadata: Metadata) -> PastSnapshot:
    """Return the commit that made a snapshot.

    A snapshot that its owner picked from elsewhere (cherry-pick) has the files of that one. So it counts as
    the same commit, for example after a rollback.
    """
    ref, origin = ref_of(snapshot), _origin(snapshot, metadata)
    if origin is None:
        return _marked(snapshot, metadata) or PastSnapshot(ref, "", 0, "")
    summary: Mapping[str, Any] = origin.get("summary") or {}
    user, decision = str(summary.get(USER) or ""), _number(summary.get(DECISION))
    if not user or decision is None:
        return PastSnapshot(ref, str(summary.get("engine-name") or ""), 0, "")
    return PastSnapshot(ref, user, decision, str(summary.get(DIGEST) or ""))


def _origin(snapshot: Snapshot, metadata: Metadata) -> Snapshot | None:
    """Return the snapshot that a copy comes from, itself if it is none; None if that has expired."""
    found: Snapshot | None = snapshot
    while found is not None and (source := _source_of(found)) is not None:
        found = metadata.by_id.get(source)
    return found


def _source_of(snapshot: Snapshot) -> int | None:
    """Return the id of the snapshot that this one is a copy of (cherry-pick), None for any other."""
    return _number((snapshot.get("summary") or {}).get(_SOURCE))


def _marked(snapshot: Snapshot, metadata: Metadata) -> PastSnapshot | None:
    """Return the commit of a copy whose source has expired, if a mark in the properties shows it."""
    for name in metadata.properties:
        if name.startswith(f"{_COMMITTED}."):
            user, _, branch = name.removeprefix(f"{_COMMITTED}.").partition("@")
            marker = marker_of(metadata, user, branch or MAIN)
            if marker is not None and marker.snapshot.identity == str(_source_of(snapshot)):
                return PastSnapshot(ref_of(snapshot), user, marker.decision, marker.digest)
    return None


def marker_property(commit_user: str, branch: str) -> str:
    """Return the name of the property with the newest commit of a user. Names cannot contain `@`."""
    return f"{_COMMITTED}.{commit_user}" + ("" if branch == MAIN else f"@{branch}")


def account_property(commit_user: str, branch: str) -> str:
    """Return the name of the property with the account of a user's newest commit."""
    return f"{_ACCOUNT}.{commit_user}" + ("" if branch == MAIN else f"@{branch}")


def vector_property(commit_user: str, branch: str) -> str:
    """Return the name of the anchor's property with the vector of a user's newest commit."""
    return f"{_VECTOR}.{commit_user}" + ("" if branch == MAIN else f"@{branch}")


def vector_text(decision: int, anchor: int, vector: Mapping[str, TableVersion]) -> str:
    """Return the value of that property: JSON that readers in any language read.

    It has the decision, the anchor's snapshot id, and by name the newest decision of each further table with
    its snapshot id. Null: no decision has touched the table, or its snapshot had expired.
    """
    tables = {
        name: [each.decision, int(each.snapshot.identity) if each.snapshot is not None else None]
        for name, each in sorted(vector.items())
    }
    return json.dumps({"decision": decision, "anchor": anchor, "tables": tables}, separators=(",", ":"))


def watermark_property(branch: str) -> str:
    """Return the name of the property with the watermark of the newest commit of this product."""
    return WATERMARK + ("" if branch == MAIN else f"@{branch}")


def marker_text(identity: str, marker: Marker) -> str:
    """Return the value of the property, for the table of this identity."""
    ref = marker.snapshot
    return f"{identity}:{marker.decision}:{ref.id}:{ref.identity}:{marker.digest}"


def marker_of(metadata: Metadata, commit_user: str, branch: str) -> Marker | None:
    """Return the table's mark of the newest commit of a user; None if there is none that can be read.

    A copy of a table may copy its properties, so the value names its table.
    """
    parts = metadata.properties.get(marker_property(commit_user, branch), "").split(":", 4)
    if len(parts) < 5 or parts[0] != metadata.identity:
        return None
    decision, position = _number(parts[1]), _number(parts[2])
    if decision is None or position is None:
        return None
    return Marker(decision, parts[4], SnapshotRef(position, parts[3]))


def _number(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None
