"""Codes for the causes of problems, with typed arguments. Sentences are made at the edge.

The port to a table format, the core and the wire share them. The module imports nothing of the product, so
that no path of imports becomes longer.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

Offset = Annotated[int, Field(ge=0, le=2**63 - 1)]
SnapshotNumber = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class CauseCode(StrEnum):
    """Codes, grouped by the place that finds the cause."""

    # The history of the table does not prove that a decision is absent.
    TABLE_EMPTY = "table-empty"
    DECISION_LACKING = "decision-lacking"
    HISTORY_EXPIRED = "history-expired"
    HEAD_OLDER = "head-older"
    RECORDED_EXPIRED = "recorded-expired"
    RECORDED_DIFFERS = "recorded-differs"
    RECORDED_OVERWRITTEN = "recorded-overwritten"
    SNAPSHOT_MISSING = "snapshot-missing"
    MARKER_ROLLED_BACK = "marker-rolled-back"

    # The table does not take a commit.
    OTHER_WRITER = "other-writer"
    OTHER_TABLE = "other-table"
    CHECKS_OUTDATED = "checks-outdated"
    SNAPSHOTS_GONE = "snapshots-gone"
    NO_HARD_LINKS = "no-hard-links"
    NO_CONDITIONAL_PUT = "no-conditional-put"
    EVENT_UNUSABLE = "event-unusable"

    # The outcome of a publication is unknown.
    POSITION_UNREADABLE = "position-unreadable"
    POSITION_UNPROVEN = "position-unproven"
    SUCCESSOR_GONE = "successor-gone"
    WITHDRAWN = "withdrawn"
    TAKER_UNREADABLE = "taker-unreadable"
    TAKER_GONE = "taker-gone"

    # The log does not continue a state record, or lacks an event.
    LOG_ENDS_EARLIER = "log-ends-earlier"
    LOG_BEGINS_LATER = "log-begins-later"
    LOG_END_LOST = "log-end-lost"
    OTHER_EVENT = "other-event"
    TOPIC_DELETES = "topic-deletes"
    RELEASE_FAILED = "release-failed"
    EVENT_ABSENT = "event-absent"
    EVENT_DELETED = "event-deleted"
    NOT_AN_EVENT = "not-an-event"
    MESSAGE_TOO_LARGE = "message-too-large"
    EVENT_OVER_LIMIT = "event-over-limit"
    RECORD_TOO_LARGE = "record-too-large"

    # The body of an event contradicts itself, or its location can be read in two ways.
    FILES_MISCOUNTED = "files-miscounted"
    PATH_REPEATED = "path-repeated"
    CONTROL_CHARACTERS = "control-characters"
    QUERY_IN_LOCATION = "query-in-location"
    OTHER_MACHINE = "other-machine"
    ENCODED_DOTS = "encoded-dots"

    # A record that only coordinators and operators may write has no valid signature.
    UNSIGNED = "unsigned"
    KEY_UNKNOWN = "key-unknown"
    KEY_RETIRED = "key-retired"
    SIGNATURE_WRONG = "signature-wrong"
    SIGNATURE_OLD = "signature-old"

    # In place of any code of a newer release: nothing depends on a cause, so its problem is still read.
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> "CauseCode | None":
        return cls.UNKNOWN if isinstance(value, str) else None


class Cause(BaseModel):
    """A code with its arguments; the meaning of each argument depends on the code alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    code: Annotated[CauseCode, WithJsonSchema({"type": "string", "examples": [*map(str, CauseCode)]})]
    snapshot: SnapshotNumber | None = None
    """The snapshot that the cause is about."""
    expected: SnapshotNumber | None = None
    """The snapshot that was expected in its place."""
    stray: SnapshotNumber | None = None
    """A snapshot that was put too late to count."""
    oldest: SnapshotNumber | None = None
    """The oldest snapshot of the history, which was not made on the stray one."""
    number: Offset | None = None
    """A decision, an offset or a count."""
    other: Offset | None = None
    """The other decision, offset or count in a comparison."""
    partition: Offset | None = None
    region: str | None = None
    problem: str | None = None
    """Code of the problem of an event, as in `events.problems`."""
    names: tuple[str, ...] = ()
    """A commit user, a path, a host or a topic; for an event's problem, its names."""

    def __str__(self) -> str:
        given = self.model_dump(mode="json", exclude={"code"}, exclude_defaults=True)
        return " ".join([self.code, *(f"{name}={value}" for name, value in given.items())])
