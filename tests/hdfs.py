"""A real cluster of HDFS for tests, with the access of other products to it."""

from pathlib import Path
from typing import Any, Final

from pyarrow.fs import FSSpecHandler, PyFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from sluicegate.cli.local.jars import find_java, hdfs_jars
from sluicegate.cli.local.process import ChildProcess
from sluicegate.cli.local.servers import EmbeddedHdfs

FILE_IO: Final = {"py-io-impl": "tests.hdfs.HdfsFileIO"}
"""Property of a catalog with which pyiceberg reads and writes `hdfs://`."""
_ADMIN: Final = "org.apache.hadoop.hdfs.tools.DFSAdmin"


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
