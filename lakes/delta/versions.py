"""Versions of a Delta table: the content of a commit, and the decisions in the versions before it."""

import json
import re
import struct
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import count
from typing import Any, Final, NamedTuple

from backports import zstd

from sluicegate.events.models import SnapshotRef
from sluicegate.lakes import history
from sluicegate.lakes.delta.entries import Entries, with_row_ids
from sluicegate.lakes.delta.features import keeps_timestamps, tracks_rows
from sluicegate.lakes.delta.log import WATERMARK, Log, State, Txn, Version, is_whole
from sluicegate.lakes.history import Marker, Newest, NoParent, PastSnapshot, TableHistory
from sluicegate.lakes.port import Answer, Checked, CommitRequest, TableRefused

# Decisions in a Delta table: how a commit of ours carries one, and how it is found again.
#
# Each commit has transactions, all with one time. Transactions are part of the table's state, so they
# survive the clean-up of the log inside checkpoints:
#
# - the decision under the commit user, as Delta's own sinks write it,
# - a number of the digest under `<user>.digest`,
# - the mark in parts under `<user>.mark.<n>`: decision, version, table and whole digest,
# - the table's watermark under `sluicegate.watermark`, for all users together.
#
# Another product that commits under the name of the user replaces the first one alone.

DECISION: Final = "sluicegate.decision"
DIGEST: Final = "sluicegate.digest"
ACCOUNT: Final = "sluicegate.account"
RESERVED: Final = re.compile(r".*\.(digest|mark\.[0-9]+)|sluicegate\.watermark", re.DOTALL)
"""Names that are no commit users, since transactions of other users have them."""

_PART: Final = 7
"""Bytes in the version of a transaction, which is a signed number of 64 bits."""
_HEAD: Final = struct.Struct(">HQQQ?")
"""Length of the digest, decision, version, number of the table; True for a digest in hexadecimal digits."""


class Mark(NamedTuple):
    """The newest commit of a user."""

    decision: int
    digest: str
    version: int
    """Of the table that the commit made."""
    time_ms: int
    """Time of its transactions, in milliseconds since the Unix epoch. Each commit of a user has a later one.
    """


def number_of(text: str) -> int:
    """Return the first 63 bits of a hash: a transaction's version is a signed number."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1


def transactions(user: str, mark: Mark, table: str, watermark: int | None) -> list[dict[str, object]]:
    """Return the transactions of a commit to the table with this identity."""
    content = _packed(mark, table)
    parts = [content[start : start + _PART].ljust(_PART, b"\0") for start in range(0, len(content), _PART)]
    pairs = [
        (user, mark.decision),
        (f"{user}.digest", number_of(mark.digest)),
        *((f"{user}.mark.{number}", int.from_bytes(part, "big")) for number, part in enumerate(parts)),
        *([(WATERMARK, watermark)] if watermark is not None else []),
    ]
    return [
        {"txn": {"appId": app, "version": version, "lastUpdated": mark.time_ms}} for app, version in pairs
    ]


def _packed(mark: Mark, table: str) -> bytes:
    digits = re.fullmatch(r"(?:[0-9a-f]{2})+", mark.digest) is not None
    digest = bytes.fromhex(mark.digest) if digits else mark.digest.encode()
    return _HEAD.pack(len(digest), mark.decision, mark.version, number_of(table), digits) + digest


def mark_of(state: State, user: str) -> Mark | None:
    """Return the mark of a user's newest commit to this table, None if its transactions do not prove one."""
    number = state.txns.get(f"{user}.digest")
    if number is None or number.last_updated is None:
        return None
    content = b"".join(_parts(state.txns, user, number.last_updated))
    try:
        length, decision, version, table, digits = _HEAD.unpack_from(content)
        digest = content[_HEAD.size : _HEAD.size + length]
        text = digest.hex() if digits else digest.decode()
    except (struct.error, ValueError):
        return None
    # A clone of a table has its transactions, too.
    right = number_of(text) == number.version and table == number_of(state.metadata.id)
    if not right or version > state.version:
        return None
    return Mark(decision, text, version, number.last_updated)


def _parts(txns: Mapping[str, Txn], user: str, time_ms: int) -> Iterator[bytes]:
    """Yield the parts of a mark. Parts of an older, longer mark have another time."""
    for number in count():
        part = txns.get(f"{user}.mark.{number}")
        if part is None or part.last_updated != time_ms or not 0 <= part.version < 1 << 8 * _PART:
            return
        yield part.version.to_bytes(_PART, "big")


def past_of(version: Version, user: str | None) -> PastSnapshot:
    """Return the commit of a version. With transactions of several users, the given user's counts first."""
    txns, text = version.actions.txns, version.actions.info.get(DIGEST)
    digest = text if isinstance(text, str) else ""
    ours = [app for app in txns if digest and _is_ours(txns, app, number_of(digest))]
    if user is not None and user in txns:
        made_by = user
    elif ours or txns:
        made_by = next(iter(ours or txns))
    else:
        return PastSnapshot(version.ref, "", 0, "")
    return PastSnapshot(version.ref, made_by, txns[made_by].version, digest if made_by in ours else "")


def _is_ours(txns: Mapping[str, Txn], app: str, number: int) -> bool:
    made, digest = txns[app], txns.get(f"{app}.digest")
    if digest is None or digest.version != number or made.last_updated is None:
        return False
    return made.last_updated == digest.last_updated


# The history of a Delta table, read back by the numbers of its versions.
#
# Version 0 creates the table. So it is no snapshot: the first one is version 1.

_FIRST: Final = 1
EXPIRED: Final = "expired"
"""Identity of a version whose commit file was deleted."""


def head_of(state: State) -> SnapshotRef | None:
    """Return the newest snapshot; None if nothing was committed since the table was created."""
    return state.head.ref if state.version >= _FIRST else None


class Ancestry:
    """The versions below the head of one state, for one question."""

    def __init__(self, log: Log, state: State, commit_user: str | None = None) -> None:
        self._log = log
        self._state = state
        self._user = commit_user
        self._head = past_of(state.head, commit_user) if head_of(state) is not None else None

    @cached_property
    def oldest(self) -> int:
        """The version where the history begins."""
        found = self._log.listing().oldest
        return self._state.version if found is None else min(found, self._state.version)

    def look_for(self, asked: tuple[int, str], recorded: SnapshotRef | None) -> Answer:
        """Answer whether a decision is in the history, as `history.look_for` does. Raises LakeUnavailable."""
        return history.look_for(
            self._head, self._parent, self._at, self._user or "", asked, recorded, self._marker()
        )

    def newest_decisions(self) -> Newest:
        """Return the highest decisions of the user. Raises LakeUnavailable.

        While no foreign job commits as the same user, the marker shows them without a walk through the
        history.
        """
        user, mark = self._user or "", mark_of(self._state, self._user or "")
        made = self._state.txns.get(user)
        if mark is not None and made is not None and made.last_updated == mark.time_ms:
            return Newest(mark.decision, mark.decision, digest=mark.digest)
        if mark is None and made is None and self._head is not None and self.oldest >= _FIRST:
            return Newest(None, None)
        return history.newest_decisions(self._head, self._parent, self._at, user, self._marker())

    def history(self) -> TableHistory:
        """Read the history back from its head. Raises LakeUnavailable."""
        return history.read_history(self._state.metadata.id, self._head, self._parent)

    def _parent(self, past: PastSnapshot) -> PastSnapshot | NoParent:
        if past.ref.id == _FIRST:
            return NoParent.FIRST
        return self._at(past.ref.id - 1) or NoParent.UNREADABLE

    def _at(self, number: int) -> PastSnapshot | None:
        # A file before the oldest version was put too late, by a process that stood still.
        if number < max(self.oldest, _FIRST):
            return None
        found = self._log.version(number)
        return None if found is None else past_of(found, self._user)

    def has(self, mark: Mark) -> bool:
        """Return True if the version of a mark is the commit that wrote it, or has expired.

        Raises LakeUnavailable.
        """
        past = self._at(mark.version)
        return past is None or self._wrote(past, mark)

    def _wrote(self, past: PastSnapshot, mark: Mark) -> bool:
        made = (past.ref.id, past.commit_user, past.decision, past.digest)
        return made == (mark.version, self._user, mark.decision, mark.digest)

    def _marker(self) -> Marker | None:
        """Return the marker of the user's newest commit. Raises LakeUnavailable."""
        mark = mark_of(self._state, self._user or "")
        if mark is None:
            return None
        past = self._head if mark.version == self._state.version else self._at(mark.version)
        wrote = past is not None and self._wrote(past, mark)
        ref = past.ref if past is not None and wrote else SnapshotRef(mark.version, EXPIRED)
        # Transactions are part of the head's state, and a rollback takes them back.
        return Marker(mark.decision, mark.digest, ref, certain=True)


# Content of large files, kept compressed until it is written.

PLAIN: Final = 64 << 20
"""Bytes that are kept as they are. Only the largest commits have more."""
_PIECE: Final = 1 << 20
"""Bytes that are written, or compressed, at once."""
_LEVEL: Final = 1


class Packed:
    """Bytes in the order in which they were added. Above a size, most of them are compressed."""

    def __init__(self, plain: int = PLAIN) -> None:
        """`plain`: bytes from which on the content is compressed."""
        self._plain = plain
        self._packed: list[bytes] = []
        self._pieces: list[bytes] = []
        """Not compressed, after what is."""
        self._open: list[bytes] = []
        """Parts of the next piece."""
        self._open_size = 0
        self.size = 0
        """Bytes of the content."""

    @property
    def held(self) -> int:
        """Bytes of memory, about."""
        return self._open_size + sum(map(len, self._pieces)) + sum(map(len, self._packed))

    def add(self, part: bytes) -> None:
        """Add bytes at the end."""
        self._open.append(part)
        self._open_size += len(part)
        self.size += len(part)
        if self._open_size >= _PIECE:
            self._close()

    def parts(self) -> Iterator[bytes]:
        """Yield the content from its beginning, in parts; as often as it is called."""
        for each in self._packed:
            yield zstd.decompress(each)
        yield from self._pieces
        if self._open:
            yield b"".join(self._open)

    def _close(self) -> None:
        self._pieces.append(b"".join(self._open))
        self._open, self._open_size = [], 0
        if self._packed or self.size >= self._plain:
            self._packed += [zstd.compress(piece, _LEVEL) for piece in self._pieces]
            self._pieces = []


WRITER: Final = "sluicegate-delta-1"
_TIME: Final = "inCommitTimestamp"
_ROW_DOMAIN: Final = "delta.rowTracking"
_HIGHEST: Final = "rowIdHighWaterMark"


class Content(NamedTuple):
    """The content of a version: actions that state what it is, then its files."""

    head: bytes
    lines: Packed

    def parts(self) -> Iterator[bytes]:
        """Yield the content from its beginning."""
        yield self.head
        yield from self.lines.parts()


@dataclass
class Draft:
    """The files of a new version, one event after the other."""

    state: State
    """The table before it."""
    lines: Packed = field(default_factory=Packed)
    rows: int = 0
    files: int = 0
    size: int = 0
    """Bytes of the data files."""

    def __post_init__(self) -> None:
        self._tracks = tracks_rows(self.state.protocol, self.state.metadata)
        self._first = self._next = highest_row_id(self.state) + 1 if self._tracks else 0

    def add(self, checked: Checked, entries: Entries) -> None:
        """Add the files of an event that was checked."""
        if checked.files:
            self.lines.add((self._with_row_ids(entries) if self._tracks else entries.lines) + b"\n")
        self.files += checked.files
        self.rows += checked.rows
        self.size += checked.size

    def _with_row_ids(self, entries: Entries) -> bytes:
        version, lines = self.state.version + 1, []
        for line, rows in zip(entries.lines.split(b"\n"), entries.rows, strict=True):
            lines.append(with_row_ids(line, self._next, version))
            self._next += rows
        return b"\n".join(lines)

    def render(self, user: str, request: CommitRequest, now_ms: int) -> Content:
        """Return the content of the version. Raises TableRefused if the log lacks something that it needs."""
        marks = [mark for mark in (self.state.watermark, request.watermark) if mark is not None]
        watermark = max(marks, default=None)
        info: dict[str, Any] = {"commitInfo": self._info(request, now_ms, watermark)}
        before = mark_of(self.state, user)
        time_ms = now_ms if before is None else max(now_ms, before.time_ms + 1)
        mark = Mark(request.decision, request.digest, self.state.version + 1, time_ms)
        head = [info, *transactions(user, mark, self.state.metadata.id, watermark)]
        if self._next > self._first:
            said = {"domain": _ROW_DOMAIN, "configuration": json.dumps({_HIGHEST: self._next - 1})}
            head.append({"domainMetadata": {**said, "removed": False}})
        made = [json.dumps(action, separators=(",", ":")).encode() for action in head]
        return Content(b"\n".join(made) + b"\n", self.lines)

    def _info(self, request: CommitRequest, now_ms: int, watermark: int | None) -> Mapping[str, Any]:
        partitions = json.dumps(list(self.state.metadata.partition_columns))
        info: dict[str, Any] = {
            "timestamp": now_ms,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": partitions},
            "readVersion": self.state.version,
            "isBlindAppend": True,
            "operationMetrics": {
                "numFiles": str(self.files),
                "numOutputRows": str(self.rows),
                "numOutputBytes": str(self.size),
            },
            "engineInfo": WRITER,
            "txnId": str(uuid.uuid4()),
            DECISION: str(request.decision),
            DIGEST: request.digest,
            **({ACCOUNT: request.account} if request.account else {}),
        }
        if watermark is not None:
            info[WATERMARK] = str(watermark)
        if self._tracks:
            info["tags"] = {"delta.rowTracking.preserved": "true"}
        return info | in_commit_time(self.state, now_ms)


def highest_row_id(state: State) -> int:
    """Return the highest row id that the table has assigned, -1 if none. Raises TableRefused."""
    configuration = state.domains.get(_ROW_DOMAIN)
    if configuration is None:
        return -1
    try:
        parsed = json.loads(configuration)
    except (ValueError, RecursionError):
        parsed = None
    highest = parsed.get(_HIGHEST) if isinstance(parsed, dict) else None
    if not is_whole(highest):
        raise TableRefused(
            f"the table tracks rows, but its highest row id cannot be read: {configuration}. Commit once to "
            "it with Spark, which writes it"
        )
    return highest


def in_commit_time(state: State, now_ms: int) -> dict[str, int]:
    """Return the field with the time of the commit after a state; none if the table keeps none.

    Raises TableRefused.
    """
    if not keeps_timestamps(state.protocol, state.metadata):
        return {}
    return {_TIME: max(now_ms, _time_of(state) + 1)}


def _time_of(state: State) -> int:
    found = state.head.actions.info.get(_TIME)
    if not is_whole(found):
        raise TableRefused(
            f"commits of the table carry their time, but version {state.version} has none: {found!r}. Commit "
            "once to it with Spark, which writes it"
        )
    return found
