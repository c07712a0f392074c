"""Encoding of manifest entries by the writer half."""

from io import BytesIO

import fastavro
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.schema.manifest_entry import ManifestEntry

from sluicegate.lakes.paimon.entries import ENTRY_SCHEMA


def encode_entry(entry: ManifestEntry) -> bytes:
    """Encode an entry as one Avro record, in the format of pypaimon's manifest files."""
    out = BytesIO()
    fastavro.schemaless_writer(out, ENTRY_SCHEMA, ManifestFileManager._to_avro_record(entry))
    return out.getvalue()
