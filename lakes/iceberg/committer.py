"""Committer half of the adapter: searches an Iceberg table for a decision, and publishes one."""

import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sluicegate.events.models import FilesWritten, SnapshotRef, TableVersion
from sluicegate.events.problems import Cause, CauseCode
from sluicegate.lakes.committer import (
    OVERTAKEN,
    BaseCommitter,
    Describe,
    EventContents,
    check_files,
    checked_event,
    made_by,
    overtaken,
    with_metadata,
)
from sluicegate.lakes.drafts import draft_names
from sluicegate.lakes.group import Vector
from sluicegate.lakes.history import Evidence, Marker
from sluicegate.lakes.iceberg.ancestry import (
    DECISION,
    DIGEST,
    USER,
    WATERMARK,
    Ancestry,
    account_property,
    marker_property,
    marker_text,
    past_of,
    ref_of,
    vector_property,
    vector_text,
    watermark_property,
)
from sluicegate.lakes.iceberg.catalog import Catalog, NoTable
from sluicegate.lakes.iceberg.entries import Entries, Examiner
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.layout import FORMAT, FORMAT_VERSION, UnknownMetadata
from sluicegate.lakes.iceberg.manifests import Draft, Drafts, NewSnapshot, summary_totals
from sluicegate.lakes.iceberg.metadata import Append, Metadata, Snapshot
from sluicegate.lakes.iceberg.table import TableView, parts_of
from sluicegate.lakes.port import (
    Answer,
    BadFiles,
    Checked,
    CommitRequest,
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
from sluicegate.lakes.storage import Uncertain

if TYPE_CHECKING:
    from sluicegate.lakes.iceberg.plain_files import Describers

_NUMBERS_BYTES: Final = 16
"""Memory for the two numbers of each file."""


class IcebergCommitter(BaseCommitter):
    """Committer for one branch of one table and one commit user. Not safe for concurrent calls."""

    def __init__(self, catalog: Catalog, files: Files, commit_user: str, branch: str) -> None:
        self.catalog = catalog
        self._files = files
        self.user = commit_user
        self.branch = branch
        self._identity = ""
        """Of the table that was asked last."""
        self._viewed: tuple[str, TableView] | None = None
        """View of one metadata file, by its location."""
        self._opened: tuple[TableView, Examiner, Drafts] | None = None
        """Examiner and drafts for one state of the schemas, specs and properties."""
        self._describers: Describers | None = None

    def inspect(self) -> TableState:
        metadata = self.load()
        self.view(metadata)
        head = metadata.head(self.branch)
        self._identity = metadata.identity
        newest = self.ancestry(metadata).newest_decisions(self.user)
        return TableState(self._identity, ref_of(head) if head is not None else None, *newest)

    def ask(self, decision: int, digest: str, table: str, recorded: SnapshotRef | None) -> Answer:
        metadata = self.load()
        if metadata.identity != table:
            return TableReplaced(metadata.identity)
        self._identity = metadata.identity
        return self.ancestry(metadata).look_for(self.user, (decision, digest), recorded)

    def ancestry(self, metadata: Metadata) -> Ancestry:
        return Ancestry(metadata, self.branch, partial(self._has_files_of, metadata))

    def _require_base(self, metadata: Metadata, head: Snapshot | None) -> None:
        """Prove that what a commit on a head builds on is there. Raises LakeUnavailable or TableRefused.

        The catalog alone proves nothing: its entry stays while the files are away.
        """
        drafts = self._open(self.view(metadata))[2]
        with suppress(UnknownMetadata):
            drafts.require_base(metadata, head, with_file=self.catalog.reads_files)

    def _has_files_of(self, metadata: Metadata, head: Snapshot, other: Snapshot) -> bool:
        """Return True if the manifests of a head show that it was made on another snapshot."""
        try:
            return self._open(self.view(metadata))[2].has_files_of(head, other)
        except (TableRefused, UnknownMetadata):
            return False

    def identity(self) -> str:
        return self.load().identity

    def premises(self) -> Premises:
        return self.view(self.load()).premises

    def check(self, files: Sequence[FilesWritten]) -> list[Checked]:
        return self._check(self.view(self.load()), files)

    def _check(self, view: TableView, files: Sequence[FilesWritten]) -> list[Checked]:
        examiner = self._open(view)[1]
        return check_files(
            [self._with_metadata(view, event) for event in files],
            lambda event: _checked(event, view.premises, examiner),
            self._files.folder(view.data_location),
            self._require_table,
        )

    def _require_table(self) -> None:
        """Raise LakeUnavailable if the table is away, and not only a file of an event."""
        metadata = self.load()
        self._require_base(metadata, metadata.head(self.branch))

    def _with_metadata(self, view: TableView, event: FilesWritten) -> FilesWritten:
        """Return an event with metadata for each file. Raises BadFiles or LakeUnavailable."""
        return with_metadata(
            event,
            FORMAT,
            FORMAT_VERSION,
            view.event_location,
            self._files.folder(view.data_location),
            lambda: self._describe(view, event),
        )

    def _describe(self, view: TableView, event: FilesWritten) -> "Describe | None":
        """Return what describes the files of an event; None if the table lacks their schema or spec."""
        from sluicegate.lakes.iceberg.plain_files import Describers

        if self._describers is None or self._describers.table is not view:
            self._describers = Describers(view)
        describer = self._describers.of(event.schema_id, event.spec_id)
        return describer.describe if describer is not None else None

    def _publish(self, request: CommitRequest) -> Publication:
        try:
            return self._publish_once(request)
        except TableRefused as error:
            return Refused(str(error))

    def _publish_once(self, request: CommitRequest) -> Publication:
        made = self.compose(request, self.load())
        return self._put(request, made) if isinstance(made, Composed) else made

    def compose(self, request: CommitRequest, metadata: Metadata) -> "Composed | Publication":
        """Return the commit of a request on this state, or why there is none. Nothing is written.

        Raises LakeUnavailable, TableRefused, or Outdated.
        """
        if metadata.identity != self._identity:
            return Refused(cause=Cause(code=CauseCode.OTHER_TABLE), again=True)
        head = metadata.head(self.branch)
        # The decision was made on `request.head`: on another head, the request may be committed already.
        if (ref_of(head) if head is not None else None) != request.head:
            return self._ours(request, metadata) or self._overtaken(request.head, metadata)
        self._require_base(metadata, head)
        names = draft_names(metadata.identity, self.branch, self.user, request.decision)
        new = NewSnapshot(_new_id(metadata), metadata.next_sequence_number, head, names)
        try:
            view = self.view(metadata)
            reading = EventContents(request.files, partial(self._check, view), view.premises, Entries)
            draft = self._open(view)[2].compose(metadata, new, reading)
        except (BadFiles, TableRefused, UnknownMetadata) as error:
            return Refused(str(error))
        change = self._append(request, metadata, new, draft, reading.size)
        return Composed(metadata, change, draft, vector_property(self.user, self.branch))

    # --- the steps of a group -------------------------------------------------------------------------

    def expect(self, identity: str) -> None:
        self._identity = identity

    def describe(self, state: Metadata) -> tuple[str, str]:
        state.head(self.branch)
        return state.identity, self.view(state).event_location

    def version(self, state: Metadata) -> object:
        return state.location

    def head(self, state: Metadata) -> SnapshotRef | None:
        head = state.head(self.branch)
        return ref_of(head) if head is not None else None

    def evidence(self, state: Metadata, asked: tuple[int, str], newest: TableVersion) -> Evidence:
        return self.ancestry(state).evidence(self.user, asked, newest)

    def close(self) -> None:
        self.catalog.close()

    def _put(self, request: CommitRequest, made: "Composed") -> Publication:
        """Write the manifests and change the catalog, which makes them visible."""
        try:
            put = self.catalog.commit(made.base, made.change, made.draft.files)
        except Uncertain as error:
            return OutcomeUnknown(str(error))
        if not put:
            return self._overtaken_meanwhile(request)
        self.remember(made)
        return Published(made.snapshot)

    def remember(self, made: "Composed") -> None:
        """Note that a commit is visible, so that the next one reads less."""
        if self._opened is not None:
            self._opened[2].remember(made.draft)

    def _overtaken_meanwhile(self, request: CommitRequest) -> Refused:
        try:
            return self._overtaken(request.head, self.load())
        except LakeUnavailable:
            return OVERTAKEN

    def _overtaken(self, asked: SnapshotRef | None, metadata: Metadata) -> Refused:
        there = metadata.head(self.branch)
        if (ref_of(there) if there is not None else None) == asked:
            # Not all changes make a snapshot: a new schema, another branch, a property.
            return OVERTAKEN
        return overtaken(asked, past_of(there, metadata) if there is not None else None)

    def _append(
        self, request: CommitRequest, metadata: Metadata, new: NewSnapshot, draft: Draft, size: int
    ) -> Append:
        """Return the change of the table for a draft. `size`: of all new files, in bytes."""
        snapshot: dict[str, Any] = {"snapshot-id": new.snapshot_id}
        if new.head is not None:
            snapshot["parent-snapshot-id"] = new.head["snapshot-id"]
        times = (metadata.fields.get("last-updated-ms", 0), (new.head or {}).get("timestamp-ms", 0))
        snapshot |= {
            "sequence-number": new.sequence_number,
            # Clocks of writers differ, and readers expect times that do not fall.
            "timestamp-ms": max(time.time_ns() // 1_000_000, *times),
            "manifest-list": draft.list_path,
            "summary": self._summary(request, metadata, new.head, draft, size),
            "schema-id": metadata.fields["current-schema-id"],
        }
        if metadata.version > 2:
            snapshot |= {"first-row-id": draft.first_row_id, "added-rows": draft.assigned_rows}
        head = new.head["snapshot-id"] if new.head is not None else None
        # It replaces any other mark: the answer to the question was that a higher one counts for nothing.
        marker = Marker(request.decision, request.digest, ref_of(snapshot))
        mark = {marker_property(self.user, self.branch): marker_text(metadata.identity, marker)}
        if (watermark := snapshot["summary"].get(WATERMARK)) is not None:
            mark[watermark_property(self.branch)] = f"{metadata.identity}:{watermark}"
        if request.account:
            mark[account_property(self.user, self.branch)] = f"{metadata.identity}:{request.account}"
        return Append(snapshot, self.branch, head, mark, new.names)

    def _summary(
        self, request: CommitRequest, metadata: Metadata, head: Snapshot | None, draft: Draft, size: int
    ) -> dict[str, str]:
        added = {
            "added-data-files": draft.added_files,
            "added-records": draft.added_rows,
            "added-files-size": size,
            "changed-partition-count": len(draft.partitions),
        }
        totals = {
            "total-data-files": draft.added_files,
            "total-records": draft.added_rows,
            "total-files-size": size,
            **dict.fromkeys(("total-delete-files", "total-position-deletes", "total-equality-deletes"), 0),
        }
        marks = (Ancestry(metadata, self.branch).watermark(), request.watermark)
        watermark = max((mark for mark in marks if mark is not None), default=None)
        return {
            "operation": "append",
            **{name: str(number) for name, number in added.items() if number},
            **summary_totals((head.get("summary") or {}) if head is not None else None, totals),
            USER: self.user,
            DECISION: str(request.decision),
            DIGEST: request.digest,
            **({WATERMARK: str(watermark)} if watermark is not None else {}),
        }

    def _ours(self, request: CommitRequest, metadata: Metadata) -> Published | None:
        """Return this request's own snapshot if it already follows the requested head, else None."""
        there = Ancestry(metadata, self.branch).child_of(request.head)
        if there is None or not made_by(there, self.user, request):
            return None
        return Published(there.ref)

    def load(self) -> Metadata:
        """Return the table's state. Raises LakeUnavailable if it does not exist or cannot be read."""
        try:
            return self.catalog.load()
        except NoTable:
            raise LakeUnavailable(
                "the catalog has no such table any more: it was dropped or renamed. Register its newest "
                "metadata file under that name (register_table), or correct the stream's table"
            ) from None

    def view(self, metadata: Metadata) -> TableView:
        """Return the parts of a state that commits depend on. Raises TableRefused if it is out of scope."""
        if self._viewed is None or self._viewed[0] != metadata.location:
            known = self._viewed[1] if self._viewed is not None else None
            # Most changes add a snapshot, so what was prepared for the former state still holds.
            same = known is not None and known.parts == parts_of(metadata)
            self._viewed = metadata.location, known if known is not None and same else TableView(metadata)
        return self._viewed[1]

    def _open(self, view: TableView) -> tuple[TableView, Examiner, Drafts]:
        if self._opened is None or self._opened[0] is not view:
            self._opened = view, Examiner(view), Drafts(self._files, view)
        return self._opened


class Composed(NamedTuple):
    """A commit that is ready to be written."""

    base: Metadata
    """The state that it changes."""
    change: Append
    draft: Draft
    vector_name: str
    """Property of the anchor that has the vector."""

    @property
    def snapshot(self) -> SnapshotRef:
        return ref_of(self.change.snapshot)

    def with_vector(self, vector: Vector) -> "Composed":
        """Return the commit with the vector as a property of the table."""
        made = self.change.snapshot
        text = vector_text(int(made["summary"][DECISION]), int(made["snapshot-id"]), vector)
        properties = {**self.change.properties, self.vector_name: text}
        return self._replace(change=replace(self.change, properties=properties))


def _new_id(metadata: Metadata) -> int:
    """Return a random id that no snapshot of the table has."""
    while True:
        found = uuid.uuid4().int >> 65
        if found and found not in metadata.by_id:
            return found


def _checked(event: FilesWritten, premises: Premises, examiner: Examiner) -> Checked:
    """Check all that an event itself can prove. Raises BadFiles."""
    entries = examiner.examine(event)
    return checked_event(event, premises, entries, len(entries.encoded) + _NUMBERS_BYTES * len(event.files))
