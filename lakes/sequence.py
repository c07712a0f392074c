"""Sequence numbers of the rows of tables with keys, and the capability to write such tables.

The number of a row decides which of two rows with one key is the newer one. The number is in the data file,
and checkpoints are written before those before them are committed. So the driver of the region gives each
checkpoint a range of its own, as a function of the checkpoint's number:

- The *floor* of an incarnation is the highest number in the table when the incarnation began. An accepted
  registration proves that nothing else of earlier incarnations is ever committed.
- The n-th checkpoint after the base of the incarnation has the numbers from `floor + n * STEP` on.
- Each task has a part of these numbers. So no two rows have the same number, which readers of different
  languages would order differently.

Numbers end long before they could wrap: a checkpoint or a task without numbers is refused.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeGuard

from sluicegate.lakes.port import Adapter, FileWriter, SchemaMismatch, TableRef, TableRefused
from sluicegate.texts import counted

if TYPE_CHECKING:
    import pyarrow as pa

KIND_OPTION: Final = "row.kind.column"
"""Option of a sink that names the column of the kinds of rows."""
STEP: Final = 1 << 36
"""Numbers of a checkpoint."""
END: Final = (1 << 63) - (1 << 50)
"""First number that no checkpoint gets."""
MOST_TASKS: Final = 4096
"""Tasks of a checkpoint whose number is not known when they begin. Each can write 16,777,216 rows."""


class Numbers(NamedTuple):
    """Range of sequence numbers."""

    first: int
    end: int
    """First number after the range."""

    def part(self, number: int, parts: int) -> "Numbers":
        """Return the numbers of one of so many tasks. Raises TableRefused if there is no such task."""
        if not 0 <= number < parts <= self.end - self.first:
            raise TableRefused(
                f"the rows are to be written as part {number} of {parts} of their checkpoint, which is none. "
                f"Parts count from 0, and a task of Spark is one of {MOST_TASKS} at most: use fewer tasks, "
                "as by coalesce"
            )
        width = (self.end - self.first) // parts
        return Numbers(self.first + number * width, self.first + (number + 1) * width)

    def take(self, rows: int) -> tuple["Numbers", "Numbers"]:
        """Return the numbers of the next rows, and those that are left. Raises SchemaMismatch."""
        if rows > self.end - self.first:
            raise SchemaMismatch(
                f"a task has {counted(rows, 'row')} more, and {counted(self.end - self.first, 'number')} "
                "left for them. Numbers never repeat, because an older row could win then. Use more tasks, "
                "or smaller checkpoints, as by maxOffsetsPerTrigger"
            )
        return Numbers(self.first, self.first + rows), Numbers(self.first + rows, self.end)


def checkpoint_numbers(floor: int, place: int) -> Numbers:
    """Return the numbers of a checkpoint, the first one after the base having place 1.

    Raises TableRefused if there are none left.
    """
    if place < 1:
        raise TableRefused(
            f"a checkpoint is to be written {-place} before the base of its incarnation. Start the query in "
            "a checkpoint location that was not changed by hand"
        )
    found = Numbers(floor + place * STEP, floor + (place + 1) * STEP)
    if found.end > END:
        raise TableRefused(
            f"the table has rows with sequence numbers up to {floor}, and checkpoint {place} after them "
            f"would need numbers above {END}, close to the largest one. Copy the rows to a new table, whose "
            "numbers begin at 0, and give the stream that"
        )
    return found


def raised_floor(floor: int, highest: int, place: int) -> int:
    """Return the floor of an incarnation that continues, above the highest number in its table.

    Rows of the checkpoint at this place follow all that is committed. The floor never falls: checkpoints that
    are planned and not committed have numbers by the old one.
    """
    if floor + place * STEP > highest:
        return floor
    return highest - (place - 1) * STEP


class Keys(NamedTuple):
    """Properties of a table with keys."""

    buckets: int
    is_ordered: bool
    """True if a column decides which row is newer, and the sequence numbers only end ties."""


class Upserts(NamedTuple):
    """Options of an attempt that writes rows to a table with keys."""

    kind_column: str | None = None
    """Column of the rows with the kind of each: +I, -U, +U or -D. The table does not have it."""
    numbers: Numbers | None = None


BucketsOf = Callable[["pa.RecordBatch"], "pa.Array"]
"""Function of rows that returns the bucket of each."""


class WritesKeys(Adapter, Protocol):
    """Capability: tables with keys can be written."""

    def keys(self, table: TableRef) -> Keys | None:
        """Return the properties of a table with keys; None for other tables, and if there is none.

        Raises TableRefused or LakeUnavailable.
        """
        ...

    def highest_number(self, table: TableRef) -> int:
        """Return a number that no committed row exceeds; 0 if there is none. Raises as `keys`."""
        ...

    def buckets_of(self, table: TableRef) -> BucketsOf:
        """Return the function of the buckets of rows. Raises as `keys`."""
        ...


class UpsertWriter(FileWriter, Protocol):
    """Writer half of a table with keys."""

    buckets: frozenset[int]
    """After `finish`, the buckets of its files, unless a column orders the rows: no other writer of the
    checkpoint may have rows of them."""


def writes_keys(adapter: Adapter) -> TypeGuard[WritesKeys]:
    """Return True if an adapter can write tables with keys."""
    return hasattr(adapter, "highest_number")


def upserting(adapter: Adapter, upserts: Upserts | None) -> dict[str, Upserts]:
    """Return the arguments of `open_writer` that only such an adapter has. Raises TableRefused."""
    if upserts is None:
        return {}
    if not writes_keys(adapter):
        raise TableRefused(
            f"the option {KIND_OPTION} is for tables with a primary key, which the format {adapter.name} has "
            "not here. Leave it out"
        )
    return {"upserts": upserts}
