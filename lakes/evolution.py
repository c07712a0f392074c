"""The capability of an adapter to add columns to a table, which `new_columns.evolve` uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args, runtime_checkable

from sluicegate.lakes.port import Adapter, TableRef, TableRefused

if TYPE_CHECKING:
    import pyarrow as pa

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
