"""Files and folders of a local file system, written so that they survive a crash."""

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import wait
from functools import cache
from typing import Final

from sluicegate.lakes.storage import Content, parts_of
from sluicegate.lakes.threads import CommitThreads

_AT_ONCE: Final = 4
"""Files that are made durable at the same time."""
_OPEN: Final = 128
"""Files that are open at the same time."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def write_durably(path: str, content: Content, older_by: int = 0) -> os.stat_result:
    """Write a new file, wait until it is on disk, and return what it is then.

    Its time is made older by some nanoseconds. Raises OSError, also if the file exists.
    """
    descriptor = os.open(path, _NEW, 0o666)
    try:
        for part in parts_of(content):
            _write(descriptor, part)
        if older_by:
            written = os.fstat(descriptor)
            os.utime(descriptor, ns=(written.st_atime_ns, written.st_mtime_ns - older_by))
        os.fsync(descriptor)
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def write_all_durably(folder: str, files: Mapping[str, bytes]) -> None:
    """Write new files of one folder, and wait until they and their names are on disk.

    Raises OSError, also if a file exists; then no write is under way any more.
    """
    names = list(files)
    for start in range(0, len(names), _OPEN):
        with contextlib.ExitStack() as stack:
            descriptors = []
            for name in names[start : start + _OPEN]:
                descriptors.append(os.open(f"{folder}/{name}", _NEW, 0o666))
                stack.callback(os.close, descriptors[-1])
                _write(descriptors[-1], files[name])
            _sync_all(descriptors, folder)


def _sync_all(descriptors: Sequence[int], folder: str) -> None:
    """Sync files and their folder side by side: a disk makes several durable at once. Raises OSError."""
    threads = disk_threads(os.getpid())
    syncs = [threads.submit(os.fsync, descriptor) for descriptor in descriptors]
    try:
        # All names are there already.
        sync_folder(folder)
    finally:
        wait(syncs)
    for each in syncs:
        each.result()


@cache
def disk_threads(process: int) -> CommitThreads:
    """Return the threads of this process: a fork has none of its parent's."""
    return CommitThreads(_AT_ONCE)


def make_inside(root: str, folder: str) -> None:
    """Make a folder and those that lead to it from the root. Raises OSError, also if the root is missing."""
    made = root
    os.stat(root)
    for part in folder.split("/"):
        if part in ("", "."):
            continue
        made = f"{made}/{part}"
        try:
            os.mkdir(made)
        except FileExistsError:
            if not os.path.isdir(made):
                raise


def sync_folder(path: str) -> None:
    """Make the names in a folder durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders_of(root: str, paths: Iterable[str]) -> None:
    """Make all folders from the root down to the files durable. `paths` are relative. Raises OSError."""
    folders = {root}
    for path in paths:
        parts = path.split("/")[:-1]
        folders.update("/".join([root, *parts[:depth]]) for depth in range(1, len(parts) + 1))
    # Deepest folders first, so that a durable name never leads to a folder with missing names.
    for folder in sorted(folders, reverse=True):
        sync_folder(folder)


def sync_file(path: str) -> None:
    """Make a file's content durable. Raises OSError."""
    sync_folder(path)
