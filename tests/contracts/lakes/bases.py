"""The files that a commit builds on, of each format: what a reader of the newest snapshot opens."""

from pathlib import Path
from typing import cast

from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.layout import Lists
from sluicegate.lakes.paimon.snapshots import Snapshots, records
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Lake
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.s3proxy import S3Proxy


def folder_of(lake: Lake, server: S3Proxy | None = None) -> Path:
    """Return the folder of a table; of one in an object store, that in the files of its server."""
    if isinstance(lake, IcebergLake | DeltaLake):
        return lake.root
    location = cast(PaimonLake, lake).location
    if server is None:
        return Path(location)
    return server.bucket.parent / location.partition("://")[2]


def bases(lake: Lake, folder: Path) -> dict[str, Path]:
    """Return a file of each kind that the table's head needs, by the name of its kind."""
    if isinstance(lake, IcebergLake):
        metadata = lake.metadata
        head = metadata.head("main")
        assert head is not None
        path = str(head["manifest-list"])
        lines = Lists(metadata.version, "null").read(Files().read(path) or b"")
        return {
            "metadata": lake.path_of(metadata.location),
            "list": lake.path_of(path),
            "newest manifest": lake.path_of(lines[0].path),
            "oldest manifest": lake.path_of(lines[-1].path),
        }
    if isinstance(lake, DeltaLake):
        log = sorted(lake.log.glob("*.json"))
        return {"oldest version": log[0], "version between": log[1], "newest version": log[-1]}
    storage = cast(PaimonLake, lake).storage
    head_of = Snapshots(storage).newest()
    assert head_of is not None
    lists = {kind: head_of.fields[f"{kind}ManifestList"] for kind in ("base", "delta")}
    manifests = {
        f"manifest of the {kind} list": records(storage, name)[0]["_FILE_NAME"]
        for kind, name in lists.items()
    }
    return {
        "schema": folder / "schema/schema-0",
        **{kind: folder / "manifest" / str(name) for kind, name in (lists | manifests).items()},
    }
