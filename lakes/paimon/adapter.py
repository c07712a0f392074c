"""Entry of Paimon in the registry of table formats."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sluicegate.lakes.capabilities import TableColumns
from sluicegate.lakes.file_options import NO_OPTIONS, FileOptions
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.paimon.entries import FORMAT, FORMAT_VERSION
from sluicegate.lakes.paimon.keys import sequence_fields
from sluicegate.lakes.paimon.maintenance import PaimonMaintenance
from sluicegate.lakes.paimon.snapshots import highest_number
from sluicegate.lakes.paimon.table import Table, layout
from sluicegate.lakes.port import PORT_VERSION, TableRef, TableRefused
from sluicegate.lakes.sequence import BucketsOf, Keys, Upserts
from sluicegate.lakes.spooled import Wrap, wrapped
from sluicegate.lakes.storages import location_uri, open_storage

if TYPE_CHECKING:
    import pyarrow as pa

    from sluicegate.lakes.paimon.writer import PaimonWriter


_OF_CATALOGS: Final = frozenset({"catalog", "dlf", "identifier", "metastore", "token", "uri", "warehouse"})
"""First parts of the names of options with which Paimon's libraries open a catalog."""


class PaimonAdapter:
    """Adapter for append tables, and tables with keys in fixed buckets.

    A location is the table's folder, on a file system or in an object store.
    """

    name = FORMAT
    format_version = FORMAT_VERSION
    port_version = PORT_VERSION

    def parse_table(self, text: str, options: Mapping[str, str] | None = None) -> TableRef:
        """Read a path or a URI of a table's folder. Raises TableRefused for unknown storage, and options."""
        for name in options or {}:
            if name.partition(".")[0].lower() in _OF_CATALOGS:
                # tests/lakes/paimon/test_rest_catalog.py has the reasons.
                raise TableRefused(
                    f"the option {name} is of a catalog, and tables of Paimon's REST catalog are not "
                    "supported: the catalog takes a commit whatever it is based on, and a client can ask it "
                    "for the newest commit alone. Leave the option out, and use a table whose snapshots are "
                    "in its folder (docs/formats/paimon.md)"
                )
            raise TableRefused(
                f"Paimon tables have no options, and {name} is given. Leave it out; a table has its own "
                "options in its schema"
            )
        return TableRef(text, location_uri(text))

    def open_committer(self, table: TableRef, commit_user: str) -> PaimonCommitter:
        """Open the committer half. Raises TableRefused or LakeUnavailable."""
        if not commit_user:
            raise TableRefused("a commit user must not be empty: the table tells decisions apart by it")
        storage = open_storage(table.location)
        # Raises TableRefused early if the table is out of scope.
        Table(storage).newest()
        return PaimonCommitter(storage, commit_user)

    def open_maintenance(self, table: TableRef) -> PaimonMaintenance:
        """Open the maintenance; the table need not exist yet. Raises TableRefused."""
        return PaimonMaintenance(open_storage(table.location))

    def open_writer(
        self,
        table: TableRef,
        event_time_column: str | None,
        label: str | None = None,
        files: FileOptions | None = None,
        wrap: Wrap | None = None,
        upserts: Upserts | None = None,
    ) -> "PaimonWriter":
        """Open the writer half. Raises TableRefused or LakeUnavailable."""
        # This import loads half of pypaimon, which would delay the start of a coordinator.
        from sluicegate.lakes.paimon.writer import PaimonWriter

        storage = wrapped(open_storage(table.location), wrap)
        return PaimonWriter(storage, event_time_column, label, files or NO_OPTIONS, upserts)

    def keys(self, table: TableRef) -> Keys | None:
        """Return the properties of a table with keys; None for others, and for one that is not there yet.

        Raises TableRefused or LakeUnavailable.
        """
        opened = Table(open_storage(table.location))
        if not opened.exists() or not opened.newest().is_primary_key_table:
            return None
        schema = opened.newest().table_schema
        return Keys(layout(schema).total, is_ordered=bool(sequence_fields(schema.options)))

    def highest_number(self, table: TableRef) -> int:
        """Return the highest sequence number of the newest snapshot. Raises LakeUnavailable."""
        return highest_number(open_storage(table.location))

    def buckets_of(self, table: TableRef) -> BucketsOf:
        """Return the function of the buckets of rows. Raises TableRefused or LakeUnavailable."""
        # These imports load half of pypaimon, which would delay the start of a coordinator.
        from sluicegate.lakes.paimon.writer import buckets_of

        return buckets_of(Table(open_storage(table.location)).newest())

    def read_columns(self, table: TableRef) -> TableColumns:
        """Return the newest columns. Raises TableRefused or LakeUnavailable."""
        from sluicegate.lakes.paimon.new_columns import read_columns

        return read_columns(Table(open_storage(table.location)))

    def add_columns(self, table: TableRef, columns: Sequence["pa.Field"], seen: TableColumns) -> bool:
        """Put the next schema of the table, if its number is free. Raises as the capability says."""
        from sluicegate.lakes.paimon.new_columns import add_columns

        return add_columns(open_storage(table.location), columns, seen)


ADAPTER: Final = PaimonAdapter()
