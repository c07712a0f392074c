"""Snapshots of a Paimon table: reading, publication, the proof of their position, and the history."""

import hashlib
import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_core import to_json

from sluicegate.events.models import SnapshotRef
from sluicegate.lakes import avro, history
from sluicegate.lakes.history import Newest, NoParent, PastSnapshot, TableHistory
from sluicegate.lakes.port import Answer, LakeUnavailable, Unproven
from sluicegate.lakes.storage import Storage

# Proof that one snapshot was made on another, from their manifests.
#
# A snapshot does not name its predecessor, and equal row counts may be a coincidence. But each writer
# starts from all manifests of the predecessor, or from a rewritten set with the same files.

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


VERSION: Final = 3
WRITER: Final = "sluicegate-paimon-1"
DECISION: Final = "sluicegate.decision"
DIGEST: Final = "sluicegate.digest"
ACCOUNT: Final = "sluicegate.account"

_NAME: Final = re.compile(r"snapshot-(\d+)")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot file with its identity."""

    ref: SnapshotRef
    fields: dict[str, Any]

    @property
    def account(self) -> str:
        """Text that its commit keeps (`CommitRequest.account`); empty: none."""
        return str((self.fields.get("properties") or {}).get(ACCOUNT, ""))

    def past(self) -> PastSnapshot:
        properties = self.fields.get("properties") or {}
        return PastSnapshot(
            self.ref,
            str(self.fields.get("commitUser", "")),
            int(self.fields.get("commitIdentifier", 0)),
            str(properties.get(DIGEST, "")),
        )


@dataclass(frozen=True, slots=True)
class ListFile:
    """A manifest list that a snapshot names, with its size in bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Content of a new snapshot. `time_ms` and `watermark` are milliseconds since the Unix epoch."""

    commit_user: str
    decision: int
    digest: str
    watermark: int | None
    schema_id: int
    base: ListFile
    delta: ListFile
    rows: int
    time_ms: int
    account: str = ""


class Snapshots:
    """Snapshot folder. A snapshot appears atomically and never changes, so its digest identifies it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def at(self, number: int) -> Snapshot | None:
        """Return a snapshot by its number, None if it does not exist. Raises LakeUnavailable."""
        raw = self._storage.read(_file(number)) if number > 0 else None
        if raw is None:
            return None
        try:
            found = parse(number, raw)
        except (ValueError, TypeError, AttributeError) as error:
            raise LakeUnavailable(
                f"snapshot {number} of {self._storage.uri} is unreadable: {error}"
            ) from error
        return found

    def past(self, number: int) -> PastSnapshot | None:
        found = self.at(number)
        return None if found is None else found.past()

    def newest(self) -> Snapshot | None:
        """Return the newest snapshot, None if the table has none. Raises LakeUnavailable.

        The LATEST hint counts only if its snapshot exists and the next number does not.
        """
        hint = self._hint()
        if hint is not None:
            found = self.at(hint)
            if found is not None and self._storage.size(_file(hint + 1)) is None:
                return found
        # Expiry or a rollback may delete the newest snapshot between the listing and the read.
        for _ in range(3):
            numbers = self._numbers()
            if not numbers:
                return None
            found = self.at(max(numbers))
            if found is not None:
                return found
        raise LakeUnavailable(f"the newest snapshot of {self._storage.uri} vanished while it was read")

    def put_after(
        self, folder: str, files: Mapping[str, bytes], number: int, content: bytes, draft: str
    ) -> bool:
        """Write files of a folder, then put the snapshot; return False if its number is taken.

        Raises as Storage.put_after does.
        """
        return self._storage.put_after(folder, files, _file(number), content, draft)

    def settle(self) -> None:
        """Make the names of all snapshots durable, of any writer. Raises LakeUnavailable."""
        self._storage.settle("snapshot")

    def linked(self, number: int) -> bool:
        """Return True if the snapshot with the next number was made on this one. Raises LakeUnavailable."""
        before, after = self.at(number), self.at(number + 1)
        if before is None or after is None:
            return False
        # A snapshot whose manifests are partly deleted counts as expired.
        return made_on(self._storage, after.fields, before.fields) is True

    def follows(self, head: Snapshot | None, made: Snapshot) -> bool | None:
        """Return True if a new snapshot continues the history that ended in `head`; None: unknown.

        Its number may have been free although it was used before. This happens if a suspended process puts
        the snapshot after the history has expired, or if the table was rolled back. Expiry starts with the
        oldest snapshot, so an existing predecessor proves that the number was never used. Without a
        predecessor, the next snapshot must have been made on this one. Raises LakeUnavailable.
        """
        if head is not None:
            before = self.at(head.ref.id)
            if before is not None:
                return before.ref == head.ref
        numbers = self._numbers()
        older = max((number for number in numbers if number < made.ref.id), default=0)
        if older:
            below = self.at(older)
            # A snapshot left by a rollback is an ancestor. Any other may be an isolated one below an expired
            # history.
            rolled_back = below is not None and stems_from(self._storage, made.fields, below.fields)
            return False if rolled_back else None
        after = self.at(made.ref.id + 1)
        if after is None:
            return max(numbers, default=0) == made.ref.id
        return made_on(self._storage, after.fields, made.fields)

    def point_to(self, number: int) -> None:
        """Write the LATEST hint with the number of the newest snapshot."""
        self._storage.hint("snapshot/LATEST", b"%d" % number)

    def withdraw(self, number: int) -> None:
        """Delete a snapshot that does not follow its head. No reader expects a snapshot at its position."""
        self._storage.discard("snapshot", [f"snapshot-{number}"])

    def _numbers(self) -> list[int]:
        matches = (_NAME.fullmatch(name) for name in self._storage.names("snapshot"))
        return [int(match[1]) for match in matches if match]

    def _hint(self) -> int | None:
        raw = (self._storage.read("snapshot/LATEST") or b"").strip()
        return int(raw) if raw.isdigit() else None


def parse(number: int, raw: bytes) -> Snapshot:
    """Parse a snapshot file. Raises ValueError, TypeError or AttributeError if it is not a snapshot."""
    found = Snapshot(SnapshotRef(number, hashlib.sha256(raw).hexdigest()[:32]), json.loads(raw))
    found.past()
    return found


def _file(number: int) -> str:
    return f"snapshot/snapshot-{number}"


def render(number: int, head: Snapshot | None, commit: Commit) -> bytes:
    """Return the content of the snapshot after `head`, in the field order of Paimon's own writers."""
    before = head.fields if head is not None else {}
    marks = [mark for mark in (before.get("watermark"), commit.watermark) if mark is not None]
    same_schema = before.get("schemaId") == commit.schema_id
    fields = {
        "version": VERSION,
        "id": number,
        "schemaId": commit.schema_id,
        "baseManifestList": commit.base.name,
        "deltaManifestList": commit.delta.name,
        "totalRecordCount": (before.get("totalRecordCount") or 0) + commit.rows,
        "deltaRecordCount": commit.rows,
        "commitUser": commit.commit_user,
        "commitIdentifier": commit.decision,
        "commitKind": "APPEND",
        "timeMillis": commit.time_ms,
        "baseManifestListSize": commit.base.size,
        "deltaManifestListSize": commit.delta.size,
        "indexManifest": before.get("indexManifest"),
        "watermark": max(marks, default=None),
        # Table statistics stay valid while the schema is the same.
        "statistics": before.get("statistics") if same_schema else None,
        "properties": {
            DECISION: str(commit.decision),
            DIGEST: commit.digest,
            **({ACCOUNT: commit.account} if commit.account else {}),
        },
        "uuid": str(uuid.uuid4()),
        "writerVersion": WRITER,
    }
    kept = {key: value for key, value in fields.items() if value is not None}
    # The C encoder of `json` does not indent; that in Python leaves 35 objects to the collector.
    return to_json(kept, indent=2)


_TRIES: Final = 3
"""Heads whose manifests are read; each may expire meanwhile."""


def highest_number(storage: Storage) -> int:
    """Return a sequence number that no row of the newest snapshot exceeds. Raises LakeUnavailable.

    Entries of files that were deleted later count, too: a number that is too high does no harm.
    """
    snapshots = Snapshots(storage)
    for _ in range(_TRIES):
        head = snapshots.newest()
        if head is None:
            return 0
        try:
            return max(_numbers_in(storage, head), default=0)
        except Gone:
            continue
    raise LakeUnavailable(
        f"the manifests of the newest snapshot of {storage.uri} vanished while they were read. If snapshots "
        "expire that fast, keep more of them; else restore the manifests"
    )


def _numbers_in(storage: Storage, head: Snapshot) -> Iterator[int]:
    """Yield the highest number of each file of a snapshot. Raises Gone or LakeUnavailable."""
    for which in ("baseManifestList", "deltaManifestList"):
        for meta in records(storage, head.fields[which]):
            for entry in records(storage, meta["_FILE_NAME"]):
                yield int(entry["_FILE"]["_MAX_SEQUENCE_NUMBER"])


# The history of a Paimon table, read back by the numbers of its snapshots.

_FIRST: Final = 1


class Ancestry:
    """The snapshots below one head, for one question.

    A snapshot does not name its parent, which has the number before. But a process that stood still may put a
    snapshot right below the history, where others have expired. Such a stray is in no history, and holds
    nothing that a reader sees. So when the walk of a question ends at a stray, the question is asked again
    without strays.
    """

    def __init__(self, snapshots: Snapshots, head: Snapshot | None) -> None:
        self._snapshots = snapshots
        self._head = head.past() if head is not None else None
        self._last = head.ref if head is not None else None
        """The oldest snapshot that was read."""
        self._oldest = _FIRST
        """The number where the history begins, as far as that is known."""

    def look_for(self, commit_user: str, asked: tuple[int, str], recorded: SnapshotRef | None) -> Answer:
        """Answer whether a decision is in the history, as `history.look_for` does. Raises LakeUnavailable."""
        answer = history.look_for(self._head, self._parent, self._at, commit_user, asked, recorded)
        stray = self._leave_out_strays(recorded)
        if stray is None:
            return answer
        answer = history.look_for(self._head, self._parent, self._at, commit_user, asked, recorded)
        if not isinstance(answer, Unproven):
            return answer
        late = {"stray": stray, "oldest": self._oldest}
        return replace(answer, cause=answer.cause.model_copy(update=late) if answer.cause else None)

    def newest_decisions(self, commit_user: str) -> Newest:
        """Return the highest decisions of this user in the history. Raises LakeUnavailable."""
        found = history.newest_decisions(self._head, self._parent, self._at, commit_user)
        if self._leave_out_strays(None) is None:
            return found
        return history.newest_decisions(self._head, self._parent, self._at, commit_user)

    def history(self, identity: str) -> TableHistory:
        """Read the history back from its head. Raises LakeUnavailable."""
        found = history.read_history(identity, self._head, self._parent)
        if self._leave_out_strays(None) is None:
            return found
        return history.read_history(identity, self._head, self._parent)

    def _parent(self, past: PastSnapshot) -> PastSnapshot | NoParent:
        if past.ref.id == _FIRST:
            return NoParent.FIRST
        found = self._at(past.ref.id - 1)
        if found is None:
            return NoParent.UNREADABLE
        self._last = found.ref
        return found

    def _at(self, number: int) -> PastSnapshot | None:
        return self._snapshots.past(number) if number >= self._oldest else None

    def _leave_out_strays(self, recorded: SnapshotRef | None) -> int | None:
        """Find where the history begins; returns the number of the oldest stray that was read, if any.

        History expires from its oldest snapshot on, so strays are below all of it: all snapshots above one
        of the history are of the history too. One that was recorded, or that the next was made on, is.
        """
        last, head = self._last, self._head
        if last is None or head is None or last in (head.ref, recorded):
            return None
        if recorded is not None:
            there = self._at(recorded.id)
            if there is not None and there.ref == recorded:
                return None
        numbers = range(last.id, head.ref.id)
        self._oldest = next(filter(self._snapshots.linked, numbers), head.ref.id)
        return last.id if self._oldest > last.id else None
