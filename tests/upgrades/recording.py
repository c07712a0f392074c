"""Recordings: all records of a deployment's topics, with the cuts that the recording release made of them."""

import base64
import json
import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.replay.decisions import LogFold, LoggedDecision, Start

FOLDER: Final = Path(__file__).parent / "recorded"
EMPTY: Final = Start(0, LogState(), -1)


class Recorded(NamedTuple):
    """One record of a topic."""

    topic: str
    """Last part of the topic's name, such as `events`."""
    partition: int
    offset: int
    time: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Recording(NamedTuple):
    """A recording, as its file has it."""

    records: list[Recorded]
    cuts: dict[str, list[dict[str, Any]]]
    """By stream, its decisions in order, as `in_short` gives them."""

    def of(self, topic: str) -> list[Recorded]:
        """Return the records of a topic, by partition and offset."""
        found = [each for each in self.records if each.topic == topic]
        return sorted(found, key=lambda each: (each.partition, each.offset))


def save(recording: Recording, path: Path) -> None:
    """Write a recording."""
    lines: list[Any] = [recording.cuts]
    for each in recording.records:
        headers = [(name, _text(value)) for name, value in each.headers]
        lines.append([*each[:4], _text(each.key), _text(each.value), headers])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress("\n".join(json.dumps(line) for line in lines).encode()))


def load(path: Path) -> Recording:
    """Read a recording."""
    cuts, *lines = (json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines())
    records = [
        Recorded(topic, partition, offset, time, _bytes(key), _bytes(value), _headers(headers))
        for topic, partition, offset, time, key, value, headers in lines
    ]
    return Recording(records, cuts)


def fold(
    records: Sequence[Recorded], stream: str, partition: int, start: Start = EMPTY, upto: int | None = None
) -> tuple[list[LoggedDecision], LogState]:
    """Return the settled decisions of a stream's log, and its state in the end, with the rules of now."""
    folded, found = LogFold(stream, partition, start), list[LoggedDecision]()
    for each in records:
        if (
            each.partition != partition
            or each.offset < start.begin
            or (upto is not None and each.offset > upto)
        ):
            continue
        step = folded.read(each.offset, each.time, each.headers, each.value)
        if step is not None and step.settled is not None:
            found.append(step.settled)
    folded.finish()
    assert folded.problem is None, folded.problem
    return found, folded.replica.state


def in_short(logged: LoggedDecision) -> dict[str, Any]:
    """Return what two releases must agree about."""
    made = logged.decision
    return {
        "decision": made.id,
        "digest": made.digest,
        "cut": {name: each.model_dump() for name, each in sorted(made.cut.items())},
        "fallbacks": sorted(made.fallbacks),
        "parts": list(made.parts),
        "watermark": made.watermark,
        "reverted": logged.reverted,
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _headers(found: Sequence[Sequence[str]]) -> list[tuple[str, bytes | None]]:
    return [(name, _bytes(text)) for name, text in found]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
