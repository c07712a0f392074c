"""A table as one of its schemas says it: all that a commit needs of the library's table.

Importing that one brings the library's readers along, with pandas and polars: seconds in which a coordinator
that was just started commits nothing. Only the writer half needs it.
"""

from pypaimon.common.options import CoreOptions, Options
from pypaimon.schema.table_schema import TableSchema
from pypaimon.utils.file_store_path_factory import FileStorePathFactory


class SchemaTable:
    """Has the attributes under which the library's functions ask a table for its partitions and paths."""

    def __init__(self, root: str, schema: TableSchema) -> None:
        self.table_path = root
        self.table_schema = schema
        self.fields = schema.fields
        by_name = {field.name: field for field in schema.fields}
        self.partition_keys: list[str] = schema.partition_keys
        self.partition_keys_fields = [by_name[name] for name in schema.partition_keys]
        self.is_primary_key_table = bool(schema.primary_keys)
        self.options = CoreOptions(Options(schema.options))
        # A number that is none is refused here, as the library does.
        self.total_buckets = self.options.bucket()

    def path_factory(self) -> FileStorePathFactory:
        """Where the library puts files; the names of new files are the writer half's affair."""
        options = self.options.options
        return FileStorePathFactory(
            root=self.table_path,
            partition_keys=self.partition_keys,
            partition_types=[field.type for field in self.partition_keys_fields],
            default_part_value=options.get(CoreOptions.PARTITION_DEFAULT_NAME, "__DEFAULT_PARTITION__"),
            format_identifier="parquet",
            data_file_prefix="data-",
            changelog_file_prefix="changelog-",
            legacy_partition_name=options.get(CoreOptions.PARTITION_GENERATE_LEGACY_NAME),
            file_suffix_include_compression=False,
            file_compression="none",
        )
