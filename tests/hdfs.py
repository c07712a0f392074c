"""A real cluster of HDFS for tests, with the access of other products to it."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from pyarrow.fs import FSSpecHandler, PyFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from sluicegate.cli.local.jars import find_java, hdfs_jars
from sluicegate.cli.local.process import LOOPBACK, ChildProcess
from sluicegate.cli.local.servers import EmbeddedHdfs, EmbeddedServer

FILE_IO: Final = {"py-io-impl": "tests.hdfs.HdfsFileIO"}
"""Property of a catalog with which pyiceberg reads and writes `hdfs://`."""
_NAME_NODE: Final = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE: Final = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_ADMIN: Final = "org.apache.hadoop.hdfs.tools.DFSAdmin"


class NameNode(EmbeddedHdfs):
    """A cluster whose data nodes are processes of their own, so that one of them alone is frozen or slow."""

    ready_text: ClassVar[str] = "NameNode RPC up at"

    def _prepare(self) -> Sequence[str]:
        folder = self.data_dir / "data"
        settings = {
            "fs.defaultFS": self.uri,
            "dfs.namenode.name.dir": folder.as_uri(),
            "dfs.namenode.http-address": f"{LOOPBACK}:0",
            **self._settings,
        }
        command = _command(_NAME_NODE, settings)
        if not folder.exists():
            made = ChildProcess([*command, "-format"], log_file=self.log_file, cwd=self.data_dir)
            try:
                status = made.wait(600)  # time: a program that ends by itself
            finally:
                made.kill()
            assert status == 0, self.log_file.read_text(encoding="utf-8")
        return command


class DataNode(EmbeddedServer):
    """A data node of such a cluster."""

    name: ClassVar[str] = "DataNode"
    ready_text: ClassVar[str] = "successfully registered with NN"
    start_seconds: ClassVar[float] = 600.0
    stop_seconds: ClassVar[float] = 60.0
    poll_seconds: ClassVar[float] = 0.05

    def __init__(self, cluster: EmbeddedHdfs, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(settings=settings)
        self._cluster = cluster

    def restart_with(self, settings: Mapping[str, str]) -> None:
        """Start again with these settings and the same data."""
        self._settings = dict(settings)
        self.restart()

    def _prepare(self) -> Sequence[str]:
        settings = {
            "fs.defaultFS": self._cluster.uri,
            "dfs.datanode.data.dir": (self.data_dir / "data").as_uri(),
            "dfs.datanode.address": f"{LOOPBACK}:{self.port}",
            "dfs.datanode.http.address": f"{LOOPBACK}:0",
            "dfs.datanode.ipc.address": f"{LOOPBACK}:0",
            **self._settings,
        }
        return _command(_DATA_NODE, settings)


@contextmanager
def data_nodes(
    cluster: EmbeddedHdfs, count: int, settings: Mapping[str, str] | None = None
) -> Iterator[list[DataNode]]:
    """Give so many data nodes, which start side by side."""
    nodes = [DataNode(cluster, settings) for _ in range(count)]
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.stop)
        with ThreadPoolExecutor() as threads:
            list(threads.map(DataNode.start, nodes))
        yield nodes


def _command(program: str, settings: Mapping[str, str]) -> list[str]:
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
    class_path = ":".join(str(jar) for jar in hdfs_jars())
    command = [str(find_java().executable), *options, "-cp", class_path, program]
    for key, value in settings.items():
        command += ["-D", f"{key}={value}"]
    return command


class HdfsFileIO(PyArrowFileIO):
    """Access of pyiceberg through hdfs-native. Its own one needs Hadoop's native library and a JVM."""

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> Any:
        if scheme != "hdfs":
            return super()._initialize_fs(scheme, netloc)
        from hdfs_native.fsspec import HdfsFileSystem

        host, _, port = (netloc or "").partition(":")
        return PyFileSystem(FSSpecHandler(HdfsFileSystem(host=host, port=int(port))))


def admin(cluster: EmbeddedHdfs, *arguments: str) -> None:
    """Run `hdfs dfsadmin` as the superuser."""
    class_path = ":".join(str(jar) for jar in hdfs_jars())
    command = [str(find_java().executable), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path, _ADMIN]
    log = cluster.data_dir / "admin.log"
    done = ChildProcess([*command, "-fs", cluster.uri, *arguments], log_file=log, cwd=cluster.data_dir)
    try:
        status = done.wait(600)  # time: a program that ends by itself
    finally:
        done.kill()
    assert status == 0, log.read_text(encoding="utf-8")


def configuration(folder: Path, **settings: str) -> Path:
    """Write core-site.xml into a folder, with `_` for `.` in names, and return the folder."""
    folder.mkdir()
    lines = [
        f"<property><name>{name.replace('_', '.')}</name><value>{value}</value></property>"
        for name, value in settings.items()
    ]
    text = f"<configuration>{''.join(lines)}</configuration>"
    (folder / "core-site.xml").write_text(text, encoding="utf-8")
    return folder
