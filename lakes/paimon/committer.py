"""Committer half of the adapter: searches a Paimon table for a decision, and publishes one."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sluicegate.events.models import FilesWritten, SnapshotRef
from sluicegate.events.problems import Cause, CauseCode
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.lakes.committer import (
    BaseCommitter,
    EventContents,
    check_files,
    checked_event,
    made_by,
    outcome_unknown,
    overtaken,
    prepare_describer,
    refuse_other_format,
    refuse_other_schema,
    refuse_specs,
    require_schema_id,
    with_metadata,
    with_overwriting,
)
from sluicegate.lakes.drafts import draft_names
from sluicegate.lakes.paimon.entries import FORMAT, FORMAT_VERSION, Entries, Examiner
from sluicegate.lakes.paimon.manifests import FOLDER, Draft, Manifests, UnknownMetadata
from sluicegate.lakes.paimon.snapshots import VERSION, Ancestry, Commit, Snapshot, Snapshots, parse, render
from sluicegate.lakes.paimon.table import Table, layout
from sluicegate.lakes.port import (
    Answer,
    BadFiles,
    Checked,
    CommitRequest,
    Found,
    LakeUnavailable,
    OutcomeUnknown,
    Premises,
    Publication,
    Published,
    Refused,
    TableRefused,
    TableReplaced,
    TableState,
)
from sluicegate.lakes.storage import CannotPut, Storage, Uncertain

if TYPE_CHECKING:
    from sluicegate.lakes.paimon.plain_files import Describer


class PaimonCommitter(BaseCommitter):
    """Committer for one table and one commit user. Not safe for concurrent calls."""

    def __init__(self, storage: Storage, commit_user: str) -> None:
        self._storage = storage
        self._user = commit_user
        self._table = Table(storage)
        self._snapshots = Snapshots(storage)
        self._opened: _Opened | None = None
        self._describers: dict[int, Describer] = {}
        """By schema id. Schemas never change."""
        self._identity = ""
        """Of the table that was asked last."""

    def inspect(self) -> TableState:
        self._open()
        head = self._snapshots.newest()
        if head is not None:
            _check_version(head)
        self._identity = self._table.identity()
        newest = Ancestry(self._snapshots, head).newest_decisions(self._user)
        joined = layout(self._table.newest().table_schema).joined
        return TableState(self._identity, head.ref if head is not None else None, *newest, joined)

    def ask(self, decision: int, digest: str, table: str, recorded: SnapshotRef | None) -> Answer:
        identity = self._table.identity()
        if identity != table:
            return TableReplaced(identity)
        self._identity = identity
        ancestry = Ancestry(self._snapshots, self._snapshots.newest())
        answer = ancestry.look_for(self._user, (decision, digest), recorded)
        if isinstance(answer, Found):
            # The process that linked the snapshot may have died before the link was durable.
            self._snapshots.settle()
        return with_overwriting(answer, self._storage)

    def identity(self) -> str:
        return self._table.identity()

    def premises(self) -> Premises:
        # First, since a table that is away is no table out of scope: LakeUnavailable, not TableRefused.
        identity = self._table.identity()
        return _premises(identity, self._open())

    def check(self, files: Sequence[FilesWritten]) -> list[Checked]:
        premises = self.premises()
        return check_files(files, lambda event: self._checked(event, premises), self._storage)

    def _checked(self, event: FilesWritten, premises: Premises) -> Checked:
        """Check all that an event itself can prove, with the footers of files without metadata.

        Raises BadFiles or LakeUnavailable.
        """
        refuse_other_format(event, FORMAT)
        refuse_specs(event, FORMAT)
        require_schema_id(event, "Paimon")
        if not self._table.has_schema(event.schema_id):
            raise BadFiles(f"the files were written with schema {event.schema_id}, which the table lacks")
        if event.schema_digest:
            refuse_other_schema(event, self._table.schema_digest(event.schema_id))
        entries = self._open().examiner.examine(self._with_metadata(event))
        return checked_event(event, premises, entries, len(entries.encoded))

    def _with_metadata(self, event: FilesWritten) -> FilesWritten:
        """Return an event with metadata for each file. Raises BadFiles or LakeUnavailable."""
        storage, describer = self._storage, lambda: self._describer(event.schema_id).describe
        return with_metadata(event, FORMAT, FORMAT_VERSION, storage.uri, storage, describer)

    def _describer(self, schema_id: int) -> "Describer":
        from sluicegate.lakes.paimon.plain_files import Describer

        if schema_id not in self._describers:
            schema = self._table.at(schema_id)
            self._describers[schema_id] = prepare_describer(lambda: Describer(schema))
        return self._describers[schema_id]

    def _publish(self, request: CommitRequest) -> Publication:
        if self._table.identity() != self._identity:
            return Refused(cause=Cause(code=CauseCode.OTHER_TABLE), again=True)
        head = self._snapshots.newest()
        # The decision was made on `request.head`: on another head, the request may be committed already.
        if (head.ref if head is not None else None) != request.head:
            return self._ours(request, head) or overtaken(
                request.head, head.past() if head is not None else None
            )
        try:
            if head is not None:
                _check_version(head)
            opened = self._open()
            reading = EventContents(request.files, self.check, _premises(self._identity, opened), Entries)
            names = draft_names(self._identity, "", self._user, request.decision)
            draft = opened.manifests.compose(head, reading, names)
        except (BadFiles, TableRefused, UnknownMetadata) as error:
            return Refused(str(error))
        return self._put(request, head, draft, opened.schema_id, reading.rows)

    def close(self) -> None:
        """Nothing is held."""

    def _put(
        self, request: CommitRequest, head: Snapshot | None, draft: Draft, schema_id: int, rows: int
    ) -> Publication:
        """Write the manifests, then the snapshot that makes them visible."""
        commit = Commit(
            commit_user=self._user,
            decision=request.decision,
            digest=request.digest,
            watermark=request.watermark,
            schema_id=schema_id,
            base=draft.base,
            delta=draft.delta,
            rows=rows,
            time_ms=time.time_ns() // 1_000_000,
            account=request.account,
        )
        number = head.ref.id + 1 if head is not None else 1
        content = render(number, head, commit)
        made, name = parse(number, content), draft.files.names.name("draft")
        try:
            put = self._snapshots.put_after(FOLDER, draft.files, number, content, name)
        except Uncertain as error:
            return OutcomeUnknown(str(error))
        except (CannotPut, LakeUnavailable) as error:
            # The snapshot was certainly not put, so nothing refers to these manifests.
            self._storage.discard(FOLDER, list(draft.files))
            if isinstance(error, CannotPut):
                return Refused(str(error), Cause(code=error.code))
            raise
        return self._settled(head, made) if put else self._taken(request, head, made, draft)

    def _settled(self, head: Snapshot | None, made: Snapshot) -> Publication:
        """Return the outcome of a snapshot that was put. It counts only if it follows the requested head."""
        number = made.ref.id
        try:
            follows = self._snapshots.follows(head, made)
        except LakeUnavailable as error:
            return outcome_unknown(CauseCode.POSITION_UNREADABLE, number, error)
        if follows:
            self._snapshots.point_to(number)
            return Published(made.ref)
        if follows is None:
            return outcome_unknown(CauseCode.SUCCESSOR_GONE, number)
        # A newer snapshot exists that was not made on this one, so no reader uses this one, now or later.
        hit(Failpoint.PAIMON_WITHDRAW_BEFORE)
        self._snapshots.withdraw(number)
        hit(Failpoint.PAIMON_WITHDRAW_AFTER)
        return outcome_unknown(CauseCode.WITHDRAWN, number)

    def _taken(
        self, request: CommitRequest, head: Snapshot | None, made: Snapshot, draft: Draft
    ) -> Publication:
        """Return the outcome if the snapshot's number was taken.

        It was taken by another writer, or by this same commit after a lost acknowledgement.
        """
        number = made.ref.id
        try:
            there = self._snapshots.at(number)
            self._snapshots.settle()
        except LakeUnavailable as error:
            return outcome_unknown(CauseCode.TAKER_UNREADABLE, number, error)
        if there is None:
            return outcome_unknown(CauseCode.TAKER_GONE, number)
        if there.ref == made.ref:
            return self._settled(head, made)
        hit(Failpoint.LAKE_DISCARD_BEFORE)
        self._storage.discard(FOLDER, list(draft.files))
        hit(Failpoint.LAKE_DISCARD_AFTER)
        if not made_by(there.past(), self._user, request):
            return overtaken(request.head, there.past())
        try:
            if self._snapshots.follows(head, there):
                return Published(there.ref)
        except LakeUnavailable as error:
            return outcome_unknown(CauseCode.POSITION_UNREADABLE, number, error)
        return outcome_unknown(CauseCode.POSITION_UNPROVEN, number)

    def _ours(self, request: CommitRequest, newest: Snapshot | None) -> Published | None:
        """Return this request's own snapshot if it already follows the requested head, else None."""
        if request.head is not None:
            before = self._snapshots.at(request.head.id)
            if before is None or before.ref != request.head:
                return None
        there = self._snapshots.past(request.head.id + 1 if request.head is not None else 1)
        if there is None or not made_by(there, self._user, request):
            return None
        # An existing predecessor proves the position; the first snapshot has no predecessor.
        proven = request.head is not None or (newest is not None and newest.ref == there.ref)
        if not proven and not self._snapshots.linked(there.ref.id):
            return None
        self._snapshots.settle()
        return Published(there.ref)

    def _open(self) -> "_Opened":
        """Return the objects that depend on the newest schema. Raises TableRefused if it is out of scope."""
        table = self._table.newest()
        schema_id = int(table.table_schema.id)
        digest = self._table.schema_digest(schema_id)
        if self._opened is None or (self._opened.schema_id, self._opened.digest) != (schema_id, digest):
            # The writer that has put the schema may have died before it was durable.
            self._storage.settle_files([f"schema/schema-{schema_id}"])
            examiner = Examiner(table, self._storage.uri, lambda number: self._table.at(number).fields)
            self._opened = _Opened(schema_id, digest, examiner, Manifests(self._storage, table))
            self._describers.clear()
        return self._opened


def _check_version(head: Snapshot) -> None:
    version = head.fields.get("version", VERSION)
    if version > VERSION:
        raise TableRefused(
            f"snapshot {head.ref.id} has version {version}; this release knows up to {VERSION}"
        )


class _Opened(NamedTuple):
    """Objects that depend on the newest schema."""

    schema_id: int
    digest: str
    examiner: Examiner
    manifests: Manifests


def _premises(identity: str, opened: _Opened) -> Premises:
    return Premises(identity, f"{opened.schema_id} {opened.digest}")
