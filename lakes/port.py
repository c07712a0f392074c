"""The port to a table format: its writer half, its committer half, and the data that they exchange.

Everything here is data or a protocol; no adapter and no I/O is imported. Committer methods block and
are called from threads, one at a time per stream.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, runtime_checkable

from sluicegate.events.models import (
    FileInfo,
    FilesWritten,
    FurtherTable,
    KnownTable,
    SnapshotRef,
    TableVersion,
)
from sluicegate.events.problems import Cause

if TYPE_CHECKING:
    import pyarrow as pa


CHECK_LASTS: Final = 600.0
"""Seconds for which a check that files exist counts. Cleaners of orphans wait longer before they delete."""


class Premises(NamedTuple):
    """The facts that checks depend on, beside the files."""

    table: str
    """Identity of the table."""
    terms: str
    """Changes with the schema, and with everything else of the table that checks depend on."""


@dataclass(frozen=True, slots=True)
class Checked:
    """An event that a committer has checked, in the form in which that committer publishes it.

    It holds while the committer's premises stay the same, for CHECK_LASTS at most.
    """

    premises: Premises
    files: int
    rows: int
    size: int
    """Bytes of the files."""
    paths: bytes
    """Digests of the paths, one after the other (`committer.path_digest`)."""
    content: object
    """The adapter's own."""
    held: int
    """Bytes of memory, about."""


class Outdated(Exception):
    """The premises of a check have changed since: the files must be checked again."""


PORT_VERSION: Final = 2
"""Version of the protocols in this module; rises when adapters of older releases would not work any more."""


class LakeError(Exception):
    """The base of the errors that adapters raise."""


class TableRefused(LakeError):
    """The table is out of scope or unusable, and waiting does not change it; the text says why."""


class LakeUnavailable(LakeError):
    """The storage or catalog could not be reached, read or written now; nothing was changed; try again.

    The text names the path, the cause with its error code, and the way out.
    """


class BadFiles(LakeError):
    """The files of an event cannot be committed to this table as they are; the text says why."""


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table, as its adapter has read it from a setting. It need not exist."""

    name: str
    """Text of the setting, for people."""
    location: str
    """URI of the folder of the data files, as events name it. Each table has one."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the adapter. They may contain credentials, so they are not shown."""


@dataclass(frozen=True, slots=True)
class TableState:
    """State of a table when its committer opens it."""

    identity: str
    """Changes when the table is dropped and made again."""
    head: SnapshotRef | None
    """None: the table has no snapshot yet."""
    newest_decision: int | None
    """The highest decision id of this commit user in the table's history; None if there is none."""
    newest_made: int | None
    """The highest one that this product made: 0 if there was none, None if the rest has expired."""
    by_marker: bool = False
    """True if only the table's marker shows the two, so a rollback before the expiry would not be seen."""
    digest: str = ""
    """That of `newest_made`; empty if there is none, or if it is not known."""
    joined: str | None = None
    """Reason for which all writers of the table are one region, so cuts are full; None if there is none."""
    tables: Mapping[str, FurtherTable | str] = field(default_factory=dict)
    """By name, the further tables of the settings, as the catalog has them, or why one cannot be used."""

    @property
    def has_unusable(self) -> bool:
        """True if one of them cannot be used now."""
        return any(isinstance(each, str) for each in self.tables.values())


@dataclass(frozen=True, slots=True)
class Found:
    """The decision is in the table, with the digest that was asked for."""

    snapshot: SnapshotRef
    by_marker: bool = field(default=False, compare=False)
    """True if its snapshot has expired: only the table's marker shows it (see `history.Marker`)."""
    tables: Mapping[str, SnapshotRef | None] = field(default_factory=dict)
    """By name, the snapshots of the further tables that have it, too; None: it has expired."""


@dataclass(frozen=True, slots=True)
class OtherDigest:
    """The decision's id is in the table with another content."""

    digest: str


@dataclass(frozen=True, slots=True)
class Ahead:
    """The decision itself was not found, but the table has a higher one of the same commit user."""

    decision: int
    made: tuple[int, str] | None = None
    """The highest one that this product made, with its digest: any job can use an id, but not a digest."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The decision is proven not to be in the table: the recorded snapshot is an ancestor of `head`."""

    head: SnapshotRef | None
    by_marker: bool = field(default=False, compare=False)
    """True if the history has expired: only the table's marker proves it."""
    elsewhere: tuple[str, ...] | None = None
    """Further tables that have it: the catalog is not atomic, or the anchor was rolled back.

    None: they were not asked."""


@dataclass(frozen=True, slots=True)
class Unproven:
    """The decision was not found, and its absence cannot be proven; the cause is what is missing."""

    reason: str = ""
    """Text from outside, such as an error of the storage; here and in all answers."""
    expired: bool = False
    """All that is missing is history that has expired; nothing speaks of a rolled back table."""
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class TableReplaced:
    """The table is not the one that the stream has committed to."""

    identity: str


Answer = Found | OtherDigest | Ahead | Absent | Unproven | TableReplaced


@dataclass(frozen=True, slots=True)
class Published:
    """The snapshot is visible."""

    snapshot: SnapshotRef
    tables: Mapping[str, SnapshotRef | None] = field(default_factory=dict)
    """By name, the snapshots of the further tables that got files; None: it has expired."""


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """The snapshot may or may not be visible; the cause is what failed. Ask again, delete nothing."""

    reason: str = ""
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """This attempt has published nothing, and will not; the cause says why."""

    reason: str = ""
    cause: Cause | None = None
    region: str | None = None
    """The region whose files are refused; None: unknown, or the cause is no file."""
    again: bool = False
    """True: the cause may pass, as another writer that was first, or a storage that failed. Ask again.

    False: the table takes this commit never, or not before somebody acts.
    """
    table: str = ""
    """The further table that refuses it; empty: the anchor, or unknown."""


Publication = Published | Refused | OutcomeUnknown


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One commit, complete."""

    decision: int
    digest: str
    head: SnapshotRef | None
    """The head that was asked; the commit is published directly on top of it or not at all."""
    watermark: int | None
    """Milliseconds since the Unix epoch."""
    files: Sequence[FilesWritten | Checked]
    """Events of the commit; those that are not checked are checked on the way.

    They may exceed the memory: iterate once, in order. It may raise: catch nothing, publish after its end.
    """
    account: str = ""
    """Text that the table keeps with the commit, for `capabilities.KeepsAccounts`; empty: none."""
    tables: Mapping[str, "TablePart"] = field(default_factory=dict)
    """By name, the further tables that get files by it, in the same step."""
    vector: Mapping[str, TableVersion] = field(default_factory=dict)
    """All further tables of the stream as of the decision before."""
    apart: bool = False
    """True: the anchor has the decision and is not changed; the further tables here lack it.

    `head` is its snapshot there then, and must be there still. None: the log has the outcome of the decision,
    so that nothing takes it back."""
    left_out: frozenset[str] = frozenset()
    """Further tables that the stream has no more: one that is not there is passed over."""


@dataclass(frozen=True, slots=True)
class TablePart:
    """A further table's part of a commit."""

    known: KnownTable
    """Its entry in the registry: a commit of ours that is not there contradicts it."""
    files: Sequence[FilesWritten | Checked]
    """As those of the commit."""


class Committer(Protocol):
    """The committer half of an adapter, bound to one table and one commit user."""

    def inspect(self) -> TableState:
        """Check that the table is in scope, and say where it stands.

        Raises TableRefused with the feature's name, or LakeUnavailable.
        """
        ...

    def ask(self, decision: int, digest: str, table: str, recorded: SnapshotRef | None) -> Answer:
        """Say whether a decision is in the table.

        `table` is the identity that the stream knows, `recorded` the newest snapshot known to be followed
        by none of this decision or later. `recorded` None: the table had no snapshot then, so its whole
        history must be readable for a proof. Raises LakeUnavailable.
        """
        ...

    def identity(self) -> str:
        """Return the identity of the table that is there now. Raises LakeUnavailable."""
        ...

    def premises(self) -> Premises:
        """Return the facts that checks depend on now, beside the files.

        Raises LakeUnavailable or TableRefused.
        """
        ...

    def check(self, files: Sequence[FilesWritten]) -> list[Checked]:
        """Check that the files could be committed, each once. Raises BadFiles, LakeUnavailable, TableRefused.

        It may be long before the decision that includes them, and in parts.
        """
        ...

    def publish(self, request: CommitRequest) -> Publication:
        """Commit conditionally on the head that was asked, in one attempt. Never deletes after an unknown.

        Only the put of a file whose name is free may be sent again: it has one effect at most. A failure of
        the storage before anything could have become visible is Refused, and may be asked again.
        """
        ...

    def close(self) -> None:
        """Release what the committer holds."""
        ...


class TableMaintenance(Protocol):
    """Upkeep of a table beside its commits. Methods block, and are not safe for concurrent calls.

    An adapter has the capabilities (`capabilities`) that its format allows. A command that needs another one
    is refused.
    """

    location: str
    """URI of the folder that the paths of the table's files are relative to, as events name it."""


class FileWriter(Protocol):
    """The writer half of an adapter: one attempt of one task."""

    location: str
    """URI of the folder that the paths of the file infos are relative to."""
    schema_id: int
    spec_id: int
    """Id of the partition spec; 0 where the format has none."""
    table_identity: str
    """Identity of the table whose schema the files have, as `Committer.identity` gives it."""
    schema_digest: str
    """Digest of the content of that schema; empty where the id is one."""

    def write(self, batch: "pa.RecordBatch") -> None:
        """Add rows. Raises SchemaMismatch for columns that the table does not have."""
        ...

    def finish(self) -> Iterator[FileInfo]:
        """Close all files, durably, and describe them."""
        ...

    def abort(self) -> None:
        """Give up: close without describing. Only files that were never described may be removed."""
        ...


class SchemaMismatch(LakeError):
    """The rows do not fit the table's schema; the text names the columns."""


@runtime_checkable
class Adapter(Protocol):
    """One table format, as an entry point of the group `sluicegate.lakes` gives it."""

    name: str
    """As in the setting `format`, in events, and in the name of the entry point."""
    format_version: int
    """Version of the metadata that the events of this format carry."""
    port_version: int
    """The PORT_VERSION that the adapter was written for."""

    def parse_table(self, text: str, options: Mapping[str, str] | None = None) -> TableRef:
        """Read the name of a table, without access to it. Raises TableRefused if it names none."""
        ...

    def open_committer(self, table: TableRef, commit_user: str) -> Committer:
        """Open the committer half. Raises TableRefused or LakeUnavailable."""
        ...

    def open_maintenance(self, table: TableRef) -> TableMaintenance:
        """Open the maintenance; the table need not exist yet. Raises TableRefused."""
        ...

    def open_writer(
        self,
        table: TableRef,
        event_time_column: str | None,
        label: str | None = None,
    ) -> FileWriter:
        """Open the writer half. Raises TableRefused or LakeUnavailable.

        `label`: what the name of each file carries after its first hyphen (`events.files.attempt_label`).
        None: nothing, so only a stream with `file_names = "unchecked"` takes the files.

        An adapter that follows options of files is a `file_options.FollowsFileOptions`, too.
        """
        ...
