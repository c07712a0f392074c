"""A Paimon table's snapshots: read, found, and put."""

import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from typing import Any, Final

from sluicegate.lakes.history import PastSnapshot
from sluicegate.lakes.paimon.descent import made_on, stems_from
from sluicegate.lakes.paimon.storage import Storage
from sluicegate.lakes.port import LakeUnavailable, SnapshotRef

VERSION: Final = 3
WRITER: Final = "sluicegate-paimon-1"
DECISION: Final = "sluicegate.decision"
DIGEST: Final = "sluicegate.digest"

_NAME: Final = re.compile(r"snapshot-(\d+)")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot file: its content, and what identifies it."""

    ref: SnapshotRef
    fields: dict[str, Any]

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
    """A manifest list that a snapshot names."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Commit:
    """What a new snapshot says."""

    commit_user: str
    decision: int
    digest: str
    watermark: int | None
    schema_id: int
    base: ListFile
    delta: ListFile
    rows: int
    time_ms: int


class Snapshots:
    """The snapshot folder. A snapshot appears whole and never changes, so its digest identifies it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def at(self, number: int) -> Snapshot | None:
        """That snapshot, None if it is not there. Raises LakeUnavailable."""
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
        """The head, None if the table has no snapshot. Raises LakeUnavailable.

        The hint is believed only if its snapshot is there and none follows it.
        """
        hint = self._hint()
        if hint is not None:
            found = self.at(hint)
            if found is not None and self._storage.size(_file(hint + 1)) is None:
                return found
        for _ in range(3):
            numbers = self._numbers()
            if not numbers:
                return None
            found = self.at(max(numbers))
            if found is not None:
                return found
        raise LakeUnavailable(f"the newest snapshot of {self._storage.uri} vanished while it was read")

    def put(self, number: int, content: bytes) -> bool:
        """Put the snapshot unless its number is taken. Raises as Storage.put_if_absent does."""
        return self._storage.put_if_absent(_file(number), content)

    def settle(self) -> None:
        """Make the names of all snapshots durable, whoever put them. Raises LakeUnavailable."""
        self._storage.settle("snapshot")

    def linked(self, number: int) -> bool:
        """Whether that snapshot is the one that the next was made on. Raises LakeUnavailable."""
        before, after = self.at(number), self.at(number + 1)
        if before is None or after is None:
            return False
        # While its manifests are being removed, a snapshot counts as expired.
        return made_on(self._storage, after.fields, before.fields) is True

    def follows(self, head: Snapshot | None, made: Snapshot) -> bool | None:
        """Whether a snapshot that was just put continues the history that ended in `head`; None: unknown.

        Its number may have been free because a process that was frozen for long put it where the history
        has expired meanwhile, or because the table was rolled back. Expiry goes from the oldest snapshot on,
        so a predecessor that is still there proves that the number was never used. Where none is, what comes
        next must have been made on this very snapshot. Raises LakeUnavailable.
        """
        if head is not None:
            before = self.at(head.ref.id)
            if before is not None:
                return before.ref == head.ref
        numbers = self._numbers()
        older = max((number for number in numbers if number < made.ref.id), default=0)
        if older:
            below = self.at(older)
            # What a rollback left behind is an ancestor; else it may be a stray below a history that expired.
            rolled_back = below is not None and stems_from(self._storage, made.fields, below.fields)
            return False if rolled_back else None
        after = self.at(made.ref.id + 1)
        if after is None:
            return max(numbers, default=0) == made.ref.id
        return made_on(self._storage, after.fields, made.fields)

    def point_to(self, number: int) -> None:
        """Leave a hint where the newest snapshot is."""
        self._storage.hint("snapshot/LATEST", b"%d" % number)

    def withdraw(self, number: int) -> None:
        """Remove a snapshot that does not follow its head; where it is, no reader expects one."""
        self._storage.discard("snapshot", [f"snapshot-{number}"])

    def _numbers(self) -> list[int]:
        matches = (_NAME.fullmatch(name) for name in self._storage.names("snapshot"))
        return [int(match[1]) for match in matches if match]

    def _hint(self) -> int | None:
        raw = (self._storage.read("snapshot/LATEST") or b"").strip()
        return int(raw) if raw.isdigit() else None


def parse(number: int, raw: bytes) -> Snapshot:
    """Raises ValueError, TypeError or AttributeError for what is no snapshot."""
    found = Snapshot(SnapshotRef(number, hashlib.sha256(raw).hexdigest()[:32]), json.loads(raw))
    found.past()
    return found


def _file(number: int) -> str:
    return f"snapshot/snapshot-{number}"


def render(number: int, head: Snapshot | None, commit: Commit) -> bytes:
    """The content of the snapshot that follows `head`, as Paimon's own writers order it."""
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
        # Statistics of the whole table are kept as long as they describe the same columns.
        "statistics": before.get("statistics") if same_schema else None,
        "properties": {DECISION: str(commit.decision), DIGEST: commit.digest},
        "uuid": str(uuid.uuid4()),
        "writerVersion": WRITER,
    }
    kept = {key: value for key, value in fields.items() if value is not None}
    return json.dumps(kept, indent=2).encode()
