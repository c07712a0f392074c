"""Entry of Delta in the registry of table formats."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sluicegate.lakes.capabilities import TableColumns
from sluicegate.lakes.delta.checkpointing import Checkpointing
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.delta.entries import FORMAT, FORMAT_VERSION
from sluicegate.lakes.delta.features import open_in_scope
from sluicegate.lakes.delta.maintenance import DeltaMaintenance
from sluicegate.lakes.delta.versions import RESERVED
from sluicegate.lakes.file_options import NO_OPTIONS, FileOptions
from sluicegate.lakes.port import PORT_VERSION, TableRef, TableRefused
from sluicegate.lakes.spooled import Wrap, wrapped
from sluicegate.lakes.storages import location_uri, open_storage

if TYPE_CHECKING:
    import pyarrow as pa

    from sluicegate.lakes.delta.writer import DeltaWriter

CHECKPOINTS: Final = "checkpoints"
"""Option: `off` leaves all checkpoints to other engines."""
_OF_UPSERTS: Final = ("key", "upsert", "merge", "identifier-field", "delete", "overwrite", "mode")
"""Parts of the names of options that ask for more than an append."""


class DeltaAdapter:
    """Adapter for append tables. A location is the table's folder."""

    name = FORMAT
    format_version = FORMAT_VERSION
    port_version = PORT_VERSION

    def parse_table(self, text: str, options: Mapping[str, str] | None = None) -> TableRef:
        """Read a path or a URI of a table's folder. Raises TableRefused for other storage or options."""
        for name, value in (options or {}).items():
            _refuse_option(name, value)
        return TableRef(text, location_uri(text), dict(options or {}))

    def open_committer(self, table: TableRef, commit_user: str) -> DeltaCommitter:
        """Open the committer half. Raises TableRefused or LakeUnavailable."""
        if not commit_user or RESERVED.fullmatch(commit_user):
            raise TableRefused(
                f"{commit_user!r} cannot be a commit user: it is empty, or ends as the names of transactions "
                "of another one do. Set `commit_user` to another name"
            )
        storage = open_storage(table.location)
        # Raises TableRefused early if the table is out of scope.
        open_in_scope(storage)
        own = table.options.get(CHECKPOINTS) != "off"
        return DeltaCommitter(storage, commit_user, Checkpointing(storage.root) if own else None)

    def open_maintenance(self, table: TableRef) -> DeltaMaintenance:
        """Open the maintenance; the table need not exist yet. Raises TableRefused."""
        return DeltaMaintenance(open_storage(table.location))

    def open_writer(
        self,
        table: TableRef,
        event_time_column: str | None,
        label: str | None = None,
        files: FileOptions | None = None,
        wrap: Wrap | None = None,
    ) -> "DeltaWriter":
        """Open the writer half. Raises TableRefused or LakeUnavailable."""
        # This import loads Parquet, which would delay the start of a coordinator.
        from sluicegate.lakes.delta.writer import DeltaWriter

        storage = wrapped(open_storage(table.location), wrap)
        return DeltaWriter(storage, open_in_scope(storage), event_time_column, label, files or NO_OPTIONS)

    def read_columns(self, table: TableRef) -> TableColumns:
        """Return the newest columns. Raises TableRefused or LakeUnavailable."""
        from sluicegate.lakes.delta.new_columns import read_columns

        return read_columns(open_storage(table.location))

    def add_columns(self, table: TableRef, columns: Sequence["pa.Field"], seen: TableColumns) -> bool:
        """Put the next version with the columns, if it is absent. Raises as the capability says."""
        from sluicegate.lakes.delta.new_columns import add_columns

        return add_columns(open_storage(table.location), columns, seen)


def _refuse_option(name: str, value: str) -> None:
    if name == CHECKPOINTS:
        if value in ("on", "off"):
            return
        raise TableRefused(f"the option {CHECKPOINTS} = {value} is neither on nor off. Set it to one of them")
    if any(part in name.lower() for part in _OF_UPSERTS):
        raise TableRefused(
            f"the option {name} asks for upserts or replaced rows. Delta tables of this release only take "
            "appended rows: leave the option out, append the changes, and merge them downstream"
        )
    raise TableRefused(
        f"Delta tables have no option {name}; the option is {CHECKPOINTS}. Leave it out, or correct its name"
    )


ADAPTER: Final = DeltaAdapter()
