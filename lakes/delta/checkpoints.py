"""Checkpoints of a Delta log: classic ones, in parts, and of version 2 with sidecars."""

from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from sluicegate.lakes.delta.actions import Actions, Malformed, read_actions, read_line
from sluicegate.lakes.storage import Storage

FOLDER: Final = "_delta_log"
_SIDECARS: Final = f"{FOLDER}/_sidecars"
_STATE: Final = ("protocol", "metaData", "txn", "domainMetadata")
_FILES: Final = ("add", "remove")
_MAPS: Final = ("configuration", "options")


class Gone(Exception):
    """A file of the log was deleted between its listing and its reading."""


class Checkpoint(NamedTuple):
    """A complete checkpoint."""

    version: int
    names: tuple[str, ...]
    """File names in the folder of the log."""


def read_checkpoint(storage: Storage, checkpoint: Checkpoint) -> Actions:
    """Return the actions of a checkpoint, without those about files.

    Raises Gone, Malformed or LakeUnavailable.
    """
    found = Actions()
    for name in checkpoint.names:
        raw = _content(storage, f"{FOLDER}/{name}")
        if name.endswith(".json"):
            part = read_actions(raw)
            found.protocol = part.protocol or found.protocol
            found.metadata = part.metadata or found.metadata
            found.txns |= part.txns
            found.domains |= part.domains
            continue
        for kind, fields in _rows(raw, _STATE):
            found.add(kind, fields)
    if found.protocol is None or found.metadata is None:
        raise Malformed(f"the checkpoint of version {checkpoint.version} has no protocol or no metadata")
    return found


def checkpoint_paths(storage: Storage, name: str) -> Iterator[str]:
    """Yield the paths of all files that a checkpoint's file adds or removes, sidecars included.

    Raises Gone, Malformed or LakeUnavailable.
    """
    raw = _content(storage, f"{FOLDER}/{name}")
    if name.endswith(".json"):
        sidecars = []
        for line in raw.split(b"\n"):
            for kind, fields in read_line(line):
                if kind in _FILES:
                    yield _path(fields)
                if kind == "sidecar":
                    sidecars.append(_path(fields))
    else:
        yield from (_path(fields) for _, fields in _rows(raw, _FILES, ("path",)))
        sidecars = [_path(fields) for _, fields in _rows(raw, ("sidecar",), ("path",))]
    for sidecar in sidecars:
        content = _content(storage, f"{_SIDECARS}/{unquote(sidecar).rpartition('/')[2]}")
        yield from (_path(fields) for _, fields in _rows(content, _FILES, ("path",)))


def live_files(storage: Storage, checkpoint: Checkpoint) -> Iterator[Mapping[str, Any]]:
    """Yield path and size of the files that a checkpoint has, as its actions state them.

    Raises Gone, Malformed or LakeUnavailable.
    """
    columns = ("path", "size")
    for name in checkpoint.names:
        raw = _content(storage, f"{FOLDER}/{name}")
        if name.endswith(".json"):
            actions = [action for line in raw.split(b"\n") for action in read_line(line)]
        else:
            actions = [*_rows(raw, ("add",), columns), *_rows(raw, ("sidecar",), ("path",))]
        yield from (fields for kind, fields in actions if kind == "add")
        for kind, fields in actions:
            if kind == "sidecar":
                sidecar = f"{_SIDECARS}/{unquote(_path(fields)).rpartition('/')[2]}"
                yield from (file for _, file in _rows(_content(storage, sidecar), ("add",), columns))


def _path(fields: Mapping[str, Any]) -> str:
    path = fields.get("path")
    if not isinstance(path, str):
        raise Malformed("an action of a checkpoint has no path")
    return path


def _content(storage: Storage, name: str) -> bytes:
    raw = storage.read(name)
    if raw is None:
        raise Gone(name)
    return raw


def _rows(
    raw: bytes, kinds: Iterable[str], only: tuple[str, ...] = ()
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the actions of some kinds in a Parquet file, with all their fields or only some."""
    # This import takes a third of a second, and most commits read no checkpoint.
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(BytesIO(raw))
        there = set(file.schema_arrow.names)
        for kind in kinds:
            if kind not in there:
                continue
            columns = [f"{kind}.{each}" for each in only] or [kind]
            found = file.read(columns=columns).column(kind).drop_null()
            for fields in found.to_pylist():
                yield kind, _without_maps(fields)
    except Malformed:
        raise
    except Exception as error:  # malformed bytes may raise any error in the parser
        raise Malformed(f"a checkpoint cannot be read: {error}") from error


def _without_maps(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields with dictionaries in place of Arrow's lists of pairs."""
    found = {
        key: dict(value) if key in _MAPS and isinstance(value, list) else value
        for key, value in fields.items()
    }
    return {
        key: _without_maps(value) if isinstance(value, dict) and key not in _MAPS else value
        for key, value in found.items()
    }
