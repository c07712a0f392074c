"""Effects that fail and are tried again: the reason of each, and from when on one counts as a stall."""

from dataclasses import dataclass, replace
from typing import Final

from sluicegate.coordinator.core.effects import (
    Announce,
    AppendAbandoned,
    AppendDecision,
    AppendPolicy,
    AppendVoided,
    Ask,
    Carry,
    CheckFiles,
    Effect,
    FetchEnd,
    InspectTable,
    Publish,
    ReleaseOffsets,
    WriteRecord,
    WriteView,
)
from sluicegate.coordinator.core.state import EffectKind, Retrying

KINDS: Final[dict[type[Effect], EffectKind]] = {
    InspectTable: "inspect",
    FetchEnd: "fetch_end",
    CheckFiles: "check",
    AppendPolicy: "append",
    AppendDecision: "append",
    AppendAbandoned: "append",
    AppendVoided: "append",
    Carry: "carry",
    Ask: "ask",
    Publish: "publish",
    WriteRecord: "record",
    Announce: "announce",
    WriteView: "view",
    ReleaseOffsets: "offsets",
}
"""One word for each kind of effect, as logs, metrics and status name it."""
OPTIONAL: Final[frozenset[EffectKind]] = frozenset({"view", "offsets"})
"""Nothing waits for these, so however long they fail, the stream is not stalled."""

_READ: Final = "See that the service can read the table: its storage, its mount, its permissions"
_KAFKA: Final = "See that Kafka answers, and that the service may use its topics"
_MEANING: Final[dict[EffectKind, tuple[str, str]]] = {
    "inspect": ("the table cannot be inspected", _READ),
    "check": ("files cannot be checked", _READ),
    "ask": ("the table cannot be asked for a decision", _READ),
    "publish": (
        "a decision cannot be published",
        "Look at the free space and the inodes of the table's storage, its mount and its permissions, "
        "and for others who keep committing to it",
    ),
    "fetch_end": ("the end of the log cannot be fetched", _KAFKA),
    "append": ("nothing can be appended to the log", _KAFKA),
    "carry": ("old events cannot be appended again", _KAFKA),
    "record": ("the state record cannot be written", _KAFKA),
    "announce": ("notifications cannot be sent", _KAFKA),
}


@dataclass(frozen=True, slots=True)
class Retry:
    """An effect that has failed, and has not succeeded since."""

    effect: EffectKind
    reason: str
    """Of the last failure."""
    since: int
    """Time of the first failure, in milliseconds of the machine's clock."""
    last: int
    """Time of the last failure."""
    failures: int
    stall: str | None = None
    """Why it counts as a stall, as it was worded when it began to: one stall has one reason."""

    @property
    def lasted(self) -> int:
        """Milliseconds between the first and the last failure."""
        return self.last - self.since


class Retries:
    """All that is being tried again, by kind of effect."""

    def __init__(self, stall_after: int) -> None:
        """`stall_after`: milliseconds for which an effect fails until that counts as a stall."""
        self._stall_after = stall_after
        self._open: dict[EffectKind, Retry] = {}
        self._shown: set[EffectKind] = set()
        self._changed = False

    @property
    def open(self) -> tuple[Retry, ...]:
        """What is being tried again, the oldest first."""
        return tuple(self._open.values())

    @property
    def stall(self) -> str | None:
        """Why the stream is stalled by an effect that keeps failing; None if none does."""
        return next((each.stall for each in self._open.values() if each.stall is not None), None)

    def failed(self, effect: Effect, now: int, reason: str) -> None:
        """Take note of a failure, or of an outcome that has to be asked for again."""
        kind = KINDS[type(effect)]
        known = self._open.get(kind, Retry(kind, reason, now, now, 0))
        fresh = replace(known, reason=reason, last=now, failures=known.failures + 1)
        if fresh.stall is None and kind not in OPTIONAL and fresh.lasted >= self._stall_after:
            fresh = replace(fresh, stall=_sentence(fresh))
        self._open[kind] = fresh
        # A view for each attempt would be many, and for a single conflict one too many.
        doubled = fresh.failures > 1 and fresh.failures & (fresh.failures - 1) == 0
        if kind != "view" and (doubled or fresh.stall != known.stall):
            self._shown.add(kind)
            self._changed = True

    def ended(self, *kinds: EffectKind) -> None:
        """These have succeeded, or are not wanted any more."""
        for kind in kinds:
            self._open.pop(kind, None)
            if kind in self._shown:
                self._shown.discard(kind)
                self._changed = True

    def succeeded(self, effect: Effect) -> None:
        """An effect has come to its end."""
        self.ended(KINDS[type(effect)])

    def take_change(self) -> bool:
        """Return whether the view lacks something of this since it was last asked."""
        changed, self._changed = self._changed, False
        return changed

    def for_record(self) -> list[Retrying]:
        """What is shown in the state record and in the view, which cannot tell of itself that it fails."""
        return [
            Retrying(effect=each.effect, reason=each.reason, failures=each.failures, lasted=each.lasted)
            for each in self._open.values()
            if each.effect in self._shown
        ]


def _sentence(retry: Retry) -> str:
    what, remedy = _MEANING[retry.effect]
    return (
        f"{what}, {retry.failures} times in {round(retry.lasted / 1000)} s: {retry.reason}. {remedy}. "
        "It is tried again, and the stream goes on by itself"
    )
