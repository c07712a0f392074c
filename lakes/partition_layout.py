"""Capability of a table's maintenance: the fields of its partitions, and the folders of their data files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from sluicegate.events.models import (
    LONGEST_FIELD_NAME,
    LONGEST_PATH,
    MOST_PARTITION_FIELDS,
    MOST_PARTITION_VALUE,
)
from sluicegate.lakes.port import SchemaMismatch, TableRefused
from sluicegate.lakes.storage import Storage

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


def refuse_long_values(values: Mapping[str, str | None]) -> None:
    """Check the values of a partition, by field, before a file of it is written. Raises SchemaMismatch."""
    for name, value in values.items():
        if value is not None and len(value) > MOST_PARTITION_VALUE:
            raise SchemaMismatch(
                f"the value of the partition field {name} has {len(value)} characters, and an event at most "
                f"{MOST_PARTITION_VALUE}. Partition the table by a shorter column, or by a part of this one"
            )


def refuse_long_names(location: str, names: Sequence[str]) -> None:
    """Check the names of a table's partition fields before a file is written. Raises TableRefused."""
    if len(names) > MOST_PARTITION_FIELDS:
        raise TableRefused(
            f"{location} has {len(names)} partition fields, and an event at most {MOST_PARTITION_FIELDS}. "
            "Partition the table by fewer fields"
        )
    for name in names:
        if len(name) > LONGEST_FIELD_NAME:
            raise TableRefused(
                f"the partition field {name} of {location} has a name of {len(name)} characters, and an "
                f"event at most {LONGEST_FIELD_NAME}. Rename the field"
            )


def refuse_long_path(location: str, path: str) -> None:
    """Check the path of a file before it is written. Raises SchemaMismatch."""
    if len(path) > LONGEST_PATH:
        raise too_long_path(
            location, f"{path[:100]}... has {len(path)} characters, and an event at most {LONGEST_PATH}"
        )


def too_long_path(location: str, reason: object) -> SchemaMismatch:
    """Return the error of a partition whose folder no file can be in."""
    return SchemaMismatch(
        f"a partition of the rows has a folder whose path is too long for {location}: {reason}. Partition "
        "the table by fewer fields, or move it to a shorter path"
    )
