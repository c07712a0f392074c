"""Storage whose new files stay in a local folder, for a later upload to the table's own storage.

A writer half writes through it as it does to an object store: each file in one piece. Everything that it
reads, such as the metadata of the table, comes from the table's storage.
"""

import hashlib
import inspect
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, cast

from sluicegate.lakes.file_options import FileOptions
from sluicegate.lakes.port import Adapter, FileWriter, LakeUnavailable, TableRef, TableRefused
from sluicegate.lakes.sequence import Upserts, upserting
from sluicegate.lakes.storage import Content, Range, Stamped, Storage, explain
from sluicegate.lakes.storage_local import sync_folders_of, write_durably

Wrap = Callable[[Storage], Storage]
"""Function of the storage of a table that returns the one that a writer half writes to."""


class Spooled(NamedTuple):
    """Size and content of a file in the spool."""

    size: int
    """In bytes."""
    digest: str
    """SHA-256 of its content."""


class SpooledStorage:
    """Storage of a table for one writer, with new files below a local folder, by their names in the table."""

    local = False
    """Writers give it each file whole."""

    def __init__(self, final: Storage, folder: str) -> None:
        """Make a storage. `folder` exists, and belongs to this writer alone."""
        self.uri, self.root, self.object_store = final.uri, final.root, final.object_store
        self._final = final
        self._folder = folder
        self.files: dict[str, Spooled] = {}
        """Files that are in the folder, by their names."""

    def write(self, folder: str, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            self._write(posixpath.normpath(posixpath.join(folder, name)), content)

    def _write(self, name: str, content: bytes) -> None:
        path = f"{self._folder}/{name}"
        try:
            self._make_folders(posixpath.dirname(name))
            write_durably(path, content)
        except FileNotFoundError as error:
            raise self._removed() from error
        except OSError as error:
            raise LakeUnavailable(
                explain(f"cannot write {name} to the spool {self._folder}", path, error)
            ) from error
        self.files[name] = Spooled(len(content), hashlib.sha256(content).hexdigest())

    def _removed(self) -> LakeUnavailable:
        return LakeUnavailable(
            f"the folder {self._folder} in the spool was removed under its writer. Another attempt is safe"
        )

    def _make_folders(self, name: str) -> None:
        """Make the folders of a file, but not the own folder: if that was removed, its attempt has ended."""
        made = self._folder
        for part in filter(None, name.split("/")):
            made = f"{made}/{part}"
            with suppress(FileExistsError):
                os.mkdir(made)

    def settle_files(self, names: Sequence[str]) -> None:
        """Make the names of the files durable; `write` has done it for their content."""
        try:
            sync_folders_of(self._folder, names)
        except FileNotFoundError as error:
            raise self._removed() from error
        except OSError as error:
            raise LakeUnavailable(f"cannot make the spool {self._folder} durable: {error}") from error

    def discard(self, folder: str, names: Sequence[str]) -> None:
        for name in names:
            full = posixpath.normpath(posixpath.join(folder, name))
            if self.files.pop(full, None) is not None:
                with suppress(FileNotFoundError):
                    os.unlink(f"{self._folder}/{full}")

    def remove(self, name: str) -> bool:
        known = posixpath.normpath(name) in self.files
        self.discard(".", [name])
        return known or self._final.remove(name)

    def size(self, name: str) -> int | None:
        found = self.files.get(posixpath.normpath(name))
        return found.size if found is not None else self._final.size(name)

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        return [self.size(name) for name in names]

    # --- what belongs to the table ----------------------------------------------------------------

    def make_folder(self) -> None:
        self._final.make_folder()

    def read(self, name: str) -> bytes | None:
        return self._final.read(name)

    def read_stamped(self, name: str) -> Stamped | None:
        return self._final.read_stamped(name)

    def stamp(self, name: str) -> str | None:
        return self._final.stamp(name)

    def stamp_of_put(self, name: str) -> str | None:
        return self._final.stamp_of_put(name)

    def names(self, folder: str, after: str = "") -> list[str]:
        return self._final.names(folder, after)

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        return self._final.read_ranges(ranges)

    def leads_out(self, name: str) -> bool:
        return self._final.leads_out(name)

    def is_link(self, name: str) -> bool:
        return self._final.is_link(name)

    def has_link(self, name: str) -> bool:
        return self._final.has_link(name)

    def put_if_absent(self, name: str, content: Content, draft: str = "") -> bool:
        return self._final.put_if_absent(name, content, draft)

    def put_after(
        self, folder: str, files: Mapping[str, bytes], name: str, content: Content, draft: str = ""
    ) -> bool:
        return self._final.put_after(folder, files, name, content, draft)

    def settle(self, folder: str) -> None:
        self._final.settle(folder)

    def hint(self, name: str, content: bytes) -> None:
        self._final.hint(name, content)

    def replace(self, name: str, content: bytes) -> None:
        self._final.replace(name, content)

    def copy(self, source: Storage, name: str) -> None:
        self._final.copy(source, name)


def wrapped(storage: Storage, wrap: Wrap | None) -> Storage:
    """Return the storage that a writer half writes to."""
    return storage if wrap is None else wrap(storage)


class SpoolsFiles(Adapter, Protocol):
    """Capability: the writer half writes to the storage that a function returns."""

    def open_writer(
        self,
        table: TableRef,
        event_time_column: str | None,
        label: str | None = None,
        files: FileOptions | None = None,
        wrap: Wrap | None = None,
    ) -> FileWriter:
        """Open the writer half. Raises TableRefused or LakeUnavailable, and the errors of `wrap`."""
        ...


def open_spooled(
    adapter: Adapter,
    table: TableRef,
    event_time_column: str | None,
    label: str,
    files: FileOptions | None,
    wrap: Wrap,
    upserts: Upserts | None = None,
) -> FileWriter:
    """Open the writer half of an adapter for a storage that `wrap` returns. Raises TableRefused."""
    if "wrap" not in inspect.signature(adapter.open_writer).parameters:
        raise TableRefused(
            f"the format {adapter.name} cannot leave files to an uploader. Leave the option upload out, or "
            "upgrade the package of the format"
        )
    more: Any = upserting(adapter, upserts)
    return cast(SpoolsFiles, adapter).open_writer(table, event_time_column, label, files, wrap, **more)
