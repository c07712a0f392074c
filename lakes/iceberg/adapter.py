"""Entry of Iceberg in the registry of table formats."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sluicegate.installation import install_command
from sluicegate.lakes.capabilities import TableColumns
from sluicegate.lakes.file_options import NO_OPTIONS, FileOptions
from sluicegate.lakes.group import Group, Transactions
from sluicegate.lakes.iceberg.catalog import (
    DEFAULT_CATALOG,
    Catalog,
    HasSiblings,
    Identifier,
    NoTable,
    StateMissing,
    catalog_options,
    check_options,
    identifier_of,
)
from sluicegate.lakes.iceberg.committer import Composed, IcebergCommitter
from sluicegate.lakes.iceberg.files import Files, is_location
from sluicegate.lakes.iceberg.layout import FORMAT, FORMAT_VERSION
from sluicegate.lakes.iceberg.maintenance import IcebergMaintenance
from sluicegate.lakes.iceberg.metadata import MAIN, Metadata
from sluicegate.lakes.iceberg.sql import SqlCatalog, SqlTransactions
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.port import PORT_VERSION, LakeError, LakeUnavailable, TableRef, TableRefused
from sluicegate.lakes.spooled import Wrap, wrapped
from sluicegate.lakes.storage import KeySource
from sluicegate.lakes.storages import location_uri

if TYPE_CHECKING:
    import pyarrow as pa

    from sluicegate.lakes.iceberg.writer import IcebergWriter

_CATALOGS: Final = ("glue", "rest", "sql")
ATOMIC: Final = "atomic"
"""Value of the option `transactions`, by which an operator says that a REST catalog is atomic.

No endpoint proves it: servers list it without having it, or apply the tables one by one.
"""


class IcebergAdapter:
    """Adapter for append tables of format versions 2 and 3, in an SQL or REST catalog or in AWS Glue.

    The setting `table` is the location of the data files, as the table's metadata names it. The option
    `identifier` is its name in the catalog, `catalog` the name of the catalog, `branch` the branch that
    commits go to. All other options are the catalog's own.
    """

    name = FORMAT
    format_version = FORMAT_VERSION
    port_version = PORT_VERSION

    def __init__(self, defaults: Mapping[str, str] | None = None) -> None:
        """Make an adapter; `defaults` are options of tables that do not set them."""
        self._defaults = dict(defaults or {})

    def parse_table(self, text: str, options: Mapping[str, str] | None = None) -> TableRef:
        """Read a path or a URI of the folder of a table's data.

        Raises TableRefused for other storage, and for options without a meaning.
        """
        table = TableRef(text, location_uri(text), {**self._defaults, **(options or {})})
        identifier_of(table)
        _kind_of_catalog(table)
        check_options(table)
        return table

    def with_local_catalog(self, options: Mapping[str, str], folder: Path) -> dict[str, str]:
        """Return the options, with a catalog of SQLite in the folder if they name none."""
        if {"type", "uri"} & options.keys():
            return dict(options)
        return {"uri": f"sqlite:///{folder / 'catalog.db'}", **options}

    def open_committer(self, table: TableRef, commit_user: str) -> IcebergCommitter:
        """Open the committer half. Raises TableRefused or LakeUnavailable."""
        if not commit_user or "@" in commit_user:
            raise TableRefused(
                f"the commit user {commit_user!r} must be a name without `@`: the table tells decisions "
                "apart by it"
            )
        files = Files()
        catalog = open_catalog(table, files, pooled=True)
        branch = table.options.get("branch", MAIN)
        try:
            metadata = load_existing(table, catalog)
            checked_table(table, metadata, branch)
            prove_storage(table, metadata, catalog, files)
        except StateMissing as error:
            catalog.close()
            # As with the other formats, a stream begins with no table that is not there.
            raise TableRefused(str(error)) from error
        except LakeError:
            catalog.close()
            raise
        return IcebergCommitter(catalog, files, commit_user, branch)

    def open_group(
        self, table: TableRef, commit_user: str, wanted: Mapping[str, tuple[str, Sequence[str]]]
    ) -> Group[Metadata, Composed]:
        """Open the committer half of a stream with further tables. Raises as `open_committer` does.

        `wanted`: by name, the identifiers of the further tables of the settings, and allowed locations.
        """
        anchor = self.open_committer(table, commit_user)
        catalog = anchor.catalog

        def opened(identifier: str) -> IcebergCommitter:
            *namespace, name = identifier.split(".")
            if not namespace or not all((*namespace, name)):
                raise TableRefused(
                    f"the name of a further table must be NAMESPACE.TABLE, and not {identifier!r}"
                )
            if not isinstance(catalog, HasSiblings):
                raise refused_group(table)
            files = Files()
            sibling = catalog.sibling(Identifier(tuple(namespace), name), files)
            return IcebergCommitter(sibling, files, commit_user, anchor.branch)

        def transactions() -> Transactions[Metadata, Composed]:
            if isinstance(catalog, SqlCatalog):
                return SqlTransactions(catalog)
            if _kind_of_catalog(table) != "rest" or table.options.get("transactions") != ATOMIC:
                raise refused_group(table)
            from sluicegate.lakes.iceberg.rest import RestTable, RestTransactions

            if not isinstance(catalog, RestTable):
                raise refused_group(table)
            return RestTransactions(catalog)

        return Group(anchor, opened, transactions, wanted)

    def named(self, table: TableRef, identifier: str) -> TableRef:
        """Return a table in the catalog of another one, on its branch, with an empty location."""
        return TableRef(identifier, "", {**table.options, "identifier": identifier})

    def further(self, table: TableRef, identifier: str) -> TableRef:
        """Return a table in the catalog of another one, on its branch. Raises as the capability says."""
        named = self.named(table, identifier)
        with closing(open_catalog(named, Files())) as catalog:
            view = TableView(load_existing(named, catalog))
        return replace(named, location=view.event_location)

    def open_maintenance(self, table: TableRef) -> IcebergMaintenance:
        """Open the maintenance; the table need not exist yet. Raises TableRefused."""
        files = Files()
        branch = table.options.get("branch", MAIN)
        return IcebergMaintenance(open_catalog(table, files), files, table, branch, open_catalog)

    def open_writer(
        self,
        table: TableRef,
        event_time_column: str | None,
        label: str | None = None,
        files: FileOptions | None = None,
        wrap: Wrap | None = None,
    ) -> "IcebergWriter":
        """Open the writer half. Raises TableRefused or LakeUnavailable."""
        # This import loads libraries that a coordinator does not need.
        from sluicegate.lakes.iceberg.writer import IcebergWriter

        files_of_table = Files()
        catalog = open_catalog(table, files_of_table)
        try:
            view = checked_table(table, load_existing(table, catalog), table.options.get("branch", MAIN))
        finally:
            catalog.close()
        storage = wrapped(files_of_table.folder(view.data_location), wrap)
        return IcebergWriter(view, storage, event_time_column, label, files or NO_OPTIONS)

    def key_source(self, options: Mapping[str, str]) -> KeySource | None:
        """Return the source of keys that the catalog of a table is; None if it is asked for none."""
        given = {name: value for name, value in options.items() if name != "format"}
        files = Files()
        open_catalog(TableRef(given["identifier"], "", given), files)
        return files.source

    def read_columns(self, table: TableRef) -> TableColumns:
        """Return the newest columns. Raises TableRefused or LakeUnavailable."""
        from sluicegate.lakes.iceberg.new_columns import columns_of

        with closing(open_catalog(table, Files())) as catalog:
            metadata = load_existing(table, catalog)
        return columns_of(metadata, checked_table(table, metadata, table.options.get("branch", MAIN)))

    def add_columns(self, table: TableRef, columns: Sequence["pa.Field"], seen: TableColumns) -> bool:
        """Commit a schema with the columns, on the current one. Raises as the capability says."""
        from sluicegate.lakes.iceberg.new_columns import add_columns, columns_of

        with closing(open_catalog(table, Files())) as catalog:
            metadata = load_existing(table, catalog)
            view = checked_table(table, metadata, table.options.get("branch", MAIN))
            if columns_of(metadata, view).version != seen.version:
                return False
            return add_columns(catalog, metadata, view, columns)


def refused_group(table: TableRef) -> TableRefused:
    """Return the error of a stream with further tables in a catalog without transactions over several."""
    return TableRefused(
        f"the catalog of {table.name} is not known to change several tables in one step. Use an SQL catalog, "
        'or a REST catalog that does, and say so with the option transactions = "atomic". Else give each '
        "table a stream of its own"
    )


def open_catalog(table: TableRef, files: Files, *, pooled: bool = False) -> Catalog:
    """Return the catalog entry of a table. Raises TableRefused for catalogs without support.

    `pooled`: connections stay open until it is closed.
    """
    check_options(table)
    options, kind = catalog_options(table), _kind_of_catalog(table)
    name = table.options.get("catalog", DEFAULT_CATALOG)
    if kind == "glue":
        return _open_glue(options, name, identifier_of(table), files)
    if kind == "rest":
        # This import loads the library's client, which other catalogs do not need.
        from sluicegate.lakes.iceberg.rest import RestTable

        return RestTable(options, name, identifier_of(table), files)
    return SqlCatalog(options["uri"], name, identifier_of(table), files, pooled=pooled)


def _kind_of_catalog(table: TableRef) -> str:
    """Return the type of the catalog. Raises TableRefused for one without support, or without an address."""
    kind = table.options.get("type", "sql")
    if kind not in _CATALOGS:
        raise TableRefused(
            f"the catalog type {kind} of {table.name} is not supported; this release knows "
            f"{', '.join(_CATALOGS)}. Set the option type to one"
        )
    if kind != "glue" and not table.options.get("uri"):
        raise TableRefused(f"the table {table.name} needs the option uri: the address of its catalog")
    return kind


def _open_glue(options: Mapping[str, str], name: str, identifier: Identifier, files: Files) -> Catalog:
    try:
        # The import takes a second, and the package is an extra.
        from sluicegate.lakes.iceberg.glue import GlueCatalog
    except ImportError as error:
        raise TableRefused(
            f"the catalog of {identifier} is in AWS Glue, which needs a package that is not installed "
            f"({error.name}); install it with: {install_command('iceberg', 'glue')}"
        ) from error
    return GlueCatalog(options, name, identifier, files)


def load_existing(table: TableRef, catalog: Catalog) -> Metadata:
    """Return the state of a table. Raises TableRefused if it does not exist, or LakeUnavailable."""
    try:
        return catalog.load()
    except NoTable:
        raise TableRefused(
            f"the catalog {table.options.get('catalog', DEFAULT_CATALOG)} has no table "
            f"{identifier_of(table)}; correct the options identifier and catalog (`replay rebuild`: --option "
            "identifier=NAME), or create the table first"
        ) from None


def checked_table(table: TableRef, metadata: Metadata, branch: str) -> TableView:
    """Return the view of a table that is in scope, and where its setting says. Raises TableRefused."""
    view = TableView(metadata)
    if table.location != view.event_location:
        raise TableRefused(
            f"the table {identifier_of(table)} keeps its data in {view.event_location}, not in "
            f"{table.location}. Set `table` to that location"
        )
    try:
        metadata.head(branch)
    except LakeUnavailable as error:
        raise TableRefused(str(error)) from error
    return view


def prove_storage(table: TableRef, metadata: Metadata, catalog: Catalog, files: Files) -> None:
    """Check that this process reaches the storage in which the catalog keeps the table's metadata.

    The environment may name another store, with a bucket of the same name. Commits would then refer to files
    that no reader finds. Raises StateMissing or LakeUnavailable.
    """
    location = metadata.location
    # The answer of a catalog may name no metadata file.
    if not is_location(location) or files.is_there(location):
        return
    # Maintenance may have deleted an old metadata file meanwhile.
    newest = load_existing(table, catalog).location
    if newest == location or not files.is_there(newest):
        raise StateMissing(
            f"{newest}, the metadata of {identifier_of(table)}, is not in the storage that this process "
            "reaches, but the catalog names it. See whether the environment names the store that the catalog "
            "uses, and whether the catalog's storage is mounted"
        )


ADAPTER: Final = IcebergAdapter()
