"""Capabilities beside the commits. A format has those that it can keep.

The ones of a table belong to its maintenance: ReadsHistory, FindsOrphans, CopiesFiles, OpensNewest,
NamesFolders, KeepsAccounts, NamesCleaner, MakesTags and DescribesPartitions. `capable` asks for one. The ones
of a format belong to its adapter: OpensGroups, EvolvesSchema, HasLocalCatalog, and
`file_options.FollowsFileOptions`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeVar, get_args, runtime_checkable

from sluicegate.events.models import FilesWritten, FurtherTable, KnownTable, SnapshotRef
from sluicegate.events.problems import Problem
from sluicegate.lakes.port import (
    Adapter,
    Answer,
    Committer,
    LakeUnavailable,
    TableMaintenance,
    TableRef,
    TableRefused,
)
from sluicegate.lakes.storage import KeySource, Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from sluicegate.lakes.history import TableHistory


class FileStatus(StrEnum):
    """Status of a data file or a draft in its table."""

    REFERENCED = "referenced"
    """A snapshot, branch, tag or changelog has it; a draft: other metadata names it, too."""
    UNREFERENCED = "unreferenced"
    GONE = "gone"
    """It is not there, or not any more."""
    OUTSIDE = "outside"
    """The path is no place of a data file or draft of this table; nothing is said of what is there."""
    DELETED = "deleted"


@runtime_checkable
class GroupCommitter(Committer, Protocol):
    """Committer of several tables: a decision changes the anchor, and further tables in the same step.

    Its own methods are about the anchor, except `publish`.
    """

    def table(self, terms: FurtherTable) -> Committer:
        """Return the committer half of a further table. Raises TableRefused or LakeUnavailable."""
        ...

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
        """Ask the anchor for a decision, and after it the further tables that it touches, as `ask` does.

        One of `left_out` that cannot be read is no obstacle. `undo`: they are asked also if the anchor lacks
        the decision, and none has to answer.
        """
        ...

    def trouble(self, tables: Mapping[str, KnownTable]) -> Mapping[str, Problem | LakeUnavailable]:
        """Return, by name, why nothing can be published now to some of these tables.

        An error: the table cannot be read now. Raises LakeUnavailable if none can be read.
        """
        ...


@runtime_checkable
class OpensGroups(Adapter, Protocol):
    """Capability: several tables can be changed in one step."""

    def open_group(
        self, table: TableRef, commit_user: str, wanted: Mapping[str, tuple[str, Sequence[str]]]
    ) -> GroupCommitter:
        """Open the committer of an anchor, and of further tables in its catalog, as `open_committer` does.

        `wanted`: by name, the identifiers of the further tables of the settings, and allowed locations beside
        their own. `inspect` reads them.
        """
        ...

    def named(self, table: TableRef, identifier: str) -> TableRef:
        """Return the table of this name in the catalog of another one. Its location is empty."""
        ...

    def further(self, table: TableRef, identifier: str) -> TableRef:
        """Return the same as `named`, at the location that the catalog has for it.

        Raises TableRefused or LakeUnavailable.
        """
        ...


@runtime_checkable
class ReadsHistory(TableMaintenance, Protocol):
    """Capability: the commits of a table can be listed. Verification and repair need it."""

    def history(self) -> "TableHistory":
        """Return everything that can still be read about the table's commits. Raises LakeUnavailable."""
        ...


@runtime_checkable
class FindsOrphans(TableMaintenance, Protocol):
    """Capability: the references to data files and drafts can be found. The janitor and `orphans` need it."""

    branch: str
    """Branch of the table on which its commits are made; empty for a format without branches."""

    def stated_files(self) -> dict[str, int]:
        """Return all data files whose names state their attempt (`events.files`), and all drafts (`drafts`).

        Each with its size in bytes. The paths are as those of `file_status`. Raises LakeUnavailable.
        """
        ...

    def file_status(self, paths: Sequence[str]) -> dict[str, FileStatus]:
        """Return the status of each data file or draft; never DELETED. Raises LakeUnavailable."""
        ...

    def delete_unreferenced(self, path: str) -> FileStatus:
        """Look for references to one data file or draft, and delete it only if there are none.

        The caller must know that nobody will commit the file. Raises LakeUnavailable.
        """
        ...


@runtime_checkable
class CopiesFiles(TableMaintenance, Protocol):
    """Capability: files of another table of the format can be copied into this one. A rebuild needs it."""

    def create_like(self, source: TableRef) -> None:
        """Make the table with the schemas of another one of its format; an existing table stays as it is.

        Raises LakeUnavailable.
        """
        ...

    def examine(self, event: FilesWritten, *, lost: bool = False) -> None:
        """Check that `adopt` could copy an event's files; the table need not exist yet.

        `lost`: the metadata of the files' table is lost, and this table exists. So its schema of that id is
        compared with the digests of the event, or else with the columns of the files. Raises BadFiles if a
        file is not there as described or does not fit the table, LakeUnavailable.
        """
        ...

    def adopt(self, event: FilesWritten, *, lost: bool = False) -> FilesWritten:
        """Copy an event's files into this table's folders, durably; return the event as of this table.

        All are examined before any is copied, and none becomes visible. Raises BadFiles, LakeUnavailable.
        """
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """Result of opening what a reader of the newest snapshot opens."""

    files: int
    """Data files that were opened: those that were added last, and some of the others."""
    problems: tuple[str, ...] = ()
    """Sentences about files that cannot be opened, each with the way out."""


@runtime_checkable
class OpensNewest(TableMaintenance, Protocol):
    """Capability: the files of the newest snapshot can be opened. `check` and `replay verify` need it."""

    def open_newest(self) -> Opened:
        """Open the metadata of the newest snapshot, and a sample of its data files.

        Raises LakeUnavailable if its metadata cannot be read.
        """
        ...


@runtime_checkable
class NamesFolders(TableMaintenance, Protocol):
    """Capability: the folders that a commit writes to are known. `sluicegate check` tries to write there."""

    written_folders: Sequence[str]
    """Relative to `location`; a missing one is made by the first commit."""


_Capability = TypeVar("_Capability")


def capable(maintenance: TableMaintenance, capability: type[_Capability], purpose: str) -> _Capability:
    """Return the maintenance of a table as one with a capability. Raises TableRefused if it lacks that."""
    if not isinstance(maintenance, capability):
        raise TableRefused(
            f"the format of the table {maintenance.location} lacks the capability {capability.__name__}, "
            f"which {purpose} needs. Use another tool for this table, or a release of its adapter with it"
        )
    return maintenance


# Accounts: text that a table keeps with each commit, so that a stream can continue from the table alone.


@runtime_checkable
class KeepsAccounts(TableMaintenance, Protocol):
    """Capability: the account of a commit can be read. `sluicegate stream adopt` needs it."""

    def account(self, commit_user: str, snapshot: SnapshotRef) -> str:
        """Return the account of the commit that made a snapshot; empty if the table has none.

        A format that keeps only the newest account of a user may return that one: it names its decision.
        Raises LakeUnavailable.
        """
        ...


# The age from which cleaners of other products delete files that no snapshot has.
#
# The files of a pending checkpoint are such files until their commit.


class Cleaner(NamedTuple):
    """A cleaner that users of a table format run, and the age that it uses if nothing else is said."""

    name: str
    age: float
    """Seconds."""
    setting: str
    """Property of the table that sets the age; empty: only an argument of the cleaner does."""
    remedy: str
    """Change that makes the age longer; `{hours}` stands for the hours."""


@runtime_checkable
class NamesCleaner(Protocol):
    """Capability: the cleaner of a table is known. `sluicegate check` compares its age with the stream."""

    def cleaner(self) -> Cleaner | None:
        """Return the cleaner; None if the table forbids that any deletes. Raises LakeUnavailable."""
        ...


# Capability of a table's maintenance: tags, which are names of snapshots that keep them from expiry.


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag to make."""

    name: str
    snapshot: SnapshotRef
    decision: int
    """Newest decision that the snapshot includes."""
    retained: int | None = None
    """Milliseconds after which the format's own upkeep may delete the tag; None: it stays."""


@dataclass(frozen=True, slots=True)
class TagMade:
    """The tag was not there, and is there now."""


@dataclass(frozen=True, slots=True)
class TagThere:
    """A tag of this name and this snapshot was there already."""


@dataclass(frozen=True, slots=True)
class TagTaken:
    """The name belongs to another snapshot, or to a branch."""

    holder: str
    """Such as `a tag of snapshot 7`."""


@dataclass(frozen=True, slots=True)
class SnapshotExpired:
    """The snapshot is not in the table any more, so it can get no tag."""

    tag_is_there: bool = False
    """True if it expired while the tag was made: the tag is there, and its files may be deleted."""


TagAnswer = TagMade | TagThere | TagTaken | SnapshotExpired


@runtime_checkable
class MakesTags(Protocol):
    """Capability: tags can be made. No tag is ever moved or deleted."""

    def make_tag(self, tag: Tag) -> TagAnswer:
        """Make a tag, unless its name is taken. It may be repeated, after any outcome.

        Raises LakeUnavailable, also if the outcome is unknown, and TableRefused if there is no such table.
        """
        ...


# Capability of a table's maintenance: the fields of its partitions, and the folders of their data files.

FieldKind = Literal["identity", "year", "month", "day", "hour", "days", "opaque"]
"""Kind of the values of a partition field, as `FileInfo.partition` has them.

- identity: the value of a column, as text
- year, month, day, hour: the part of a time that a hidden transform makes
- days: a date, as the number of days since 1970-01-01
- opaque: a value without a time, such as the number of a bucket
"""


class PartitionField(NamedTuple):
    """A field of a table's partitions."""

    name: str
    """As in `FileInfo.partition`."""
    kind: FieldKind
    zoned: bool = False
    """True for a transform of a time with a zone: its parts are those of UTC."""


@dataclass(frozen=True)
class PartitionLayout:
    """The partitions of a table, as of its current metadata."""

    fields: tuple[PartitionField, ...]
    """Those of all partition specs, the current one first; each name once."""
    storage: Storage
    """The folder of the data files."""
    no_folder: str | None
    """Reason for which a partition has no folder of its own; None if it has one."""
    folder: Callable[[Mapping[str, str | None]], str]
    """Return the folder of a partition's files, relative to `storage`, as the writers here name it."""


@runtime_checkable
class DescribesPartitions(Protocol):
    """Capability: the layout of the partitions is known. Marks of partitions need it."""

    def partition_layout(self) -> PartitionLayout:
        """Return the layout of the table. Raises TableRefused if there is no table, or LakeUnavailable."""
        ...


# The capability of an adapter to add columns to a table, which `new_columns.evolve` uses.

Evolve = Literal["never", "add-columns"]
"""Permission of a writer to change the schema of its table."""
EVOLVE_VALUES: Final[tuple[Evolve, ...]] = get_args(Evolve)


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Columns of a table, as of one version of its schema."""

    schema: "pa.Schema"
    """In the types to which the writer half converts rows."""
    version: str
    """Text that differs after each change of the schema, and for another table at the same place."""


@runtime_checkable
class EvolvesSchema(Adapter, Protocol):
    """Capability of an adapter: columns can be added to a table."""

    def read_columns(self, table: TableRef) -> TableColumns:
        """Return the newest columns. Raises TableRefused or LakeUnavailable."""
        ...

    def add_columns(self, table: TableRef, columns: Sequence["pa.Field"], seen: TableColumns) -> bool:
        """Add nullable columns, all in one new version of the schema, if `seen` is still the newest one.

        Returns False if it is not, or if another commit came first: then nothing was changed. The types are
        those of `storable`. Partitions, other columns and properties stay as they are, except those that
        describe columns.

        Raises SchemaMismatch for a name or a type that the format cannot take, before anything is changed.
        Raises TableRefused, or LakeUnavailable, also if the outcome is unknown: the columns may be there.
        """
        ...


def evolving(adapter: Adapter) -> EvolvesSchema:
    """Return an adapter as one that adds columns. Raises TableRefused if its format cannot."""
    if not isinstance(adapter, EvolvesSchema):
        raise TableRefused(
            f"the table format {adapter.name} lacks the capability EvolvesSchema, so its writers cannot add "
            "columns. Set evolve to never, and add the columns to the table with its own tools"
        )
    return adapter


@dataclass(frozen=True, slots=True)
class CatalogAccess:
    """Access of this process to the catalog of a table."""

    kind: str
    """Such as `REST catalog`."""
    address: str
    """Without a password."""
    login: str
    """Kind of the login, without its secrets."""
    lifetime: float | None = None
    """Seconds for which the token of requests is valid; None: there is none, or nothing states them."""
    refuses: bool | None = None
    """True if it has refused a change of nothing whose condition does not hold; None: that was not tried.

    False proves no defect: it may leave out a change that is empty."""


@runtime_checkable
class HasCatalog(Protocol):
    """Capability of a table's maintenance: a catalog has the table. `sluicegate check` describes it."""

    def catalog_access(self) -> CatalogAccess:
        """Ask the catalog for the table and try a condition, and describe the access. Raises LakeError."""
        ...


@runtime_checkable
class HandsOutKeys(Protocol):
    """Capability of an adapter: the catalog of a table may give the keys of its storage."""

    def key_source(self, options: Mapping[str, str]) -> KeySource | None:
        """Return the source with these options, as `KeySource.options` has them. Raises TableRefused."""
        ...


# Options for a try on one machine: a format may need a catalog, and have one in a file.


@runtime_checkable
class HasLocalCatalog(Protocol):
    """Capability of an adapter: its tables need a catalog, which may be a file. `sluicegate up` uses it."""

    def with_local_catalog(self, options: Mapping[str, str], folder: Path) -> dict[str, str]:
        """Return the options, with a catalog in the folder if they name none."""
        ...
