"""Records of a log that a command refuses, and that may be true all the same.

A command that lacks a key takes true decisions for forged. One that needs a signature refuses the decisions
from before the signing. So it names them, and writes nothing.
"""

import re
from collections.abc import Collection
from typing import Final, NamedTuple

from sluicegate.events.causes import CauseCode
from sluicegate.events.codec import Flaw
from sluicegate.events.problems import Code

_WHY: Final = {
    CauseCode.KEY_UNKNOWN: "which is not in kafka.signing.key_files of this command",
    CauseCode.SIGNATURE_WRONG: "and do not fit the content of that key in the settings of this command",
}
UNSIGNED: Final = "unsigned"
"""Word of an operator for all records without a signature, in place of the id of a key."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


class Group(NamedTuple):
    """Records that name one key, or none."""

    key: str
    """`UNSIGNED` if they have no signature."""
    records: int
    first: int
    """Offset of the first one."""
    last: int
    """Offset of the last one."""
    time: int
    """Newest append time, in milliseconds since the Unix epoch."""
    why: CauseCode

    def __str__(self) -> str:
        if self.why is CauseCode.UNSIGNED:
            some = "1 record has" if self.records == 1 else f"{self.records} records have"
            return (
                f"{some} no signature, and kafka.signing of this command needs one: offset {self.first} to "
                f"{self.last}"
            )
        some = "1 record is" if self.records == 1 else f"{self.records} records are"
        return f"{some} signed with the key {self.key}, {_WHY[self.why]}; the first at offset {self.first}"


class Unverified:
    """Records of one stream that are refused and may be true, by key."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._found: dict[tuple[str, CauseCode], Group] = {}

    def note(self, offset: int, time: int, flaw: Flaw | None) -> None:
        """Note a record that cannot be used, if its key is the reason, or that it has no signature.

        No key has a malformed id. `time` is its append time, in milliseconds since the Unix epoch.
        """
        if flaw is None or flaw.stream != self._stream or flaw.problem.code is not Code.SIGNATURE:
            return
        cause = flaw.problem.cause
        if cause is None:
            return
        unsigned = cause.code is CauseCode.UNSIGNED
        name = UNSIGNED if unsigned else next(iter(cause.names), "")
        if not (unsigned or (cause.code in _WHY and _ID.fullmatch(name))):
            return
        held = self._found.get((name, cause.code), Group(name, 0, offset, offset, time, cause.code))
        self._found[name, cause.code] = held._replace(
            records=held.records + 1, last=offset, time=max(held.time, time)
        )

    def besides(self, forged: Collection[str]) -> tuple[Group, ...]:
        """Return the records of all keys but those whose unverified records an operator calls forged."""
        return tuple(each for each in self._found.values() if each.key not in forged)

    @property
    def unsigned(self) -> Group | None:
        """The records without a signature; None if no such record is refused."""
        return self._found.get((UNSIGNED, CauseCode.UNSIGNED))
