"""The rules by which an event that can be read has no effect; docs/operations.md lists them."""

from enum import StrEnum
from typing import Final

from sluicegate.coordinator.core import book, carrying, intake
from sluicegate.events.envelope import EventType

BELOW: Final = "below the low-water mark"
STALLED: Final = "stalled"


class Rule(StrEnum):
    """Why an event has no effect; the sentence beside it says more."""

    DUPLICATE = "duplicate"
    SETTLED = "settled"
    UNOPENED = "unopened"
    REPLAYED = "replayed"
    MISPLACED = "misplaced"
    VOID_DECISION = "void-decision"
    OPENING_REFUSED = "opening-refused"
    UNEXPECTED_TYPE = "unexpected-type"
    POLICY_NUMBER = "policy-number"
    NOT_WHOLE = "not-whole"
    RECOVERED = "recovered"
    STREAM_STALLED = "stream-stalled"


_BY_REASON: Final = {
    book.DUPLICATE: Rule.DUPLICATE,
    book.SETTLED: Rule.SETTLED,
    book.UNOPENED: Rule.UNOPENED,
    book.REPLAYED: Rule.REPLAYED,
    carrying.NOT_WHOLE: Rule.NOT_WHOLE,
    carrying.UNEXPECTED: Rule.UNEXPECTED_TYPE,
    intake.UNEXPECTED: Rule.UNEXPECTED_TYPE,
    BELOW: Rule.RECOVERED,
    STALLED: Rule.STREAM_STALLED,
}
_BY_TYPE: Final = {
    EventType.REGION_OPENED: Rule.OPENING_REFUSED,
    EventType.CUT_DECIDED: Rule.VOID_DECISION,
    EventType.CUT_ABANDONED: Rule.VOID_DECISION,
    EventType.CUT_VOIDED: Rule.VOID_DECISION,
    EventType.CHECKPOINT_COMPLETED: Rule.MISPLACED,
    EventType.STREAM_POLICY: Rule.POLICY_NUMBER,
}


def rule_of(event_type: EventType, reason: str) -> Rule | None:
    """Return the rule behind the reason why an event has no effect; None if no rule covers it."""
    return _BY_REASON.get(reason) or _BY_TYPE.get(event_type)
