"""Committer half of the adapter: searches a Delta table for a decision, and publishes one."""

import time
from collections.abc import Sequence

from sluicegate.events.models import FilesWritten, SnapshotRef
from sluicegate.events.problems import Cause, CauseCode
from sluicegate.lakes.committer import (
    BaseCommitter,
    EventContents,
    check_files,
    checked_event,
    made_by,
    outcome_unknown,
    overtaken,
    with_overwriting,
)
from sluicegate.lakes.delta.checkpointing import Checkpointing
from sluicegate.lakes.delta.checks import EventChecks
from sluicegate.lakes.delta.entries import Entries
from sluicegate.lakes.delta.features import refuse_out_of_scope
from sluicegate.lakes.delta.log import FOLDER, Log, Metadata, Protocol, State, Version, commit_name
from sluicegate.lakes.delta.versions import Ancestry, Content, Draft, head_of, mark_of, past_of
from sluicegate.lakes.drafts import draft_names
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


class DeltaCommitter(BaseCommitter):
    """Committer for one table and one commit user. Not safe for concurrent calls."""

    def __init__(
        self,
        storage: Storage,
        commit_user: str,
        checkpointing: Checkpointing | None = None,
    ) -> None:
        self._storage = storage
        self._user = commit_user
        self._log = Log(storage)
        self._known: State | None = None
        """Newest state that was read; later versions are read on top of it."""
        self._in_scope: tuple[Protocol, Metadata] | None = None
        """Newest protocol and metadata that were found to be supported."""
        self._identity: str | None = None
        self._checks = EventChecks(self._log, storage.uri)
        self._checkpointing = checkpointing

    def inspect(self) -> TableState:
        self._known = None
        state = self._newest()
        self._refuse_out_of_scope(state)
        self._identity = state.metadata.id
        newest = self._ancestry(state).newest_decisions()
        return TableState(self._identity, head_of(state), *newest)

    def ask(self, decision: int, digest: str, table: str, recorded: SnapshotRef | None) -> Answer:
        state = self._newest()
        if state.metadata.id != table:
            return TableReplaced(state.metadata.id)
        self._identity = table
        answer = self._ancestry(state).look_for((decision, digest), recorded)
        if isinstance(answer, Found):
            # The process that put the version may have died before its name was durable.
            self._storage.settle(FOLDER)
        return with_overwriting(answer, self._storage)

    def identity(self) -> str:
        return self._newest().metadata.id

    def premises(self) -> Premises:
        return self._checks.premises(self._newest())

    def check(self, files: Sequence[FilesWritten]) -> list[Checked]:
        state = self._newest()
        premises = self._checks.premises(state)
        return check_files(files, lambda event: self._checked(state, premises, event), self._storage)

    def _checked(self, state: State, premises: Premises, event: FilesWritten) -> Checked:
        """Check all that an event itself can prove. Raises BadFiles or LakeUnavailable."""
        entries = self._checks.examine(state, event)
        return checked_event(event, premises, entries, len(entries.lines))

    def close(self) -> None:
        self._known = None

    def _newest(self) -> State:
        """Return the newest state. Raises LakeUnavailable."""
        state = self._log.tail(self._known) if self._known is not None else None
        self._known = self._log.load() if state is None else state
        return self._known

    def _refuse_out_of_scope(self, state: State) -> None:
        """Raise TableRefused for a protocol or metadata that is not supported; equal ones are read once."""
        protocol, metadata = self._in_scope or (None, None)
        if state.protocol is not protocol or state.metadata is not metadata:
            refuse_out_of_scope(state, self._storage.uri)
            self._in_scope = (state.protocol, state.metadata)

    def _ancestry(self, state: State) -> Ancestry:
        return Ancestry(self._log, state, self._user)

    def _publish(self, request: CommitRequest) -> Publication:
        state = self._newest()
        if state.metadata.id != self._identity:
            return Refused(cause=Cause(code=CauseCode.OTHER_TABLE), again=True)
        # The decision was made on `request.head`: on another head, the request may be committed already.
        if head_of(state) != request.head:
            return self._ours(request, state) or self._overtaken(request.head, state.head)
        made = mark_of(state, self._user)
        if made is not None and made.decision >= request.decision and self._ancestry(state).has(made):
            # Delta takes any number of a transaction. Decisions are made in order, so this one was published.
            return self._overtaken(request.head, state.head)
        self._log.require_base(state.version)
        try:
            self._refuse_out_of_scope(state)
            content = self._compose(state, request)
        except (BadFiles, TableRefused) as error:
            return Refused(str(error))
        number = state.version + 1
        names = draft_names(state.metadata.id, "", self._user, request.decision)
        try:
            put = self._storage.put_if_absent(commit_name(number), content, names.name("draft"))
        except Uncertain as error:
            return OutcomeUnknown(str(error))
        except CannotPut as error:
            return Refused(str(error), Cause(code=error.code))
        if not put:
            return self._taken(request, state)
        stamp = self._storage.stamp_of_put(commit_name(number))
        return self._settled(state, self._log.made(number, content.head, content, stamp))

    def _compose(self, state: State, request: CommitRequest) -> Content:
        """Return the content of the version. Raises BadFiles, TableRefused, Outdated or LakeUnavailable."""
        premises = self._checks.premises(state)
        draft = Draft(state)
        for checked, entries in EventContents(request.files, self.check, premises, Entries).pairs():
            draft.add(checked, entries)
        return draft.render(self._user, request, time.time_ns() // 1_000_000)

    def _settled(self, before: State, made: Version) -> Publication:
        """Return the outcome of a version that was put. It counts only if it follows the requested head."""
        number = made.ref.id
        try:
            follows = self._log.follows(before)
        except LakeUnavailable as error:
            return outcome_unknown(CauseCode.POSITION_UNREADABLE, number, error)
        if not follows:
            # If clean-up had deleted the number, no reader uses this version. The next answer shows it.
            self._known = None
            return outcome_unknown(CauseCode.POSITION_UNPROVEN, number)
        self._known = before.after(made)
        if self._checkpointing is not None:
            self._checkpointing.consider(self._known)
        return Published(made.ref)

    def _taken(self, request: CommitRequest, before: State) -> Publication:
        """Return the outcome if the version's number was taken.

        It was taken by another writer, or by this same commit after a lost acknowledgement.
        """
        number = before.version + 1
        try:
            there = self._log.version(number)
            self._storage.settle(FOLDER)
        except LakeUnavailable as error:
            return outcome_unknown(CauseCode.TAKER_UNREADABLE, number, error)
        if there is None:
            return outcome_unknown(CauseCode.TAKER_GONE, number)
        if not self._is(there, request):
            return self._overtaken(request.head, there)
        return self._settled(before, there)

    def _ours(self, request: CommitRequest, newest: State) -> Published | None:
        """Return this request's own version if it already follows the requested head, else None."""
        asked = request.head.id if request.head is not None else 0
        if asked >= newest.version or asked + 1 < self._ancestry(newest).oldest:
            return None
        before = self._log.version(asked)
        if request.head is not None and (before is None or before.ref != request.head):
            return None
        there = self._log.version(asked + 1)
        if there is None or not self._is(there, request):
            return None
        self._storage.settle(FOLDER)
        return Published(there.ref)

    def _is(self, version: Version, request: CommitRequest) -> bool:
        return made_by(past_of(version, self._user), self._user, request)

    def _overtaken(self, asked: SnapshotRef | None, there: Version) -> Refused:
        gone = asked is not None and there.ref.id < asked.id
        return overtaken(asked, None if gone else past_of(there, None))
