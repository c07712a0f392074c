"""Codes for all problems, with typed arguments. Sentences are made at the edge.

Ids and comparisons use the code and its arguments, never a sentence.
"""

import hashlib
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from sluicegate.events.models import Body, Count, EventId, IncarnationId, Name

# Codes for the causes of problems, with typed arguments. Sentences are made at the edge.
#
# The port to a table format, the core and the wire share them. The module imports nothing of the product,
# so that no path of imports becomes longer.

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
    OTHER_NEWEST = "other-newest"

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
    FILES_WITHOUT_ATTEMPT = "files-without-attempt"
    ATTEMPT_WITHOUT_FILES = "attempt-without-files"
    PREDECESSOR_WITHOUT_DIGEST = "predecessor-without-digest"
    KEY_REPEATED = "key-repeated"
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

    model_config = ConfigDict(frozen=True, extra="ignore")

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


_MOST_NAMES: Final = 100
_LONGEST_NAME: Final = 1_000
_LONGEST_DETAIL: Final = 2_000
_LARGEST: Final = 2**63 - 1
_MAX_PLACE: Final = 100
_MAX_DETAIL: Final = 300
"""Characters; a problem may be part of a dead letter, which has a limit."""


def _cut_detail(text: object) -> object:
    """Shorten a detail; a value of another type stays, to be refused."""
    return text[:_LONGEST_DETAIL] if isinstance(text, str) else text


class Code(StrEnum):
    """Codes, grouped by the stage that raises them."""

    # Registrations that are refused.
    NO_POLICY = "no-policy"
    REGION_NOT_ALLOWED = "region-not-allowed"
    OTHER_TABLE = "other-table"
    REGION_NOT_ASSIGNED = "region-not-assigned"
    ASSIGNMENT_OLDER = "assignment-older"
    ASSIGNMENT_TOO_HIGH = "assignment-too-high"
    TOO_MANY_REGIONS = "too-many-regions"
    ASSIGNMENT_WITHDRAWN = "assignment-withdrawn"
    ASSIGNMENT_DIFFERS = "assignment-differs"
    ASSIGNMENT_OPEN = "assignment-open"
    ASSIGNMENT_UNRESOLVED = "assignment-unresolved"
    ASSIGNMENT_AFTER_OTHER_CUT = "assignment-after-other-cut"
    REGION_REMOVED = "region-removed"
    INCARNATION_ENDED = "incarnation-ended"
    INCARNATION_OF_OTHER_REGION = "incarnation-of-other-region"
    BASE_UNRESOLVED = "base-unresolved"
    BASE_DIFFERS = "base-differs"
    TAKE_OVER_AHEAD = "take-over-ahead"
    TAKEN_OVER_SINCE = "taken-over-since"
    OFFSETS_KIND_DIFFERS = "offsets-kind-differs"
    INCARNATION_LIVE = "incarnation-live"
    LOCATION_OLDER = "location-older"
    SOURCE_DIFFERS = "source-differs"
    REGISTRATION_UNREADABLE = "registration-unreadable"

    # Regions that are stalled until they are reset.
    COMPLETED_DIFFERENTLY = "completed-differently"
    PREDECESSOR_IMPOSSIBLE = "predecessor-impossible"
    CHECKPOINT_TOO_HIGH = "checkpoint-too-high"
    TWO_ATTEMPTS = "two-attempts"
    FILES_LOST = "files-lost"
    FINAL_TOO_OLD = "final-too-old"
    REVERTED = "reverted"
    RECORD_SKIPPED = "record-skipped"

    # Conditions that end by themselves after their cause is removed.
    EVENTS_MISSING = "events-missing"
    PREDECESSOR_MISSING = "predecessor-missing"
    COMPLETION_UNREADABLE = "completion-unreadable"
    FILES_EXCLUDED = "files-excluded"
    TABLE_UNKNOWN = "table-unknown"
    TABLE_UNUSABLE = "table-unusable"
    FILE_NAME_DIFFERS = "file-name-differs"
    LOCATION_NOT_ALLOWED = "location-not-allowed"
    LOCATION_AMBIGUOUS = "location-ambiguous"
    PATH_ESCAPES = "path-escapes"
    OTHER_FORMAT = "other-format"
    BODY_UNREADABLE = "body-unreadable"
    TOO_MANY_FILES = "too-many-files"
    TOO_MANY_BYTES = "too-many-bytes"
    TEXTS_TOO_LARGE = "texts-too-large"
    WAITS_FOR_REGIONS = "waits-for-regions"
    DECLINED = "declined"
    POSITION_OLD = "position-old"
    POSITIONS_STATED = "positions-stated"
    SAVEPOINT_WAITS = "savepoint-waits"
    DRAIN_WAITS = "drain-waits"
    STILL_RUNNING = "still-running"
    WATERMARK_IGNORED = "watermark-ignored"
    WATERMARK_IN_SECONDS = "watermark-in-seconds"

    # Conditions of the whole stream.
    PAUSED = "paused"
    RECORD_UNREADABLE = "record-unreadable"
    SKIPPED_LATE = "skipped-late"
    LOG_DISCONTINUOUS = "log-discontinuous"
    OTHER_PARTITION = "other-partition"
    OTHER_COMMIT_USER = "other-commit-user"
    TABLE_UNFIT = "table-unfit"
    TABLE_REPLACED = "table-replaced"
    TABLE_AHEAD = "table-ahead"
    TABLE_CONTRADICTS = "table-contradicts"
    ABSENCE_UNPROVEN = "absence-unproven"
    TABLES_APART = "tables-apart"
    COMMIT_REFUSED = "commit-refused"
    RETRYING = "retrying"
    RETENTION = "retention"
    EVENTS_LIMITED = "events-limited"

    # Reasons for which an event has no effect.
    DUPLICATE = "duplicate"
    SETTLED = "settled"
    NOT_LIVE = "not-live"
    REPLAYED = "replayed"
    UNEXPECTED = "unexpected"
    NOT_APPLICABLE = "not-applicable"
    TOO_MANY_SAVEPOINTS = "too-many-savepoints"
    STALE_POLICY = "stale-policy"

    # Reasons for which a decision, an outcome or an abandoned attempt is void.
    OUT_OF_ORDER = "out-of-order"
    UNRESOLVED = "unresolved"
    NOTHING_MOVES = "nothing-moves"
    NOT_SEALED = "not-sealed"
    REGION_STALLED = "region-stalled"
    INCOMPLETE_CUT = "incomplete-cut"
    NOT_FULL = "not-full"
    TOO_MANY_BEHIND = "too-many-behind"
    OTHER_DIGEST = "other-digest"
    NOT_FORCED = "not-forced"

    # Messages that are no events: `names` are attributes, or the place in the body, and `number` is the major
    # version. A message of a newer major version has RECORD_UNREADABLE.
    NO_EVENT = "no-event"
    SPEC_VERSION = "spec-version"
    SOURCE = "source"
    CONTENT_TYPE = "content-type"
    CONTRADICTION = "contradiction"
    UNKNOWN_TYPE = "unknown-type"
    MALFORMED_ATTRIBUTE = "malformed-attribute"
    MISSING_ATTRIBUTE = "missing-attribute"
    MALFORMED_BODY = "malformed-body"
    UNDECODABLE = "undecodable"
    UNKNOWN_STREAM = "unknown-stream"
    WRONG_PARTITION = "wrong-partition"
    SIGNATURE = "signature"

    # State records that are not used; `number` is their version.
    STATE_RECORD_NEWER = "state-record-newer"
    STATE_RECORD_MALFORMED = "state-record-malformed"


STREAM_STALLS: Final = frozenset(
    {
        *(Code.RECORD_UNREADABLE, Code.SKIPPED_LATE, Code.LOG_DISCONTINUOUS, Code.OTHER_PARTITION),
        *(Code.OTHER_COMMIT_USER, Code.TABLE_UNFIT, Code.TABLE_REPLACED, Code.TABLE_AHEAD),
        *(Code.TABLE_CONTRADICTS, Code.ABSENCE_UNPROVEN, Code.COMMIT_REFUSED, Code.RETRYING),
        *(Code.STATE_RECORD_NEWER, Code.STATE_RECORD_MALFORMED),
    }
)
"""Stalls of a whole stream, for which registrations are refused. Log and table were not compared then."""


def _shortened(names: object) -> object:
    """Return the first names. A problem is part of the state record, which has a limit."""
    return (
        tuple(str(name)[:_LONGEST_NAME] for name in islice(names, _MOST_NAMES))
        if isinstance(names, list | tuple)
        else names
    )


def _at_most(number: object) -> object:
    """Return a number that is shown. Sums of what events state may be larger than the range."""
    return min(number, _LARGEST) if isinstance(number, int) else number


_Shown = Annotated[Count, BeforeValidator(_at_most)]


class Problem(Body):
    """A code with its arguments; the meaning of each argument depends on the code alone."""

    code: Code
    region: Name | None = None
    incarnation: IncarnationId | None = None
    checkpoint: _Shown | None = None
    other: _Shown | None = None
    """The other checkpoint, decision or assignment in a comparison."""
    number: _Shown | None = None
    """A decision, an assignment or an offset."""
    event: EventId | None = None
    table: Name | None = None
    """The further table of the stream that it is about; None: the anchor, or no table."""
    names: Annotated[tuple[str, ...], BeforeValidator(_shortened)] = ()
    """Regions, writers or reasons that the code lists, at most 100; a savepoint's own name comes first."""
    cause: Cause | None = None
    """Reason that the product itself has found. It is displayed but is not part of the identity."""
    detail: Annotated[str, BeforeValidator(_cut_detail)] = ""
    """Text from outside, such as an error of the storage. It is displayed but is not part of the identity."""

    @property
    def identity(self) -> str:
        """Digest of the code and its arguments, without the cause and the detail."""
        arguments = self.model_dump(mode="json", exclude={"cause", "detail"}, exclude_defaults=True)
        return hashlib.sha256(repr(sorted(_flat(arguments))).encode()).hexdigest()[:32]


def _flat(arguments: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in arguments.items()]


def malformed(code: Code, error: ValidationError) -> Problem:
    """Return the first thing that is wrong with a JSON text, and its place there."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])[:_MAX_PLACE]
    return Problem(code=code, names=(place,) if place else (), detail=first["msg"][:_MAX_DETAIL])
