"""Tables of each format for the benchmarks: made, served by a coordinator, and watched for commits."""

import ctypes
import json
import multiprocessing
import os
import re
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from hdfs_native import Client

from sluicegate.cli.local.process import ChildProcess, free_port
from sluicegate.kafka.topics import TopicNames
from tests.faults.stores import cluster_path, location
from tests.faults.tables import create_table, kind_of
from tools.bench.common import SCHEMA, STREAM, start_coordinator, wait_ready, write_settings

_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {"paimon": {"metadata.stats-mode": "full"}}
"""Options of the tables, by format. All have statistics of all columns."""


@dataclass(frozen=True)
class Table:
    """A table as wide as tables of events are, partitioned by origin."""

    lake: str
    folder: Path
    """As tests/faults/stores.py has it for the store of the table."""

    @property
    def options(self) -> dict[str, str]:
        """Options of the format's adapter."""
        return dict(kind_of(self.folder).options(self.folder))

    @property
    def rows(self) -> int:
        """Rows that the newest snapshot names."""
        return kind_of(self.folder).rows_told(self.folder)

    @property
    def manifests(self) -> int:
        """Manifests of the newest snapshot."""
        return kind_of(self.folder).manifests(self.folder)


def make_table(lake: str, folder: Path) -> Table:
    """Make a table of a format."""
    return Table(lake, create_table(folder, "t", lake, SCHEMA, **_OPTIONS.get(lake, {})))


@contextmanager
def coordinator(
    folder: Path,
    bootstrap: str,
    topics: TopicNames,
    table: Table,
    files: int,
    further: Mapping[str, str] | None = None,
) -> Iterator[tuple[int, ChildProcess]]:
    """Give the port and the process of a coordinator that takes so many files in a checkpoint.

    `further`: by name, the identifiers of further tables of the stream.
    """
    port = free_port()
    settings = write_settings(folder, bootstrap, topics, location(table.folder), port)
    lines = [f'format = "{table.lake}"', f"max_files_per_checkpoint = {max(files, 100_000)}"]
    lines += [f"[streams.{STREAM}.options]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in table.options.items()]
    lines += [f"[streams.{STREAM}.tables]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in (further or {}).items()]
    with settings.open("a") as file:
        file.write("\n".join([*lines, ""]))
    process = start_coordinator(settings)
    try:
        wait_ready(process, port, folder / "coordinator.log")
        yield port, process
    finally:
        process.end(20.0)


# --- who sees the commits -----------------------------------------------------------------------------

_IN_MOVED_TO: Final = 0x80
_IN_CREATE: Final = 0x100
_IN_DELETE: Final = 0x200
_EVENT: Final = struct.Struct("iIII")
_PATIENCE: Final = 1_800.0
_EACH: Final = 0.001
"""Seconds between two questions to the NameNode."""


@dataclass(frozen=True)
class _Sign:
    """Signs of a commit that becomes visible."""

    folder: str
    """Relative to the table's."""
    events: int
    """Of inotify."""
    name: str
    """Of the file, as a regular expression."""
    numbered: str = ""
    """Name of a file in HDFS, by the number of the commit. Empty: the sign is local."""


_APPEARS: Final = _IN_CREATE | _IN_MOVED_TO
_SIGNS: Final = {
    "paimon": _Sign("snapshot", _APPEARS, r"snapshot-\d+", "snapshot-{}"),
    "delta": _Sign("_delta_log", _APPEARS, r"\d{20}\.json", "{:020}.json"),
    # The end of a transaction of SQLite.
    "iceberg": _Sign("../..", _IN_DELETE, r"catalog\.db-journal"),
}


def _watch(folder: str, sign: _Sign, pipe: Connection) -> None:
    """Send the time of each commit, for as long as the process lives."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init()
    libc.inotify_add_watch(descriptor, folder.encode(), sign.events)
    pipe.send(0)
    while True:
        raw, now = os.read(descriptor, 65536), time.time_ns()
        at = 0
        while at < len(raw):
            _, _, _, size = _EVENT.unpack_from(raw, at)
            name = raw[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0").decode()
            at += _EVENT.size + size
            if re.fullmatch(sign.name, name):
                pipe.send(now)


def _poll(address: str, path: str, pipe: Connection) -> None:
    """Send the time at which HDFS has the file of the next commit, each time that it is asked for."""
    client, number = Client(address), 0
    while True:
        pipe.send(time.time_ns())
        pipe.recv()
        number += 1
        while not _is_there(client, path.format(number)):
            time.sleep(_EACH)


def _is_there(client: Client, path: str) -> bool:
    try:
        client.get_file_info(path)
    except FileNotFoundError:
        return False
    return True


class Watch:
    """A process that sees the commits of one table (inotify, or the NameNode's answers), as a context."""

    def __init__(self, table: Table) -> None:
        sign = _SIGNS[table.lake]
        folder = (table.folder / sign.folder).resolve()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        there = cluster_path(folder) if sign.numbered else None
        self._is_asked = there is not None
        if there is None:
            folder.mkdir(exist_ok=True)
            work = partial(_watch, str(folder), sign, theirs)
        else:
            address, path = there
            work = partial(_poll, address, f"{path}/{sign.numbered}", theirs)
        self._process = context.Process(target=work, daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self._pipe.recv()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()

    def next(self, seconds: float = _PATIENCE) -> int:
        """Wait for the next commit; nanoseconds since the Unix epoch. Raises TimeoutError."""
        if self._is_asked:
            self._pipe.send(0)
        if not self._pipe.poll(seconds):
            raise TimeoutError(f"no commit within {seconds:g} s")
        found: int = self._pipe.recv()
        return found
