"""pypaimon's access to files in an object store, through the storage of the table."""

import io
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
from pypaimon.common.options import Options
from pypaimon.common.uri_reader import UriReaderFactory
from pypaimon.filesystem.pyarrow_file_io import PyArrowFileIO

from sluicegate.lakes.storage import Storage


class ObjectFiles(PyArrowFileIO):  # type: ignore[misc]
    """Files of one table. Its encoders of data files are the library's own.

    pypaimon's own access would need credentials in the table's options, and repeats uploads by other rules.
    """

    def __init__(self, storage: Storage) -> None:
        # The constructor of the library would open a client of its own.
        self.properties = Options({})
        self.logger = logging.getLogger(__name__)
        self.uri_reader_factory = UriReaderFactory(self.properties)
        self._storage = storage

    def new_input_stream(self, path: str) -> Any:
        content = self._storage.read(self._name(path))
        if content is None:
            raise FileNotFoundError(f"there is no file {path}")
        return pa.BufferReader(content)

    def new_output_stream(self, path: str) -> "_Upload":
        folder, _, name = self._name(path).rpartition("/")
        return _Upload(lambda content: self._storage.write(folder or ".", {name: content}))

    def get_file_status(self, path: str) -> pafs.FileInfo:
        size = self._storage.size(self._name(path))
        if size is None:
            raise FileNotFoundError(f"there is no file {path}")
        return pafs.FileInfo(path, pafs.FileType.File, size=size)

    def list_status(self, path: str) -> list[pafs.FileInfo]:
        names = self._storage.names(self._name(path))
        return [pafs.FileInfo(f"{path}/{name}", pafs.FileType.Unknown) for name in sorted(names)]

    def exists(self, path: str) -> bool:
        name = self._name(path)
        return self._storage.size(name) is not None or bool(self._storage.names(name))

    def exists_batch(self, paths: list[str]) -> dict[str, bool]:
        return {path: self.exists(path) for path in paths}

    def delete(self, path: str, recursive: bool = False) -> bool:
        """Delete a file; folders have no existence of their own."""
        return self._storage.remove(self._name(path))

    def mkdirs(self, path: str) -> bool:
        """Do nothing: an object store has no folders."""
        return True

    def rename(self, src: str, dst: str) -> bool:
        raise NotImplementedError("an object store has no rename")

    def to_filesystem_path(self, path: str) -> str:
        return path

    def _name(self, path: str) -> str:
        return path.removeprefix(self._storage.root).strip("/") or "."


class _Upload(io.BytesIO):
    """A file that is sent when its context ends without an error."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__()
        self._send = send

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._send(self.getvalue())
        self.close()
