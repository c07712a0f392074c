"""Messages that no writer of ours sends: every event, damaged in every way that a stranger may think of."""

import copy
import json
from collections.abc import Sequence
from random import Random
from typing import Any, Final, NamedTuple

from sluicegate.events.encoding import Message, encode_event, encode_notification
from sluicegate.events.envelope import BODIES, PER_CHECKPOINT, PER_REGION, Envelope, EventType
from sluicegate.events.notifications import NOTIFICATION_BODIES, Notification, NotificationType

FILE: Final = {"path": "bucket-0/data-1.parquet", "size": 10, "rows": 2, "metadata": "eA=="}
POSITION: Final = {"incarnation": "q1", "checkpoint": 1, "digest": "range-1"}
HEAD: Final = {"id": 1, "identity": "i"}
BODY_JSON: Final[dict[EventType, dict[str, Any]]] = {
    EventType.FILES_WRITTEN: {
        "format": "memory",
        "format_version": 1,
        "location": "memory://sim",
        "schema_id": 0,
        "files": [FILE],
    },
    EventType.REGION_REGISTERED: {
        "base": POSITION,
        "replaces": "q1",
        "planned": [{"checkpoint": 1, "digest": "range-1"}],
        "assignment": {"number": 0, "regions": ["r1", "r2"], "after": 0},
        "table": "memory://sim",
    },
    EventType.CHECKPOINT_COMPLETED: {
        "events": ["f-1"],
        "predecessor": {**POSITION, "checkpoint": 0, "digest": "range-0"},
        "source_digest": "range-1",
        "watermark": 5,
        "listeners": {"mark-done": "x"},
        "source_offsets": "{}",
    },
    EventType.CHECKPOINT_FAILED: {"outcome": "declined", "run": "run-1", "reason": "because"},
    EventType.REGION_HEARTBEAT: {"idle": True, "interval": 5, "run": "run-1"},
    EventType.REGION_CLOSED: {"final": 1, "run": "run-1"},
    EventType.STREAM_POLICY: {
        "number": 2,
        "partial": "allow",
        "max_consecutive_fallbacks": 2,
        "max_failure_ratio": 0.5,
        "allowed_locations": ["memory://"],
    },
    EventType.STREAM_COMMAND: {"command": "savepoint", "name": "s1"},
    EventType.CUT_DECIDED: {"decision": 1, "cut": {"r1": POSITION}, "digest": "d", "head": HEAD},
    EventType.CUT_COMMITTED: {"decision": 1, "digest": "d", "table": "t", "snapshot": HEAD},
    EventType.CUT_REVERTED: {"decision": 1, "digest": "d", "table": "t", "snapshot": HEAD},
    EventType.CUT_ABANDONED: {"decision": 1, "attempt": 1, "kind": "forced", "regions": ["r1"]},
}
"""A good body of every event of the log."""
PROBLEM: Final = {"code": "base-differs", "region": "r1", "names": ["q1"], "number": 1}
COMMITTED: Final = {
    "decision": 1,
    "cut": {"r1": POSITION},
    "fallbacks": {"r1": None},
    "snapshot": HEAD,
    "watermark": 5,
    "files": 1,
}
NOTIFICATION_JSON: Final[dict[NotificationType, dict[str, Any]]] = {
    NotificationType.REGISTRATION_ANSWERED: {
        "registration": "e-1",
        "accepted": False,
        "problem": PROBLEM,
        "decided": POSITION,
        "live": "q1",
    },
    NotificationType.COMMITTED: COMMITTED,
    NotificationType.PARTIALLY_COMMITTED: COMMITTED,
    NotificationType.ABANDONED: BODY_JSON[EventType.CUT_ABANDONED],
    NotificationType.REVERTED: BODY_JSON[EventType.CUT_REVERTED],
    NotificationType.SAVEPOINT_TAKEN: {
        "name": "s1",
        "drained": True,
        "decision": 1,
        "cut": {"r1": POSITION},
        "snapshot": HEAD,
        "watermark": None,
    },
    NotificationType.ENDED: {"incarnations": {"r1": "q1"}},
    NotificationType.ADOPTED: {"decision": 1, "snapshot": HEAD},
    NotificationType.STALLED: {"problem": PROBLEM, "reason": "because", "ended": False},
}
"""A good body of every message of the commits topic."""

_WEIRD: Final[tuple[Any, ...]] = (
    *(None, True, False, "", "x", " ", "\x00", "é\u202e", "\ud800", "../x", "%2e%2e/x", "a" * 5000),
    *(0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 10**400, 0.5, 1e308, -0.0),
    *(
        [],
        {},
        [[]],
        [None],
        {"": None},
        {"r1": POSITION},
        [FILE] * 3,
        "r1",
        "q1",
        "f-1",
        "memory://sim",
        HEAD,
    ),
)
_RAW: Final = (
    *(b"", b"null", b"[]", b"{}", b"0", b'""', b"NaN", b"-Infinity", b"\xff\xfe", b"\xef\xbb\xbf{}", b"\x00"),
    *(b"[" * 100_000, b'{"a":' * 50_000, b"9" * 10_000, b'{"a":1}{"b":2}', b'"\\ud800"', b"{" + b" " * 9999),
)
_HEADERS: Final = (
    *(b"", b"\x00", b"-1", b"1e3", b"9" * 18, b"9" * 19, b"9" * 5000, b"\xff", b"a/b", b"..", b"x" * 201),
    *(
        "٣".encode(),
        b"1_0",
        b" 1",
        b"r1",
        b"q1",
        b"sim",
        b"2",
        b"sluicegate.files.written.v1",
        b"sluicegate.files.written.v3",
    ),
)


class RawMessage(NamedTuple):
    """What stands in the log."""

    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Hostile:
    """Makes messages from a seed; `targets` are the (stream, region, incarnation) they pretend to be of."""

    def __init__(self, seed: int, targets: Sequence[tuple[str, str, str]] = (("sim", "r1", "q1"),)) -> None:
        self.random = Random(seed)
        self._targets = targets
        self._made = 0

    def message(self) -> RawMessage:
        """Return one message: good in parts, or not at all."""
        return self._damaged(self._good())

    def notification(self) -> RawMessage:
        """Return one message of the commits topic: good in parts, or not at all."""
        self._made += 1
        kind = self.random.choice(list(NOTIFICATION_JSON))
        stream, region, incarnation = self.random.choice(self._targets)
        body = NOTIFICATION_BODIES[kind].model_validate_json(json.dumps(NOTIFICATION_JSON[kind]))
        made = Notification(f"h-{self._made}", kind, stream, region, incarnation, body)
        return self._damaged(encode_notification(made, 0))

    def _damaged(self, good: Message) -> RawMessage:
        damages = (self._value, self._headers, self._both, self._json, self._json, self._nothing)
        return self.random.choice(damages)(good.value, tuple(good.headers))

    def _good(self) -> Message:
        random, self._made = self.random, self._made + 1
        kind = random.choice(list(BODY_JSON))
        stream, region, incarnation = random.choice(self._targets)
        body = BODIES[kind].model_validate_json(json.dumps(BODY_JSON[kind]))
        envelope = Envelope(f"h-{self._made}", kind, stream)
        if kind in PER_REGION:
            envelope = envelope._replace(region=region, incarnation=incarnation)
        if kind in PER_CHECKPOINT:
            envelope = envelope._replace(checkpoint=random.randrange(4))
        if kind is EventType.FILES_WRITTEN:
            envelope = envelope._replace(writer="w", attempt="a", files=1, rows=2, bytes=10)
        return encode_event(envelope, body, 0)

    def _nothing(self, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]) -> RawMessage:
        return RawMessage(value, headers)

    def _both(self, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]) -> RawMessage:
        return RawMessage(self._value(value, headers).value, self._headers(value, headers).headers)

    def _value(self, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]) -> RawMessage:
        """Bytes that are damaged."""
        random, good = self.random, value or b""
        match random.randrange(5):
            case 0:
                return RawMessage(None, headers)
            case 1:
                return RawMessage(random.choice(_RAW), headers)
            case 2:
                return RawMessage(good[: random.randrange(len(good) + 1)], headers)
            case 3:
                return RawMessage(self._flipped(good), headers)
        return RawMessage(random.randbytes(random.randrange(200)), headers)

    def _flipped(self, good: bytes) -> bytes:
        changed = bytearray(good)
        for _ in range(self.random.randint(1, 4) if changed else 0):
            changed[self.random.randrange(len(changed))] ^= 1 << self.random.randrange(8)
        return bytes(changed)

    def _headers(self, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]) -> RawMessage:
        """Attributes that are missing, twice there, replaced or damaged."""
        random, changed = self.random, list(headers)
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(changed)) if changed else 0
            name, good = changed[at] if changed else ("ce_id", b"x")
            match random.randrange(6):
                case 0 if changed:
                    del changed[at]
                case 1:
                    changed.append((name, random.choice(_HEADERS)))
                case 2:
                    changed.append((name, good))
                case 3 if changed:
                    changed[at] = (name, random.choice([*_HEADERS, None]))
                case 4 if changed:
                    changed[at] = (name, self._flipped(good or b""))
                case _:
                    random.shuffle(changed)
        return RawMessage(value, tuple(changed))

    def _json(self, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]) -> RawMessage:
        """JSON whose values have other types, or are out of every range."""
        body = json.loads(value or b"{}")
        for _ in range(self.random.randint(1, 3)):
            self._confuse(body)
        return RawMessage(json.dumps(body).encode("utf-8", "surrogatepass"), headers)

    def _confuse(self, node: Any) -> None:
        """Change one value somewhere in it."""
        random = self.random
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                return
            key = random.choice(keys)
            if isinstance(node[key], dict | list) and node[key] and random.random() < 0.7:
                node = node[key]
                continue
            node[key] = copy.deepcopy(random.choice(_WEIRD))
            if isinstance(node, dict) and random.random() < 0.2:
                node[random.choice(["", "x", "region", "__class__", "a" * 1000])] = copy.deepcopy(
                    random.choice(_WEIRD)
                )
            return
