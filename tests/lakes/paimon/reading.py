"""A reader of Paimon tables that shares no code with the committer, nor with pypaimon."""

import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq


def snapshot(root: Path, number: int) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((root / "snapshot" / f"snapshot-{number}").read_bytes())
    return loaded


def records(root: Path, name: str) -> list[dict[str, Any]]:
    """All records of a manifest or a manifest list."""
    with open(root / "manifest" / name, "rb") as file:
        return [dict(record) for record in fastavro.reader(file) if isinstance(record, dict)]


def manifests(root: Path, number: int) -> list[dict[str, Any]]:
    """The lines of both manifest lists of a snapshot."""
    of = snapshot(root, number)
    return records(root, of["baseManifestList"]) + records(root, of["deltaManifestList"])


def entries(root: Path, number: int) -> list[dict[str, Any]]:
    """All entries of a snapshot, in order, after checking that every list and manifest is as described."""
    of = snapshot(root, number)
    for which in ("base", "delta"):
        size = (root / "manifest" / of[f"{which}ManifestList"]).stat().st_size
        assert size == of[f"{which}ManifestListSize"]
    found: list[dict[str, Any]] = []
    for line in manifests(root, number):
        inside = records(root, line["_FILE_NAME"])
        assert (root / "manifest" / line["_FILE_NAME"]).stat().st_size == line["_FILE_SIZE"]
        assert len(inside) == line["_NUM_ADDED_FILES"] + line["_NUM_DELETED_FILES"]
        found += inside
    return found


def rows(root: Path, number: int) -> pa.Table:
    """The rows of an unpartitioned table at a snapshot."""
    names = [entry["_FILE"]["_FILE_NAME"] for entry in entries(root, number)]
    assert len(set(names)) == len(names)
    tables = [pq.read_table(root / "bucket-0" / name) for name in names]
    whole = pa.concat_tables(tables)
    assert whole.num_rows == snapshot(root, number)["totalRecordCount"]
    return whole
