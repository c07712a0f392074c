"""Minimal table object for one schema, sufficient for a commit.

An import of pypaimon's own table class also loads its readers, with pandas and polars. That takes seconds, in
which a coordinator that was just started commits nothing. Only the writer half needs that class.
"""

from pypaimon.common.options import CoreOptions, Options
from pypaimon.schema.table_schema import TableSchema
from pypaimon.utils.file_store_path_factory import FileStorePathFactory


class SchemaTable:
    """Table with the attributes that pypaimon's functions read for partitions and paths."""

    def __init__(self, root: str, schema: TableSchema) -> None:
        self.table_path = root
        self.table_schema = schema
        self.fields = schema.fields
        by_name = {field.name: field for field in schema.fields}
        self.partition_keys: list[str] = schema.partition_keys
        self.partition_keys_fields = [by_name[name] for name in schema.partition_keys]
        self.is_primary_key_table = bool(schema.primary_keys)
        self.options = CoreOptions(Options(schema.options))
        # Raises an error for an invalid number, as pypaimon's own table does.
        self.total_buckets = self.options.bucket()

    def path_factory(self) -> FileStorePathFactory:
        """Return pypaimon's factory of paths. The writer half alone determines the names of new files."""
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
