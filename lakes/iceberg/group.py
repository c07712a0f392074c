"""Tables of one stream that a decision changes together: the anchor, and further tables in its catalog.

The anchor proves each decision, by the rules of a stream of one table: each decision is committed to it. The
further tables that get files are conditions and content of the same transaction. So everything here begins
with the anchor's answer, and a late publication fails as a whole: it needs the anchor's head.

A group without further tables is its anchor, and adds nothing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from sluicegate.events.files import is_inside
from sluicegate.events.models import FilesWritten, FurtherTable, KnownTable, SnapshotRef, TableVersion
from sluicegate.events.problems import Cause, CauseCode, Code, Problem
from sluicegate.lakes.committer import OVERTAKEN
from sluicegate.lakes.history import Evidence
from sluicegate.lakes.iceberg.ancestry import DECISION, ref_of, vector_property
from sluicegate.lakes.iceberg.catalog import Catalog
from sluicegate.lakes.iceberg.committer import Composed, IcebergCommitter
from sluicegate.lakes.iceberg.metadata import Append, Metadata
from sluicegate.lakes.port import (
    Absent,
    Answer,
    Checked,
    CommitRequest,
    Found,
    LakeError,
    LakeUnavailable,
    OutcomeUnknown,
    Outdated,
    Premises,
    Publication,
    Published,
    Refused,
    TablePart,
    TableRefused,
    TableState,
)
from sluicegate.lakes.storage import Uncertain


class Member(NamedTuple):
    """A table of the group that takes part in a transaction."""

    name: str
    """Empty: the anchor."""
    catalog: Catalog
    composed: Composed


class Transactions(Protocol):
    """A catalog that changes several tables in one step."""

    def scope(self, metadata: Metadata) -> str | None:
        """Return the reason for which a table cannot take part; None if it can."""
        ...

    def load_all(self, catalogs: Sequence[Catalog]) -> list[Metadata | LakeError]:
        """Return the states of tables, as of one moment where the catalog can say that.

        Of one that is not there or cannot be read, its error. Raises LakeUnavailable if none can be read.
        """
        ...

    def commit_all(self, members: Sequence[Member]) -> bool:
        """Change all of these tables, each on exactly the state that its change was composed on, or none.

        Return False if one has changed since. Raises LakeUnavailable if certainly nothing is visible, and
        Uncertain if that is unknown.
        """
        ...


Open = Callable[[str], IcebergCommitter]
"""Opens the committer of another table of the catalog, by its identifier. Raises TableRefused."""


class IcebergGroup:
    """Committer of a stream's tables. Not safe for concurrent calls."""

    def __init__(
        self,
        anchor: IcebergCommitter,
        opened: Open,
        transactions: Callable[[], Transactions],
        wanted: Mapping[str, tuple[str, Sequence[str]]],
    ) -> None:
        """`wanted`: by name, the identifiers of the further tables of the settings, and allowed locations.

        `transactions` raises TableRefused for a catalog without them.
        """
        self._anchor = anchor
        self._open = opened
        self._transactions = transactions
        self._wanted = dict(wanted)
        self._further: dict[str, IcebergCommitter] = {}
        """By identifier."""
        self._composed: dict[str, tuple[tuple[object, ...], Composed]] = {}
        """Commits of further tables that no transaction has published yet, with what they depend on."""

    # --- the anchor's own -------------------------------------------------------------------------

    def identity(self) -> str:
        return self._anchor.identity()

    def premises(self) -> Premises:
        return self._anchor.premises()

    def check(self, files: Sequence[FilesWritten]) -> list[Checked]:
        return self._anchor.check(files)

    def close(self) -> None:
        for each in self._further.values():
            each.close()
        self._anchor.close()

    def inspect(self) -> TableState:
        state = self._anchor.inspect()
        return replace(state, tables=self._read_tables()) if self._wanted else state

    # --- names ------------------------------------------------------------------------------------

    def table(self, terms: FurtherTable) -> IcebergCommitter:
        """Return the committer half of a further table. Raises TableRefused or LakeUnavailable."""
        found = self._further.get(terms.identifier)
        if found is None:
            found = self._further[terms.identifier] = self._open(terms.identifier)
        found.expect(terms.identity)
        return found

    def _read_tables(self) -> dict[str, FurtherTable | str]:
        """Return the further tables of the settings, or the reason for which one is refused."""
        try:
            transactions = self._transactions()
        except TableRefused as error:
            return dict.fromkeys(self._wanted, str(error))
        anchor = self._anchor.load()
        taken = {anchor.identity: "the anchor"}
        places = {"the anchor": self._anchor.view(anchor).event_location}
        found: dict[str, FurtherTable | str] = {}
        for name, (identifier, allowed) in self._wanted.items():
            try:
                metadata, view = self._state_of(identifier)
            except LakeError as error:
                found[name] = str(error)
                continue
            if (reason := transactions.scope(metadata)) is not None:
                found[name] = f"{identifier}: {reason}"
                continue
            other = taken.get(metadata.identity) or _overlapping(view, places)
            if other is not None:
                found[name] = (
                    f"{identifier} and {other} are one table, or keep their data in one folder. Each name "
                    "needs a table and a folder of its own"
                )
                continue
            taken[metadata.identity], places[name] = name, view
            locations = tuple(dict.fromkeys((view, *allowed)))
            found[name] = FurtherTable(
                identifier=identifier,
                identity=metadata.identity,
                location=view,
                allowed_locations=locations,
            )
        return found

    def _state_of(self, identifier: str) -> tuple[Metadata, str]:
        """Return the state of a table, and the location of its files.

        Raises TableRefused or LakeUnavailable.
        """
        if identifier not in self._further:
            self._further[identifier] = self._open(identifier)
        committer = self._further[identifier]
        metadata = committer.load()
        # A branch that is missing, and features without support, are refused here.
        metadata.head(committer.branch)
        return metadata, committer.view(metadata).event_location

    # --- questions --------------------------------------------------------------------------------

    def ask(self, decision: int, digest: str, table: str, recorded: SnapshotRef | None) -> Answer:
        return self._anchor.ask(decision, digest, table, recorded)

    def ask_all(
        self,
        asked: tuple[int, str],
        table: str,
        recorded: SnapshotRef | None,
        tables: Mapping[str, KnownTable],
        *,
        left_out: frozenset[str],
        undo: bool,
    ) -> Answer:
        """Ask the anchor, and after it the further tables that the decision touches.

        Answers that were read before the anchor's count for nothing: a publication may come between. `undo`:
        ask them also if the anchor lacks it. Then, as of those in `left_out`, one that does not answer is no
        obstacle. Raises LakeUnavailable.
        """
        answer = self._anchor.ask(*asked, table, recorded)
        if isinstance(answer, Found):
            found = self._having(asked, tables, left_out)
            return replace(answer, tables=found)
        if isinstance(answer, Absent) and undo:
            return replace(answer, elsewhere=tuple(sorted(self._having(asked, tables, frozenset(tables)))))
        return answer

    def _having(
        self, asked: tuple[int, str], tables: Mapping[str, KnownTable], optional: frozenset[str]
    ) -> dict[str, SnapshotRef | None]:
        """Return the tables that have a decision, with its snapshot. Raises LakeUnavailable."""
        found: dict[str, SnapshotRef | None] = {}
        for name, (known, state) in self._states(tables).items():
            if isinstance(state, LakeError):
                if name in optional:
                    continue
                raise LakeUnavailable(f"the table {name}: {state}") from state
            seen = self._evidence(state, known, asked)
            if seen.has:
                found[name] = seen.snapshot
        return found

    def trouble(self, tables: Mapping[str, KnownTable]) -> dict[str, Problem]:
        """Return the further tables to which nothing can be published now, with the reason."""
        found: dict[str, Problem] = {}
        for name, (known, state) in self._states(tables).items():
            if isinstance(state, LakeError):
                found[name] = Problem(code=Code.TABLE_UNUSABLE, table=name, detail=str(state))
                continue
            cause = self._evidence(state, known, NOTHING).contradiction
            if cause is not None:
                found[name] = Problem(code=Code.TABLE_UNUSABLE, table=name, cause=cause)
        return found

    def _states(
        self, tables: Mapping[str, KnownTable]
    ) -> dict[str, tuple[KnownTable, "Metadata | LakeError"]]:
        """Return the states of further tables, or the error of one that is missing or another one now."""
        opened: dict[str, IcebergCommitter] = {}
        found: dict[str, Metadata | LakeError] = {}
        for name, known in tables.items():
            try:
                opened[name] = self.table(known.terms)
            except LakeError as error:
                found[name] = error
        if opened:
            states = self._transactions().load_all([each.catalog for each in opened.values()])
            found |= dict(zip(opened, states, strict=True))
        return {name: (known, _right(name, known, found[name])) for name, known in tables.items()}

    def _evidence(self, state: Metadata, known: KnownTable, asked: tuple[int, str]) -> Evidence:
        ancestry = self.table(known.terms).ancestry(state)
        return ancestry.evidence(self._anchor.user, asked, known.newest)

    # --- publications -----------------------------------------------------------------------------

    def publish(self, request: CommitRequest) -> Publication:
        if not request.tables and not request.vector:
            return self._anchor.publish(request)
        try:
            return self._publish(request)
        except LakeUnavailable as error:
            return Refused(str(error), again=True)
        except Outdated:
            return Refused(cause=Cause(code=CauseCode.CHECKS_OUTDATED), again=True)
        except TableRefused as error:
            return Refused(str(error))

    def _publish(self, request: CommitRequest) -> Publication:
        asked = request.decision, request.digest
        done: dict[str, SnapshotRef | None] = {}
        members: list[Member] = []
        known = {name: part.known for name, part in request.tables.items()}
        base = None if request.apart else self._anchor.load()
        for name, (each, state) in self._states(known).items():
            if isinstance(state, TableRefused):
                return _refused(name, None, str(state))
            if isinstance(state, LakeError):
                return Refused(f"the table {name}: {state}", again=True)
            seen = self._evidence(state, each, asked)
            if seen.has:
                done[name] = seen.snapshot
                continue
            if seen.contradiction is not None:
                return _refused(name, seen.contradiction, "")
            made = self._compose(name, request, request.tables[name], state)
            if not isinstance(made, Composed):
                return made
            members.append(Member(name, self.table(each.terms).catalog, made))
        if base is not None:
            composed = self._anchor.compose(request, base)
            if not isinstance(composed, Composed):
                # It may be this very commit, made by another process: the next question finds out.
                return OVERTAKEN if isinstance(composed, Published) else composed
            vector = _vector(request, members, done)
            change = _with_vector(
                composed.change, vector_property(self._anchor.user, self._anchor.branch), vector
            )
            members.insert(0, Member("", self._anchor.catalog, composed._replace(change=change)))
        return self._commit(request, members, done)

    def _compose(
        self, name: str, request: CommitRequest, part: TablePart, state: Metadata
    ) -> "Composed | Publication":
        """Return a table's part of a commit. What was composed on the same state is not composed again."""
        key = request.decision, request.digest, request.watermark, state.location
        before = self._composed.get(name)
        if before is not None and before[0] == key:
            return before[1]
        committer = self.table(part.known.terms)
        head = state.head(committer.branch)
        alone = replace(
            request,
            head=ref_of(head) if head is not None else None,
            files=part.files,
            account="",
            tables={},
            vector={},
        )
        made = committer.compose(alone, state)
        if isinstance(made, Composed):
            self._composed[name] = key, made
        elif isinstance(made, Refused) and not made.again:
            return _refused(name, made.cause, made.reason)
        return made

    def _commit(
        self, request: CommitRequest, members: Sequence[Member], done: Mapping[str, SnapshotRef | None]
    ) -> Publication:
        try:
            put = not members or self._transactions().commit_all(members)
        except Uncertain as error:
            self._composed.clear()
            return OutcomeUnknown(str(error))
        if not put:
            return OVERTAKEN
        self._composed.clear()
        tables = dict(done)
        anchor = request.head
        for name, _, composed in members:
            made = ref_of(composed.change.snapshot)
            if name:
                tables[name] = made
                self.table(request.tables[name].known.terms).remember(composed)
            else:
                anchor = made
                self._anchor.remember(composed)
        if anchor is None:
            raise LookupError("a commit beside the anchor names the anchor's snapshot")
        return Published(anchor, tables)


NOTHING: Final = (0, "")
"""In place of a decision and its digest: a question about the table alone."""


def _right(name: str, known: KnownTable, state: "Metadata | LakeError") -> "Metadata | LakeError":
    """Return the state of a table, or an error if it is another table than the one that the log names."""
    if isinstance(state, LakeError) or state.identity == known.terms.identity:
        return state
    return TableRefused(
        f"{known.terms.identifier} is another table now: {state.identity}, and the stream's table {name} is "
        f"{known.terms.identity}. Give that one its name back. To accept the new one, leave the name out of "
        "the settings, and add it again afterwards"
    )


def _refused(name: str, cause: Cause | None, reason: str) -> Refused:
    return Refused(reason, cause, table=name)


def _overlapping(location: str, places: Mapping[str, str]) -> str | None:
    """Return the name of a table whose folder contains this location, or lies in it."""
    inside = (
        name for name, other in places.items() if is_inside(location, other) or is_inside(other, location)
    )
    return next(inside, None)


def _vector(
    request: CommitRequest, members: Sequence[Member], done: Mapping[str, SnapshotRef | None]
) -> dict[str, TableVersion]:
    """Return all further tables as of this decision."""
    new = {each.name: ref_of(each.composed.change.snapshot) for each in members} | dict(done)
    return {
        name: TableVersion(decision=request.decision, snapshot=new[name]) if name in new else before
        for name, before in {**request.vector, **dict.fromkeys(request.tables, TableVersion())}.items()
    }


def _with_vector(change: Append, name: str, vector: Mapping[str, TableVersion]) -> Append:
    """Return the anchor's change with the vector: by name, decision and snapshot id of each table."""
    return replace(change, properties={**change.properties, name: vector_text(change, vector)})


def vector_text(change: Append, vector: Mapping[str, TableVersion]) -> str:
    """Return the value of the property, as a reader in any language reads it: JSON without spaces."""
    tables = {
        name: [each.decision, int(each.snapshot.identity) if each.snapshot is not None else None]
        for name, each in sorted(vector.items())
    }
    summary = change.snapshot["summary"]
    decided = int(summary[DECISION])
    whole = {"decision": decided, "anchor": change.snapshot["snapshot-id"], "tables": tables}
    return json.dumps(whole, separators=(",", ":"))
