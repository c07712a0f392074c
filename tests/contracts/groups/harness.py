"""What the suite does to a catalog of several tables, and a coordinator reduced to what touches them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, Self

from sluicegate.events.models import FilesWritten, FurtherTable, KnownTable, SnapshotRef, TableVersion
from sluicegate.lakes.group import Group
from sluicegate.lakes.port import Absent, Answer, CommitRequest, Found, Publication, Published, TablePart
from sluicegate.lakes.storage import Uncertain
from tests.contracts.lakes.harness import USER, Lake

ANCHOR: Final = "orders"
"""Name of the table that is the anchor, unless a test takes another one."""
FURTHER: Final = ("items", "bills")
AnyGroup = Group[Any, Any]
Step = Callable[[], Any]
Around = Callable[[Step], Any]
"""What happens at the deciding step, which is the argument: it may come later, twice, or not at all."""


class Named(Lake, Protocol):
    """A table of a catalog."""

    def expire_beside(self) -> None:
        """Forget the snapshots that a rollback has left."""
        ...


class Tables(Protocol):
    """Three fresh tables of one catalog, each with one integer column `id`."""

    @property
    def lakes(self) -> Mapping[str, Named]:
        """The tables by name: the anchor, and the further ones."""
        ...

    def identifier(self, name: str) -> str:
        """Return the name of a table in the catalog."""
        ...

    def group(self, user: str, anchor: str, wanted: Mapping[str, str]) -> AnyGroup:
        """Open a group, as a coordinator of its own does; `wanted`: identifiers of the further tables."""
        ...

    def at_step(self, group: AnyGroup, around: Around) -> None:
        """Let something happen at the deciding step of the group's next publication."""
        ...

    def vector(self, user: str = USER) -> Mapping[str, tuple[int, str | None]]:
        """Return the anchor's newest vector, as a reader has it: decisions and identities of snapshots."""
        ...

    def alias(self, name: str) -> str:
        """Give a table a second name in the catalog, and return that."""
        ...

    def inside(self, name: str) -> str:
        """Make a table whose data lies in the folder of another one, and return its identifier."""
        ...


def wanted(tables: Tables, names: Iterable[str] = FURTHER) -> dict[str, str]:
    """Return the identifiers of tables, by name."""
    return {name: tables.identifier(name) for name in names}


class Coordinator:
    """A coordinator's dealings with the tables of one stream."""

    def __init__(
        self, tables: Tables, user: str = USER, anchor: str = ANCHOR, names: Iterable[str] = FURTHER
    ) -> None:
        self.tables, self.user, self.anchor, self.names = tables, user, anchor, tuple(names)
        self.group = tables.group(user, anchor, wanted(tables, names))
        state = self.group.inspect()
        self.identity, self.recorded = state.identity, state.head
        self.known: dict[str, KnownTable] = {}
        for name, terms in state.tables.items():
            assert isinstance(terms, FurtherTable), terms
            self.known[name] = KnownTable(terms=terms)

    def twin(self) -> Self:
        """Return another process with the same log."""
        found = type(self)(self.tables, self.user, self.anchor, self.names)
        found.recorded, found.known = self.recorded, dict(self.known)
        return found

    def head(self, name: str = ANCHOR) -> SnapshotRef | None:
        return self.tables.lakes[name].committer().inspect().head

    def heads(self) -> dict[str, SnapshotRef | None]:
        return {name: self.head(name) for name in (self.anchor, *self.names)}

    def files(self, rows: Mapping[str, Iterable[int]]) -> dict[str, FilesWritten]:
        """Write rows, by table."""
        return {name: self.tables.lakes[name].event(ids) for name, ids in rows.items()}

    def ask(self, decision: int, touched: Iterable[str], digest: str = "", *, undo: bool = False) -> Answer:
        tables = {name: self.known[name] for name in touched if name != self.anchor}
        asked = decision, digest or f"digest-{decision}"
        return self.group.ask_all(
            asked, self.identity, self.recorded, tables, left_out=frozenset(), undo=undo
        )

    def absent(self, decision: int, touched: Iterable[str]) -> SnapshotRef | None:
        """Ask for a decision that is absent, and return the anchor's head."""
        answer = self.ask(decision, touched)
        assert isinstance(answer, Absent), answer
        return answer.head

    def request(
        self,
        decision: int,
        head: SnapshotRef | None,
        files: Mapping[str, FilesWritten],
        *,
        apart: bool = False,
    ) -> CommitRequest:
        """Return a publication of checked files."""
        parts: dict[str, TablePart] = {}
        for name, event in files.items():
            if name != self.anchor:
                checked = self.group.table(self.known[name].terms).check([event])
                parts[name] = TablePart(self.known[name], checked)
        own = self.group.check([files[self.anchor]]) if self.anchor in files and not apart else []
        vector = {name: each.newest for name, each in self.known.items()}
        return CommitRequest(
            decision,
            f"digest-{decision}",
            head,
            None,
            own,
            tables=parts,
            vector=vector,
            apart=apart,
        )

    def publish(
        self,
        decision: int,
        head: SnapshotRef | None,
        files: Mapping[str, FilesWritten],
        *,
        apart: bool = False,
    ) -> Publication:
        return self.group.publish(self.request(decision, head, files, apart=apart))

    def record(self, decision: int, outcome: Published | Found) -> None:
        """Take an outcome into the log."""
        self.recorded = outcome.snapshot
        for name, snapshot in outcome.tables.items():
            newest = TableVersion(decision=decision, snapshot=snapshot)
            self.known[name] = self.known[name].model_copy(update={"newest": newest})

    def commit(self, decision: int, rows: Mapping[str, Iterable[int]]) -> Published:
        """Commit a decision for which nothing goes wrong, and record it."""
        files = self.files(rows)
        outcome = self.publish(decision, self.absent(decision, files), files)
        assert isinstance(outcome, Published), outcome
        self.record(decision, outcome)
        return outcome

    def settle(self, decision: int, files: Mapping[str, FilesWritten], tries: int = 5) -> int:
        """Ask and publish as the core does, until each touched table has the decision; return the tries."""
        touched = {name for name in files if name != self.anchor}
        for number in range(tries):
            answer = self.ask(decision, files)
            if isinstance(answer, Found):
                lacking = touched - answer.tables.keys()
                if not lacking:
                    self.record(decision, answer)
                    return number
                apart = {name: files[name] for name in lacking}
                self.publish(decision, answer.snapshot, apart, apart=True)
                continue
            assert isinstance(answer, Absent), answer
            self.publish(decision, answer.head, files)
        raise AssertionError(f"decision {decision} is not settled after {tries} tries")

    def at_step(self, around: Around) -> None:
        self.tables.at_step(self.group, around)


# --- what happens at the deciding step ----------------------------------------------------------------


def first(action: Callable[[], Any]) -> Around:
    """Let something happen right before the step."""

    def around(step: Step) -> Any:
        action()
        return step()

    return around


def lost(step: Step) -> Any:
    """Lose the request."""
    raise Uncertain("injected")


def landed(step: Step) -> Any:
    """Lose the answer."""
    step()
    raise Uncertain("injected")


class Late:
    """Loses the answer, and has its effect when it is called."""

    def __call__(self, step: Step) -> Any:
        self.arrive = step
        raise Uncertain("injected")
