"""Records of a log whose signatures cannot be verified with the keys of a command.

A command that lacks a key takes true decisions for forged. So it names them, and writes nothing.
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
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


class Group(NamedTuple):
    """Records that name one key."""

    key: str
    records: int
    first: int
    """Offset of the first one."""
    why: CauseCode

    def __str__(self) -> str:
        some = "1 record is" if self.records == 1 else f"{self.records} records are"
        return f"{some} signed with the key {self.key}, {_WHY[self.why]}; the first at offset {self.first}"


class Unverified:
    """Unverified records of one stream, by key."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._found: dict[tuple[str, CauseCode], Group] = {}

    def note(self, offset: int, flaw: Flaw | None) -> None:
        """Note a record that cannot be used, if its key is the reason. No key has a malformed id."""
        if flaw is None or flaw.stream != self._stream or flaw.problem.code is not Code.SIGNATURE:
            return
        cause = flaw.problem.cause
        name = next(iter(cause.names), "") if cause is not None else ""
        if cause is None or cause.code not in _WHY or not _ID.fullmatch(name):
            return
        held = self._found.get((name, cause.code), Group(name, 0, offset, cause.code))
        self._found[name, cause.code] = held._replace(records=held.records + 1)

    def besides(self, forged: Collection[str]) -> tuple[Group, ...]:
        """Return the records of all keys but those whose unverified records an operator calls forged."""
        return tuple(each for each in self._found.values() if each.key not in forged)


def way_out(groups: Collection[Group]) -> str:
    """Return the advice about unverified records."""
    names = list(dict.fromkeys(each.key for each in groups))
    options = " ".join(f"--forged {name}" for name in names)
    return (
        f"Give this command the right file of {', '.join(names)}, in kafka.signing.key_files. If no "
        f"coordinator or command of yours has signed them, they are forged: repeat with {options}"
    )
