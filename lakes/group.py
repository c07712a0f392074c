"""Tables of one stream that a decision changes together: the anchor, and further tables in its catalog.

The anchor proves each decision, by the rules of a stream of one table: each decision is committed to it. The
further tables that get files are conditions and content of the same transaction. So everything here begins
with the anchor's answer, and a late publication fails as a whole: it needs the anchor's head.

`Group` is an adapter over adapters: a format gives the committer of one table, as `GroupTable`, and the one
step over several of them, as `Transactions`. A group whose stream has no further tables is its anchor.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, Generic, NamedTuple, Protocol, Self, TypeVar

from sluicegate.events.files import is_inside
from sluicegate.events.models import FilesWritten, FurtherTable, KnownTable, SnapshotRef, TableVersion
from sluicegate.events.problems import Cause, CauseCode, Code, Problem
from sluicegate.lakes.committer import OVERTAKEN
from sluicegate.lakes.history import Evidence
from sluicegate.lakes.port import (
    Absent,
    Answer,
    Checked,
    CommitRequest,
    Committer,
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

Vector = Mapping[str, TableVersion]
"""By name, the further tables of a stream as of one decision."""


class Composed(Protocol):
    """One table's part of a commit, which is ready to be written."""

    @property
    def snapshot(self) -> SnapshotRef:
        """The snapshot that it makes."""
        ...

    def with_vector(self, vector: Vector) -> Self:
        """Return the anchor's part with the vector, for readers."""
        ...


S = TypeVar("S")
"""State of a table, as its catalog has it at one moment."""
C = TypeVar("C", bound=Composed)


class GroupTable(Committer, Protocol[S, C]):
    """The committer half of one table, in the steps that a group takes."""

    def expect(self, identity: str) -> None:
        """Compose for the table of this identity alone."""
        ...

    def load(self) -> S:
        """Return the state of the table. Raises LakeUnavailable."""
        ...

    def describe(self, state: S) -> tuple[str, str]:
        """Return the table's identity, and the location of its files.

        Raises TableRefused or LakeUnavailable.
        """
        ...

    def version(self, state: S) -> object:
        """Return what changes with every change of the table."""
        ...

    def head(self, state: S) -> SnapshotRef | None:
        """Return the head of the branch. Raises LakeUnavailable."""
        ...

    def evidence(self, state: S, asked: tuple[int, str], newest: TableVersion) -> Evidence:
        """Return what the table shows of a decision, as `history.evidence_of` does."""
        ...

    def compose(self, request: CommitRequest, state: S) -> C | Publication:
        """Return the commit of a request on this state, or why there is none. Nothing is written.

        Raises LakeUnavailable, TableRefused, or Outdated.
        """
        ...

    def remember(self, composed: C) -> None:
        """Note that a commit is visible."""
        ...


class Member(NamedTuple, Generic[S, C]):
    """A table that takes part in a transaction."""

    name: str
    """Empty: the anchor."""
    table: GroupTable[S, C]
    composed: C


class Unchanged(NamedTuple, Generic[S, C]):
    """A table that a transaction does not change, and that must still be in this state."""

    table: GroupTable[S, C]
    state: S


class Transactions(Protocol[S, C]):
    """A catalog that changes several tables in one step."""

    def scope(self, state: S) -> str | None:
        """Return the reason for which a table cannot take part; None if it can."""
        ...

    def load_all(self, tables: Sequence[GroupTable[S, C]]) -> list[S | LakeError]:
        """Return the states of tables, as of one moment where the catalog can say that.

        TableRefused in place of one that is not there, and the error of one that cannot be read. Raises
        LakeUnavailable if none can be read.
        """
        ...

    def commit_all(self, members: Sequence[Member[S, C]], unchanged: "Unchanged[S, C] | None" = None) -> bool:
        """Change all of these tables, each on exactly the state that its change was composed on, or none.

        Return False if one of them, or the unchanged one, has changed since. Raises LakeUnavailable if
        certainly nothing is visible, and Uncertain if that is unknown.
        """
        ...


_NOTHING: Final = (0, "")
"""In place of a decision and its digest: a question about the table alone."""


class Group(Generic[S, C]):
    """Committer of a stream's tables. Not safe for concurrent calls. Its own methods are about the anchor."""

    def __init__(
        self,
        anchor: GroupTable[S, C],
        opened: Callable[[str], GroupTable[S, C]],
        transactions: Callable[[], Transactions[S, C]],
        wanted: Mapping[str, tuple[str, Sequence[str]]],
    ) -> None:
        """`wanted`: by name, the identifiers of the further tables of the settings, and allowed locations.

        `opened` opens another table of the catalog by its identifier, and raises TableRefused. `transactions`
        raises it for a catalog without them.
        """
        self._anchor = anchor
        self._open = opened
        self._make_transactions = transactions
        self._wanted = dict(wanted)
        self._further: dict[str, GroupTable[S, C]] = {}
        """By identifier."""
        self._composed: dict[str, tuple[tuple[object, ...], C]] = {}
        """Parts of further tables that no transaction has published yet, with what they depend on."""

    @cached_property
    def _transactions(self) -> Transactions[S, C]:
        return self._make_transactions()

    # --- the anchor's own -------------------------------------------------------------------------

    def identity(self) -> str:
        return self._anchor.identity()

    def premises(self) -> Premises:
        return self._anchor.premises()

    def check(self, files: Sequence[FilesWritten]) -> list[Checked]:
        return self._anchor.check(files)

    def ask(self, decision: int, digest: str, table: str, recorded: SnapshotRef | None) -> Answer:
        return self._anchor.ask(decision, digest, table, recorded)

    def close(self) -> None:
        for each in self._further.values():
            each.close()
        self._anchor.close()

    # --- names ------------------------------------------------------------------------------------

    def inspect(self) -> TableState:
        state = self._anchor.inspect()
        return replace(state, tables=self._read_tables()) if self._wanted else state

    def table(self, terms: FurtherTable) -> GroupTable[S, C]:
        """Return the committer half of a further table. Raises TableRefused or LakeUnavailable."""
        found = self._opened(terms.identifier)
        found.expect(terms.identity)
        return found

    def _opened(self, identifier: str) -> GroupTable[S, C]:
        if identifier not in self._further:
            self._further[identifier] = self._open(identifier)
        return self._further[identifier]

    def _read_tables(self) -> dict[str, FurtherTable | str]:
        """Return the further tables of the settings, or the reason for which one is refused."""
        try:
            transactions = self._transactions
        except TableRefused as error:
            return dict.fromkeys(self._wanted, str(error))
        anchor = self._anchor.load()
        if (reason := transactions.scope(anchor)) is not None:
            return dict.fromkeys(self._wanted, f"the anchor: {reason}")
        identity, place = self._anchor.describe(anchor)
        names, places = {identity: "the anchor"}, {"the anchor": place}
        found: dict[str, FurtherTable | str] = {}
        states = self._load({name: identifier for name, (identifier, _) in self._wanted.items()})
        for name, (identifier, allowed) in self._wanted.items():
            state = states[name]
            try:
                if isinstance(state, LakeError):
                    raise state
                identity, place = self._opened(identifier).describe(state)
            except LakeError as error:
                found[name] = str(error)
                continue
            if (reason := transactions.scope(state)) is not None:
                found[name] = f"{identifier}: {reason}"
                continue
            other = names.get(identity) or _overlapping(place, places)
            if other is not None:
                found[name] = (
                    f"{identifier} and {other} are one table, or keep their data in one folder. Each name "
                    "needs a table and a folder of its own"
                )
                continue
            names[identity], places[name] = name, place
            found[name] = FurtherTable(
                identifier=identifier,
                identity=identity,
                location=place,
                allowed_locations=tuple(dict.fromkeys((place, *allowed))),
            )
        return found

    def _load(self, identifiers: Mapping[str, str]) -> dict[str, S | LakeError]:
        """Return the states of tables of the catalog, or the error of one. Raises LakeUnavailable."""
        opened: dict[str, GroupTable[S, C]] = {}
        found: dict[str, S | LakeError] = {}
        for name, identifier in identifiers.items():
            try:
                opened[name] = self._opened(identifier)
            except LakeError as error:
                found[name] = error
        try:
            states = self._transactions.load_all([*opened.values()]) if opened else []
        except TableRefused as error:
            # Of tables that the log names: the catalog's options have changed since.
            return dict.fromkeys(identifiers, error)
        return found | dict(zip(opened, states, strict=True))

    # --- questions --------------------------------------------------------------------------------

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

        Answers that were read before the anchor's count for nothing: a publication may come between. One of
        `left_out` that cannot be read is no obstacle. `undo`: they are asked also if the anchor lacks it, and
        none has to answer. Raises LakeUnavailable.
        """
        answer = self._anchor.ask(*asked, table, recorded)
        if isinstance(answer, Found):
            return replace(answer, tables=self._having(asked, tables, left_out))
        if isinstance(answer, Absent) and undo:
            return replace(answer, elsewhere=tuple(sorted(self._having(asked, tables, frozenset(tables)))))
        return answer

    def _having(
        self, asked: tuple[int, str], tables: Mapping[str, KnownTable], optional: frozenset[str]
    ) -> dict[str, SnapshotRef | None]:
        """Return the tables that have a decision, with its snapshot. Raises LakeUnavailable."""
        found: dict[str, SnapshotRef | None] = {}
        for name, state in self._states(tables).items():
            if isinstance(state, LakeError):
                if name in optional:
                    continue
                raise LakeUnavailable(f"the table {name}: {state}") from state
            seen = self._evidence(state, tables[name], asked)
            if seen.has:
                found[name] = seen.snapshot
        return found

    def trouble(self, tables: Mapping[str, KnownTable]) -> dict[str, Problem | LakeUnavailable]:
        """Return the further tables to which nothing can be published now, with the reason.

        An error: the table cannot be read now, and nothing else is known of it. Raises LakeUnavailable if
        none can be read.
        """
        found: dict[str, Problem | LakeUnavailable] = {}
        for name, state in self._states(tables).items():
            if isinstance(state, LakeUnavailable):
                found[name] = state
                continue
            if isinstance(state, LakeError):
                found[name] = Problem(code=Code.TABLE_UNUSABLE, table=name, detail=str(state))
                continue
            cause = self._evidence(state, tables[name], _NOTHING).contradiction
            if cause is not None:
                found[name] = Problem(code=Code.TABLE_UNUSABLE, table=name, cause=cause)
        return found

    def _states(self, tables: Mapping[str, KnownTable]) -> dict[str, S | LakeError]:
        """Return the states of further tables, or the error of one that is missing or another one now."""
        found = self._load({name: known.terms.identifier for name, known in tables.items()})
        return {
            name: state if isinstance(state := found[name], LakeError) else self._right(known, state)
            for name, known in tables.items()
        }

    def _right(self, known: KnownTable, state: S) -> S | LakeError:
        """Return the state of a table, or an error if it is another table than the one that the log names."""
        try:
            identity, _ = self.table(known.terms).describe(state)
        except LakeError as error:
            return error
        if identity == known.terms.identity:
            reason = self._transactions.scope(state)
            return state if reason is None else TableRefused(f"{known.terms.identifier}: {reason}")
        return TableRefused(
            f"{known.terms.identifier} is another table now: {identity}, and the stream has "
            f"{known.terms.identity}. Give that one its name back. To accept the new one, leave the name out "
            "of the settings of all coordinators first, and add it again afterwards"
        )

    def _evidence(self, state: S, known: KnownTable, asked: tuple[int, str]) -> Evidence:
        seen = self.table(known.terms).evidence(state, asked, known.newest)
        if known.doubted and not seen.shown:
            # It was rolled back. An expiry afterwards hides that, and repairs nothing.
            cause = Cause(code=CauseCode.OTHER_NEWEST, number=0, other=known.newest.decision)
            return Evidence(False, contradiction=cause)
        return seen

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
        done: dict[str, SnapshotRef | None] = {}
        members: list[Member[S, C]] = []
        state = self._anchor.load()
        if (reason := self._transactions.scope(state)) is not None:
            return Refused(f"the anchor: {reason}")
        if request.apart and request.head is not None and not self._has(request, state):
            return OVERTAKEN
        parts = {name: part.known for name, part in sorted(request.tables.items())}
        for name, found in self._states(parts).items():
            part = request.tables[name]
            if isinstance(found, TableRefused) and name in request.left_out:
                continue
            if isinstance(found, LakeError):
                again = not isinstance(found, TableRefused)
                return Refused(f"the table {name}: {found}", table=name, again=again)
            seen = self._evidence(found, part.known, (request.decision, request.digest))
            if seen.has:
                done[name] = seen.snapshot
                continue
            if seen.contradiction is not None:
                return Refused(cause=seen.contradiction, table=name)
            made = self._compose(name, request, part, found)
            if isinstance(made, Published | Refused | OutcomeUnknown):
                return made
            members.append(Member(name, self.table(part.known.terms), made))
        if not request.apart:
            own = self._anchor.compose(request, state)
            if isinstance(own, Published):
                # It may be this very commit, made by another process: the next question finds out.
                return OVERTAKEN
            if isinstance(own, Refused | OutcomeUnknown):
                return own
            new = {each.name: each.composed.snapshot for each in members} | done
            vector = {
                name: TableVersion(decision=request.decision, snapshot=new[name]) if name in new else before
                for name, before in request.vector.items()
            }
            members.insert(0, Member("", self._anchor, own.with_vector(vector)))
        return self._commit(request, members, done, Unchanged(self._anchor, state) if request.apart else None)

    def _has(self, request: CommitRequest, anchor: S) -> bool:
        """Return True if the anchor has the decision of a request, as it had when it was asked.

        It may have been rolled back since, and have another commit in its place, and newer ones on top.
        """
        if self._anchor.describe(anchor)[0] != self._anchor.identity():
            return False
        asked = request.decision, request.digest
        newest = TableVersion(decision=request.decision, snapshot=request.head)
        return self._anchor.evidence(anchor, asked, newest).has

    def _compose(self, name: str, request: CommitRequest, part: TablePart, state: S) -> C | Publication:
        """Return a table's part of a commit. What was composed on the same state is not composed again."""
        table = self.table(part.known.terms)
        key = request.decision, request.digest, request.watermark, table.version(state)
        before = self._composed.get(name)
        if before is not None and before[0] == key:
            return before[1]
        alone = replace(
            request, head=table.head(state), files=part.files, account="", tables={}, vector={}, apart=False
        )
        try:
            made = table.compose(alone, state)
        except (LakeUnavailable, TableRefused) as error:
            again = not isinstance(error, TableRefused)
            return Refused(f"the table {name}: {error}", table=name, again=again)
        if isinstance(made, Refused):
            return replace(made, table=name)
        if not isinstance(made, Published | OutcomeUnknown):
            self._composed[name] = key, made
        return made

    def _commit(
        self,
        request: CommitRequest,
        members: Sequence[Member[S, C]],
        done: Mapping[str, SnapshotRef | None],
        unchanged: Unchanged[S, C] | None,
    ) -> Publication:
        try:
            if members and not self._transactions.commit_all(members, unchanged):
                return OVERTAKEN
        except Uncertain as error:
            self._composed.clear()
            return OutcomeUnknown(str(error))
        self._composed.clear()
        anchor, tables = request.head, dict(done)
        if anchor is None and unchanged is not None:
            anchor = self._anchor.head(unchanged.state)
        for name, table, composed in members:
            table.remember(composed)
            if name:
                tables[name] = composed.snapshot
            else:
                anchor = composed.snapshot
        if anchor is None:
            raise LookupError("a publication beside the anchor names the anchor's snapshot")
        return Published(anchor, tables)


def _overlapping(location: str, places: Mapping[str, str]) -> str | None:
    """Return the name of a table whose folder contains this location, or lies in it."""
    for name, other in places.items():
        if is_inside(location, other) or is_inside(other, location):
            return name
    return None
