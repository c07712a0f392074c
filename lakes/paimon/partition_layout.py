"""Partitions of a Paimon table: their fields and folders."""

from collections.abc import Mapping
from typing import Final

from sluicegate.lakes.paimon.schema_table import SchemaTable
from sluicegate.lakes.paimon.table import Table
from sluicegate.lakes.partition_layout import PartitionField, PartitionLayout

_BUCKET: Final = "/bucket-0"


def partition_layout(table: Table) -> PartitionLayout:
    """Return the layout of a table. Raises TableRefused or LakeUnavailable."""
    newest = table.newest()
    fields = tuple(_field(newest, name) for name in newest.partition_keys)
    return PartitionLayout(fields, table.storage, None, lambda values: _folder(newest, values))


def _field(table: SchemaTable, name: str) -> PartitionField:
    kind = next(str(each.type).upper() for each in table.partition_keys_fields if each.name == name)
    # By default, Paimon names the folder of a date by the days since the epoch.
    as_days = kind.startswith("DATE") and table.path_factory().legacy_partition_name
    return PartitionField(name, "days" if as_days else "identity")


def _folder(table: SchemaTable, values: Mapping[str, str | None]) -> str:
    factory = table.path_factory()
    # The values are texts already: a type would format them a second time.
    factory.partition_types = None
    texts = tuple(values[name] for name in table.partition_keys)
    folder = str(factory.relative_bucket_path(texts, 0, canonical_partition=True))
    return folder.removeprefix("./").removesuffix(_BUCKET)
