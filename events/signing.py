"""Signatures of the records that only coordinators and operators may write.

Jobs write to the topic of these records, too. They have no key, so a record that they forge is a dead letter.
Every reader that folds the log reads it through `Signatures.read`. The module has no clock: a record's own
append time counts, so all readers with the same keys and mode read the same log.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

from sluicegate.events.codec import Flaw, Reading, read_record
from sluicegate.events.envelope import Envelope, EventType, Header, RawHeader, wire_type
from sluicegate.events.problems import Cause, CauseCode, Code, Problem

Mode = Literal["off", "accepted", "required"]
State = Literal["valid", "invalid", "retired", "copied", "unsigned", "unchecked"]
"""A signature as a reader sees it.

`retired`: right, but its key was retired before. `copied`: right, but appended much earlier or later than it
was signed. `unchecked`: the reader lacks the key.
"""
Decoder = Callable[[int, int, Sequence[RawHeader], bytes | None], Reading]
"""Reads a record of the log by offset, append time, headers and value, as `read_record` does."""

SIGNED: Final = frozenset(
    {
        *(EventType.STREAM_POLICY, EventType.STREAM_COMMAND, EventType.CUT_DECIDED),
        *(EventType.CUT_COMMITTED, EventType.CUT_REVERTED, EventType.CUT_ABANDONED),
    }
)
"""Types of the records that are signed."""
SIGNATURE: Final = "ce_signature"
"""Header with the id of a key, a colon, and the HMAC-SHA256 as 64 hexadecimal digits."""
WINDOW_MS: Final = 15 * 60_000
"""Largest difference between `ce_time` of a signed record and its append time.

A copy that somebody appends later has no effect. All readers need the same value, so it is no setting.
"""

_DOMAIN: Final = b"sluicegate signature 1"
_FAMILIES: Final = frozenset(wire_type(each).rpartition(b".v")[0] for each in SIGNED)
"""Types of signed records, without their version."""
_SHOWN: Final = 100
_STATES: Final[dict[CauseCode, State]] = {
    CauseCode.KEY_UNKNOWN: "unchecked",
    CauseCode.KEY_RETIRED: "retired",
    CauseCode.SIGNATURE_OLD: "copied",
}


class Signatures:
    """Signs and checks the records of one events topic.

    `keys` are by id, and the first one signs. Records that were appended before `since` (milliseconds since
    the Unix epoch) need no signature. `retired`: keys whose signatures count only for records appended before
    that time. `lacks` is called with the cause for each record that `required` refuses and `accepted` takes.
    """

    def __init__(
        self,
        topic: str,
        mode: Mode = "off",
        keys: Mapping[str, bytes] | None = None,
        *,
        since: int = 0,
        retired: Mapping[str, int] | None = None,
        lacks: Callable[[Cause], None] | None = None,
    ) -> None:
        self.mode: Final = mode
        self._topic = topic.encode()
        self._keys = dict(keys or {})
        self._since = since
        self._retired = dict(retired or {})
        self._lacks = lacks
        self.read: Final[Decoder] = read_record if mode == "off" else self._read
        """Read a record of the log, as `codec.read_record` does. A refused one is only a flaw."""

    def sign(self, headers: Sequence[Header], value: bytes) -> list[Header]:
        """Return the headers of a record with its signature; unchanged if signing is off."""
        if self.mode == "off":
            return list(headers)
        name, key = next(iter(self._keys.items()))
        return [*headers, (SIGNATURE, f"{name}:{self._digest(key, headers, value)}".encode())]

    def refusal(self, time: int, headers: Sequence[RawHeader], value: bytes | None) -> Cause | None:
        """Return why a record that needs a signature has no valid one, or None.

        `time` is its append time in milliseconds since the Unix epoch.
        """
        return None if time < self._since else self._refusal(time, headers, value)

    def _refusal(self, time: int, headers: Sequence[RawHeader], value: bytes | None) -> Cause | None:
        attributes = dict(headers)
        given = attributes.get(SIGNATURE)
        if not given:
            return Cause(code=CauseCode.UNSIGNED)
        name, _, digest = given.decode(errors="replace").partition(":")
        key = self._keys.get(name)
        if key is None:
            return Cause(code=CauseCode.KEY_UNKNOWN, names=(name[:_SHOWN],))
        wanted = self._digest(key, headers, value or b"")
        if not hmac.compare_digest(wanted.encode(), digest.encode()):
            return Cause(code=CauseCode.SIGNATURE_WRONG, names=(name,))
        if time >= self._retired.get(name, time + 1):
            return Cause(code=CauseCode.KEY_RETIRED, names=(name,))
        apart = abs(time - _time_of(attributes.get("ce_time")))
        if apart > WINDOW_MS:
            return Cause(code=CauseCode.SIGNATURE_OLD, number=apart // 1000, other=WINDOW_MS // 1000)
        return None

    def state(self, time: int, headers: Sequence[RawHeader], value: bytes | None) -> State:
        """Return the state of a record's signature, of any type; `time` is its append time.

        It is checked also if the record is from before `since`, and counts without a signature.
        """
        if not is_signed(headers):
            return "unsigned"
        if self.mode == "off":
            return "unchecked"
        cause = self._refusal(time, headers, value)
        return "valid" if cause is None else _STATES.get(cause.code, "invalid")

    def flaw(
        self, time: int, headers: Sequence[RawHeader], value: bytes | None, envelope: Envelope
    ) -> Flaw | None:
        """Return the flaw of a record that its readers refuse for its signature, or None."""
        if self.mode == "off" or envelope.type not in SIGNED:
            return None
        cause = self.refusal(time, headers, value)
        if cause is None:
            return None
        if self.mode == "accepted":
            if self._lacks is not None:
                self._lacks(cause)
            return None
        return Flaw(Problem(code=Code.SIGNATURE, event=envelope.id, cause=cause), envelope.stream)

    def late(self, signed: int, appended: int | None) -> bool:
        """True if a record that was signed and appended at these times is refused by its readers."""
        return self.mode == "required" and appended is not None and abs(appended - signed) > WINDOW_MS

    def _read(self, offset: int, time: int, headers: Sequence[RawHeader], value: bytes | None) -> Reading:
        reading = read_record(offset, time, headers, value)
        if reading.record is None:
            return Reading(None, self._newer(time, headers, value, reading.flaw))
        flaw = self.flaw(time, headers, value, reading.record.envelope)
        return reading if flaw is None else Reading(None, flaw)

    def _newer(
        self, time: int, headers: Sequence[RawHeader], value: bytes | None, flaw: Flaw | None
    ) -> Flaw | None:
        """Refuse an unsigned record of a newer major version, for which its stream would wait."""
        if flaw is None or not flaw.stalls or self.mode != "required":
            return flaw
        attributes = dict(headers)
        if (attributes.get("ce_type") or b"").rpartition(b".v")[0] not in _FAMILIES:
            return flaw
        cause = self.refusal(time, headers, value)
        if cause is None:
            return flaw
        event = (attributes.get("ce_id") or b"").decode(errors="replace")[:_SHOWN]
        return Flaw(Problem(code=Code.SIGNATURE, event=event, cause=cause), flaw.stream)

    def _digest(self, key: bytes, headers: Sequence[RawHeader], value: bytes) -> str:
        """Return the HMAC over the topic, the headers of the protocol by name, and the value."""
        parts = [_DOMAIN, self._topic]
        for name, held in sorted((name, held) for name, held in dict(headers).items() if held is not None):
            # Brokers, mirrors and traces add headers of their own.
            if name != SIGNATURE and (name.startswith(("ce_", "sluicegate-")) or name == "content-type"):
                parts += [name.encode(), held]
        # Each part has its length before it, so no two records give the same bytes.
        text = b"".join(len(part).to_bytes(8, "big") + part for part in [*parts, value])
        return hmac.new(key, text, hashlib.sha256).hexdigest()


def is_signed(headers: Sequence[RawHeader]) -> bool:
    """True if a record has a signature, valid or not."""
    return any(name == SIGNATURE for name, _ in headers)


def _time_of(raw: bytes | None) -> int:
    """Return `ce_time` in milliseconds since the Unix epoch; 0 if it is absent or malformed."""
    try:
        moment = datetime.fromisoformat((raw or b"").decode())
    except ValueError:
        return 0
    return round(moment.timestamp() * 1000) if moment.tzinfo is not None else 0
