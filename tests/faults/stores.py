"""Stores of tables for tests of failures: local folders, a real S3 server, and a real cluster of HDFS.

A test names a table by a folder of local files, at which the readers look. For S3 these are the files in
which the server keeps its objects. For HDFS they are a mirror: `fetch` makes a folder of it equal to that of
the cluster, right before each reading. Writers get `location`, and never see the mirror.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from hdfs_native import Client, FileStatus

from sluicegate.cli.local.servers import EmbeddedHdfs
from tests.integration.waiting import wait_until
from tests.s3proxy import BUCKET, s3_server

LOCAL: Final = "local"
S3: Final = "s3proxy"
HDFS: Final = "hdfs"
STORES: Final = (LOCAL, S3, HDFS)
_CLUSTER: Final = ".cluster"
"""File in the root of a mirror, with the address of the cluster."""
_SETTINGS: Final = {
    # Without these, a NameNode that was killed is asked for three minutes.
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "1000",
}


@dataclass(frozen=True)
class Store:
    """A place for tables."""

    folder: Path | None = None
    """Folder of local files under which its tables are; None: any folder is a place for tables."""
    cluster: EmbeddedHdfs | None = None


@contextmanager
def opened(name: str, *, data_nodes: int = 1) -> Iterator[Store]:
    """Give a store, with its server. The environment names that of S3. `data_nodes`: those of HDFS."""
    if name == S3:
        with s3_server() as server:
            os.environ.update(server.environment())
            yield Store(server.bucket)
    elif name == HDFS:
        with TemporaryDirectory() as folder, EmbeddedHdfs(data_nodes=data_nodes) as cluster:
            yield Store(mirror(Path(folder) / "mirror", cluster), cluster)
    else:
        yield Store()


def mirror(folder: Path, cluster: EmbeddedHdfs) -> Path:
    """Make a folder that is a mirror of a cluster; return it."""
    folder.mkdir()
    (folder / _CLUSTER).write_text(cluster.uri)
    return folder


def location(path: Path) -> str:
    """Return the location of a table or a folder, as settings name it."""
    if (bucket := bucket_of(path)) is not None:
        return f"s3://{bucket.name}/{path.relative_to(bucket)}"
    return place_for_libraries(path)


def place_for_libraries(path: Path) -> str:
    """Return the place at which a library makes or changes a table. In S3 these are the server's files."""
    found = cluster_path(path)
    return str(path) if found is None else "".join(found)


def file_of(location: str, table: Path) -> Path:
    """Return the local file of a location in the metadata of a table."""
    if (bucket := bucket_of(table)) is not None:
        return bucket.parent / location.removeprefix("s3://")
    root = mirror_of(table)
    if root is None:
        return local(location)
    path = root / location.removeprefix(f"{_address(root)}/")
    fetch(path)
    return path


def local(location: str) -> Path:
    """Return the path of a location, which some products write with one slash after the scheme."""
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def bucket_of(path: Path) -> Path | None:
    """Return the folder of the S3 server's bucket with a table, None for a table in another store."""
    return next(
        (each for each in path.parents if each.parent.name == "objects" and each.name == BUCKET), None
    )


def cluster_path(path: Path) -> tuple[str, str] | None:
    """Return the address of the cluster and the path there, None for a path outside of mirrors."""
    root = mirror_of(path)
    return None if root is None else (_address(root), f"/{path.relative_to(root)}")


def fetch(path: Path) -> None:
    """Make a file or a folder of a mirror equal to that of the cluster; do nothing outside of mirrors.

    It waits for a cluster that does not answer. Files that are still open are left out.
    """
    found = cluster_path(path)
    if found is None:
        return
    address, name = found
    root, client = Path(str(path).removesuffix(name)), _client(address)

    def outcome() -> str:
        try:
            _copy(client, name, root)
        except (OSError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    wait_until(outcome, lambda failure: not failure, what=f"a copy of {name}")


def _copy(client: Client, name: str, root: Path) -> None:
    there = {f"{root}{each.path}": each for each in _files(client, name)}
    for path in [root / name[1:], *(root / name[1:]).rglob("*")]:
        if path.is_file() and str(path) not in there:
            path.unlink()
    for place, status in there.items():
        path = Path(place)
        if path.exists() and _stamp(path) == (status.length, status.modification_time):
            continue
        content = client.read(status.path).read()
        if len(content) != status.length:
            # The length of an open file counts what no reader gets.
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.draft")
        draft.write_bytes(content)
        os.utime(draft, ns=(status.modification_time * 1_000_000,) * 2)
        draft.rename(path)


def _files(client: Client, name: str) -> list[FileStatus]:
    """Return the files of a folder, or the one of the name; none if there is nothing."""
    try:
        found = client.get_file_info(name)
        if not found.isdir:
            return [found]
        return [each for each in client.list_status(name, recursive=True) if not each.isdir]
    except FileNotFoundError:
        return []


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns // 1_000_000


def mirror_of(path: Path) -> Path | None:
    """Return the root of the mirror that has a path, None outside of mirrors."""
    return next((each for each in (path, *path.parents) if (each / _CLUSTER).exists()), None)


def _address(root: Path) -> str:
    return (root / _CLUSTER).read_text()


@cache
def _client(address: str) -> Client:
    return Client(address, _SETTINGS)
