"""The files of a Delta table that a reader of its newest version opens."""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from sluicegate.lakes.delta.actions import Malformed, read_line
from sluicegate.lakes.delta.checkpoints import Gone, live_files
from sluicegate.lakes.delta.log import Log, commit_name
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.samples import MOST, Sampled, first_of, spread
from sluicegate.lakes.storage import Storage

_OF_CHECKPOINT: Final = 10_000
"""Files of a checkpoint from which a sample is chosen."""


def sample(log: Log) -> list[Sampled]:
    """Return data files of the newest version. Raises LakeUnavailable if the log lacks a file."""
    version = log.load().version
    log.require_base(version)
    try:
        return _sample(log, version)
    except (Gone, Malformed) as error:
        raise LakeUnavailable(
            f"the Delta log of {log.storage.uri} cannot be read: {error}. Restore that file from a backup"
        ) from error


def _sample(log: Log, version: int) -> list[Sampled]:
    """Read the log back from a version, until there are enough files. Raises Gone or Malformed."""
    newest = next((each for each in log.listing().checkpoints if each.version <= version), None)
    found: list[Sampled] = []
    removed: set[str] = set()
    for number in range(version, newest.version if newest is not None else -1, -1):
        added = []
        for kind, fields in _actions(log.storage, commit_name(number)):
            path = fields.get("path")
            if kind == "remove" and isinstance(path, str):
                removed.add(path)
            elif kind == "add" and path not in removed:
                added.append(fields)
        found += [each for each in (_file(log.storage, fields) for fields in added) if each is not None]
        if len(found) >= MOST:
            return found[:MOST]
    if newest is None:
        return found
    older = first_of(
        (fields for fields in live_files(log.storage, newest) if fields.get("path") not in removed),
        _OF_CHECKPOINT,
    )
    files = [each for each in (_file(log.storage, fields) for fields in older) if each is not None]
    return [*found, *spread(files, MOST - len(found))]


def _actions(storage: Storage, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    raw = storage.read(name)
    if raw is None:
        raise Gone(name)
    for line in raw.split(b"\n"):
        yield from read_line(line)


def _file(storage: Storage, fields: Mapping[str, Any]) -> Sampled | None:
    """Return the file of an action; None for one of another table, which has an absolute path."""
    path, size = fields.get("path"), fields.get("size")
    if not isinstance(path, str) or not isinstance(size, int):
        raise Malformed(f"an action has no path or no size: {path!r}")
    name = unquote(path)
    return None if "://" in name or name.startswith("/") else Sampled(storage, name, size)
