"""Partitions of a Delta table: their fields and folders."""

from typing import Final

from sluicegate.lakes.delta.log import Log
from sluicegate.lakes.delta.partitions import partition_folder
from sluicegate.lakes.delta.schema import read_schema
from sluicegate.lakes.partition_layout import PartitionField, PartitionLayout

_RANDOM: Final = "delta.randomizeFilePrefixes"


def partition_layout(log: Log) -> PartitionLayout:
    """Return the layout of a table. Raises LakeUnavailable."""
    metadata = log.load().metadata
    schema = read_schema(metadata)
    fields = tuple(PartitionField(column.physical, "identity") for column in schema.partitions)
    no_folder = None
    if schema.mode != "none":
        no_folder = f"it has column mapping by {schema.mode}, with which other writers use random folders"
    elif metadata.configuration.get(_RANDOM, "").strip().lower() == "true":
        no_folder = f"its property {_RANDOM} is true, so other writers use random folders"
    return PartitionLayout(
        fields, log.storage, no_folder, lambda values: partition_folder(schema.partitions, values)
    )
