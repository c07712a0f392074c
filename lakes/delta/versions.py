"""The content of a new version of a Delta table: an append of data files."""

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sluicegate.lakes.checked import Checked
from sluicegate.lakes.delta.actions import WATERMARK, is_whole
from sluicegate.lakes.delta.decisions import ACCOUNT, DECISION, DIGEST, Mark, mark_of, transactions
from sluicegate.lakes.delta.entries import Entries, with_row_ids
from sluicegate.lakes.delta.features import keeps_timestamps, tracks_rows
from sluicegate.lakes.delta.log import State
from sluicegate.lakes.packing import Packed
from sluicegate.lakes.port import CommitRequest, TableRefused

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
