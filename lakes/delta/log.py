"""The log of a Delta table: its actions, its checkpoints, and the state at its newest version.

The table is never loaded: a state has no data files, and a new version costs one read.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeGuard
from urllib.parse import unquote

from sluicegate.events.models import SnapshotRef
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import Parts, Storage

# Actions of a Delta log, as far as commits need them.
#
# They come from lines of JSON or from rows of a checkpoint. Both are input from outside, so all types are
# checked.

_SKIPPED: Final = (b'{"add":{', b'{"remove":{', b'{"cdc":{')
"""Beginnings of lines about files, which are most lines of a log."""
_READ: Final = (b'"protocol"', b'"metaData"', b'"txn"', b'"commitInfo"', b'"domainMetadata"')

WATERMARK: Final = "sluicegate.watermark"


class Malformed(ValueError):
    """The log has something that is no action of Delta; the text says what."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Versions and features that readers and writers of the table must know."""

    reader: int
    writer: int
    reader_features: frozenset[str]
    writer_features: frozenset[str]


@dataclass(frozen=True, slots=True)
class Metadata:
    """Identity, schema and properties of the table."""

    id: str
    schema: str
    """JSON, as written."""
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    provider: str
    """Format of the data files."""
    fields: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The whole action, as written."""


@dataclass(frozen=True, slots=True)
class Txn:
    """The newest transaction of an application."""

    version: int
    last_updated: int | None
    """Milliseconds since the Unix epoch, by the clock of the writer."""


@dataclass(slots=True)
class Actions:
    """The newest action of each kind in a version, or in a checkpoint."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: dict[str, Txn] = field(default_factory=dict)
    """By application id."""
    domains: dict[str, str | None] = field(default_factory=dict)
    """Configuration of each metadata domain; None: removed."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """The `commitInfo`, which may have any content."""

    @property
    def watermark(self) -> int | None:
        """The watermark that a commit of ours carries, in milliseconds since the Unix epoch."""
        found = self.info.get(WATERMARK)
        try:
            return int(found) if isinstance(found, str) else None
        except ValueError:
            return None

    def update(self, later: "Actions") -> None:
        """Add the actions of a later version."""
        self.protocol = later.protocol or self.protocol
        self.metadata = later.metadata or self.metadata
        self.txns |= later.txns
        self.domains |= later.domains

    def add(self, name: str, fields: Mapping[str, Any]) -> None:
        """Add an action; others than those of this class have no effect. Raises Malformed."""
        if name == "protocol":
            self.protocol = _protocol(fields)
        elif name == "metaData":
            self.metadata = read_metadata(fields)
        elif name == "txn":
            last_updated = fields.get("lastUpdated")
            self.txns[_text(fields, "appId")] = Txn(
                _whole(fields, "version"),
                None if last_updated is None else _whole(fields, "lastUpdated"),
            )
        elif name == "domainMetadata":
            removed = fields.get("removed") is True
            self.domains[_text(fields, "domain")] = None if removed else _text(fields, "configuration")
        elif name == "commitInfo":
            self.info = fields


def read_actions(raw: bytes) -> Actions:
    """Return the actions of a log file, without those about files. Raises Malformed."""
    found = Actions()
    # A version may have a million files, so its lines are not all made at once.
    for line in BytesIO(raw):
        if line.startswith(_SKIPPED) and not any(name in line for name in _READ):
            continue
        for name, fields in read_line(line):
            found.add(name, fields)
    return found


def read_line(line: bytes) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Return the actions of a line, each with its name; none for an empty line. Raises Malformed."""
    if not line.strip():
        return ()
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"a line is no JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise Malformed("a line is no JSON object")
    return [(name, fields) for name, fields in parsed.items() if isinstance(fields, dict)]


def _protocol(fields: Mapping[str, Any]) -> Protocol:
    reader, writer = _whole(fields, "minReaderVersion"), _whole(fields, "minWriterVersion")
    return Protocol(
        reader,
        writer,
        frozenset(_texts(fields, "readerFeatures") if reader >= 3 else ()),
        frozenset(_texts(fields, "writerFeatures") if writer >= 7 else ()),
    )


def read_metadata(fields: Mapping[str, Any]) -> Metadata:
    """Return the metadata of an action `metaData`. Raises Malformed."""
    configuration = fields.get("configuration")
    if configuration is None:
        configuration = {}
    if not isinstance(configuration, dict):
        raise Malformed("the configuration of the table is no map")
    provider = fields.get("format")
    return Metadata(
        _text(fields, "id"),
        _text(fields, "schemaString"),
        tuple(_texts(fields, "partitionColumns")),
        {key: str(value) for key, value in configuration.items() if value is not None},
        str(provider.get("provider", "parquet")) if isinstance(provider, dict) else "parquet",
        fields,
    )


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise _wrong(value, key)
    return value


def _whole(fields: Mapping[str, Any], key: str) -> int:
    value = fields.get(key)
    if not is_whole(value):
        raise _wrong(value, key)
    return value


def _texts(fields: Mapping[str, Any], key: str) -> list[str]:
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise _wrong(value, key)
    return value


def _wrong(value: Any, key: str) -> Malformed:
    return Malformed(f"{key} is missing or has the wrong type ({type(value).__name__})")


def is_whole(value: object) -> TypeGuard[int]:
    """Return True for an integer of 64 bits. JSON's true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


# Checkpoints of a Delta log: classic ones, in parts, and of version 2 with sidecars.

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


LAST_CHECKPOINT: Final = "_last_checkpoint"

_COMMIT: Final = re.compile(r"([0-9]{20})\.json")
_SINGLE: Final = re.compile(r"([0-9]{20})\.checkpoint(?:\.[0-9A-Za-z-]{36}\.(?:parquet|json)|\.parquet)")
_PART: Final = re.compile(r"([0-9]{20})\.checkpoint\.([0-9]{10})\.([0-9]{10})\.parquet")
_DIGITS: Final = 32
"""Of the digest of a version."""
_TRIES: Final = 3
"""Listings of a log that changes while it is listed."""


class NoTable(LakeUnavailable):
    """There is no Delta log at the location."""


class Listing(NamedTuple):
    """The files of a log."""

    commits: tuple[int, ...]
    """Versions with a commit file, in order."""
    checkpoints: tuple[Checkpoint, ...]
    """Complete ones, the newest first."""

    @property
    def oldest(self) -> int | None:
        """The version where the history begins, None if the log has no beginning.

        Clean-up deletes everything before a checkpoint. A commit file before the oldest checkpoint was put
        too late, by a process that stood still; no reader uses it.
        """
        if self.commits and self.commits[0] == 0:
            return 0
        return min((each.version for each in self.checkpoints), default=None)


@dataclass(frozen=True, slots=True)
class Version:
    """A commit file. Its digest identifies it, because it never changes."""

    ref: SnapshotRef
    actions: Actions
    size: int
    """Bytes."""
    stamp: str | None = field(default=None, compare=False)
    """While the file has it, the file has not changed. None: unknown."""


@dataclass(frozen=True, slots=True)
class State:
    """The table at one version, without its data files."""

    head: Version
    protocol: Protocol
    metadata: Metadata
    txns: dict[str, Txn]
    domains: dict[str, str | None]
    watermark: int | None
    """Highest one of all commits, in milliseconds since the Unix epoch."""

    @property
    def version(self) -> int:
        return self.head.ref.id

    def after(self, version: Version) -> "State":
        """Return the state after the next version."""
        new = version.actions
        return replace(
            self,
            head=version,
            protocol=new.protocol or self.protocol,
            metadata=new.metadata or self.metadata,
            txns={**self.txns, **new.txns} if new.txns else self.txns,
            domains={**self.domains, **new.domains} if new.domains else self.domains,
            watermark=_higher(self.watermark, new.watermark),
        )


class Log:
    """Reader of one log."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._checkpoint = 0
        """Version of the newest checkpoint that was listed; 0: none."""

    def exists(self) -> bool:
        """Return True if the table has a log. Raises LakeUnavailable."""
        found = self.listing()
        return bool(found.commits or found.checkpoints)

    def listing(self) -> Listing:
        """List the log. Raises LakeUnavailable."""
        return self._listing(0)

    def _listing(self, first: int) -> Listing:
        """List the log from a version on. Raises LakeUnavailable."""
        names = self.storage.names(FOLDER, after=f"{first:020d}" if first else "")
        commits = sorted(int(match[1]) for name in names if (match := _COMMIT.fullmatch(name)))
        checkpoints = tuple(sorted(_checkpoints(names), reverse=True))
        self._checkpoint = checkpoints[0].version if checkpoints else 0
        return Listing(tuple(commits), checkpoints)

    def version(self, number: int) -> Version | None:
        """Return a version, None if it has no commit file (any more). Raises LakeUnavailable."""
        found = self.storage.read_stamped(commit_name(number)) if number >= 0 else None
        return None if found is None else self.parse(number, found.content, found.stamp)

    def parse(self, number: int, raw: bytes, stamp: str | None = None) -> Version:
        """Return the version that a commit file makes. Raises LakeUnavailable if it makes none."""
        try:
            actions = read_actions(raw)
        except Malformed as error:
            raise self._damaged(f"{commit_name(number)} is no commit of Delta: {error}") from error
        return Version(SnapshotRef(number, _digest(raw)), actions, len(raw), stamp)

    def made(self, number: int, head: bytes, content: Parts, stamp: str | None) -> Version:
        """Return the version that was put with this content. It has no actions of state after its head."""
        digest, size = hashlib.sha256(), 0
        for part in content.parts():
            digest.update(part)
            size += len(part)
        ref = SnapshotRef(number, digest.hexdigest()[:_DIGITS])
        return Version(ref, read_actions(head), size, stamp)

    def tail(self, known: State) -> State | None:
        """Return the newest state from a known one; None if the known one is not in the log any more.

        Raises LakeUnavailable.
        """
        head = self._unchanged(known.head)
        if head is None:
            return None
        state = replace(known, head=head)
        while (following := self.version(state.version + 1)) is not None:
            state = state.after(following)
        return state

    def _unchanged(self, known: Version) -> Version | None:
        """Return the version if its file is still the same one, else None.

        The file may be large, so it is read only if its stamp does not prove that.
        """
        name = commit_name(known.ref.id)
        if known.stamp is not None and self.storage.stamp(name) == known.stamp:
            return known
        there = self.storage.read_stamped(name)
        if there is None or _digest(there.content) != known.ref.identity:
            return None
        return replace(known, stamp=there.stamp)

    def require_base(self, version: int) -> None:
        """Raise LakeUnavailable unless the log has what leads a reader to a version: all versions, or a
        checkpoint and those after it.

        Each commit asks, with one listing from the newest checkpoint on.
        """
        base = self._checkpoint
        problem = _gap(self._listing(base), version)
        if problem is not None and base:
            # Another product may have deleted that checkpoint, and left an older one.
            problem = _gap(self._listing(0), version)
        if problem is not None:
            raise self._damaged(problem)

    def follows(self, before: State) -> bool:
        """Return True if a version that was put after a state continues the table's history.

        Its number may have been free although it was used before: clean-up deletes versions, and a process
        may stand still. Clean-up leaves a newer checkpoint, and deletes the version before, too. False does
        not prove the contrary. Raises LakeUnavailable.
        """
        if self.storage.size(commit_name(before.version)) != before.head.size:
            return False
        hint = self.storage.read(f"{FOLDER}/{LAST_CHECKPOINT}")
        try:
            fields = json.loads(hint) if hint else None
        except (ValueError, RecursionError):
            # Readers take an incomplete hint for none.
            return True
        newest = fields.get("version") if isinstance(fields, dict) else None
        return not is_whole(newest) or newest <= before.version

    def load(self) -> State:
        """Return the newest state. Raises NoTable, or LakeUnavailable if the log is damaged."""
        problem = ""
        # Clean-up and commits may change the log between its listing and the reading of a file.
        for _ in range(_TRIES):
            listing = self.listing()
            if not listing.commits and not listing.checkpoints:
                raise NoTable(
                    f"no Delta table at {self.storage.uri}: it has no log. If the table was there, mount "
                    "its storage, or put it back; if it is new, create it; or correct the table's location"
                )
            try:
                return self._replay(listing)
            except (Gone, Malformed) as error:
                problem = str(error)
        raise self._damaged(problem)

    def _replay(self, listing: Listing) -> State:
        """Read the newest usable checkpoint, and all versions after it. Raises Gone or Malformed."""
        newest = max((*listing.commits, *(each.version for each in listing.checkpoints)))
        found, following, problem = self._base(listing)
        head: Version | None = None
        watermark: int | None = None
        # The commit file of the newest version gives its identity, also where a checkpoint has its content.
        for number in range(min(following, newest), newest + 1):
            head = self.version(number)
            if head is None:
                raise Gone(f"the commit file of version {number} is missing{problem}")
            watermark = _higher(watermark, head.actions.watermark)
            if number >= following:
                found.update(head.actions)
        if head is None or found.protocol is None or found.metadata is None:
            raise Malformed("the log has no protocol or no metadata")
        # The commit that states it may be before the checkpoint. Its transaction is in that, too.
        kept = found.txns.get(WATERMARK)
        watermark = _higher(watermark, kept.version if kept is not None else None)
        return State(head, found.protocol, found.metadata, found.txns, found.domains, watermark)

    def _base(self, listing: Listing) -> tuple[Actions, int, str]:
        """Return the newest usable checkpoint's content, the version after it, and the problems of others."""
        problem = ""
        for checkpoint in listing.checkpoints:
            try:
                return read_checkpoint(self.storage, checkpoint), checkpoint.version + 1, problem
            except (Gone, Malformed) as error:
                # An older one, with all versions after it, leads to the same state.
                problem += f"; the checkpoint of version {checkpoint.version}: {error}"
        return Actions(), 0, problem

    def _damaged(self, problem: str) -> LakeUnavailable:
        return LakeUnavailable(
            f"the Delta log of {self.storage.uri} cannot be read: {problem}. Restore that file of its folder "
            f"{FOLDER} from a backup"
        )


def _gap(listing: Listing, version: int) -> str | None:
    """Return the file that a reader lacks on its way to a version, as a part of a sentence."""
    begins = next((each.version for each in listing.checkpoints if each.version <= version), None)
    there, lowest = set(listing.commits), 0 if begins is None else begins + 1
    lacking = next((number for number in range(version, lowest - 1, -1) if number not in there), None)
    return None if lacking is None else f"the commit file of version {lacking} is missing"


def _higher(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:_DIGITS]


def commit_name(number: int) -> str:
    """Return the name of a version's commit file, relative to the table."""
    return f"{FOLDER}/{number:020d}.json"


def _checkpoints(names: list[str]) -> list[Checkpoint]:
    """Return the complete checkpoints among the names. One that lacks a part is none."""
    found = []
    parts: dict[tuple[int, int], dict[int, str]] = {}
    for name in names:
        if single := _SINGLE.fullmatch(name):
            found.append(Checkpoint(int(single[1]), (name,)))
        elif part := _PART.fullmatch(name):
            parts.setdefault((int(part[1]), int(part[3])), {})[int(part[2])] = name
    for (version, number), there in parts.items():
        # The number comes from a name, so nothing of that size is made before it is compared.
        if len(there) == number and min(there) == 1 and max(there) == number:
            found.append(Checkpoint(version, tuple(there[each] for each in sorted(there))))
    return found
