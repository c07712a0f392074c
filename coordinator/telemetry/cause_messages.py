"""Sentences for causes: the part of a message that follows its reason, without a remedy of its own.

A placeholder stands for an argument of the cause, and `{detail}` for the text from outside beside it.
"""

from collections.abc import Mapping
from typing import Final

from sluicegate.coordinator.telemetry.message import fill
from sluicegate.events.causes import Cause, CauseCode

_STRAY: Final = "[; snapshot {stray} is there, but {oldest} was not made on it: it was put too late to count]"

_OF_HISTORY: Final[Mapping[CauseCode, str]] = {
    CauseCode.TABLE_EMPTY: "the table has no snapshots, but snapshot {snapshot} was recorded: rolled back?",
    CauseCode.DECISION_LACKING: "decision {number} is in the table, but not {other}: rolled back?",
    CauseCode.HISTORY_EXPIRED: (
        "no snapshot was recorded, and the history before snapshot {snapshot} has expired"
    ),
    CauseCode.HEAD_OLDER: (
        "snapshot {expected} was recorded, but the head is {snapshot}: the table was rolled back"
    ),
    CauseCode.RECORDED_EXPIRED: (
        "the recorded snapshot {snapshot} has expired, and nothing newer proves the absence"
    ),
    CauseCode.RECORDED_DIFFERS: (
        "snapshot {snapshot} is not the one that was recorded: rolled back or overwritten"
    ),
    CauseCode.RECORDED_OVERWRITTEN: (
        "snapshot {snapshot} is not the one that was recorded: the table was rolled back, or a writer "
        "without a lock has overwritten the snapshot. In an object store, give every other writer of the "
        "table a lock or conditional puts; docs/formats/object-stores.md names the settings"
    ),
    CauseCode.SNAPSHOT_MISSING: (
        "the snapshot before {snapshot} is missing between the recorded one and the head"
    ),
    CauseCode.MARKER_ROLLED_BACK: (
        "the table's marker names our commit in snapshot {snapshot}, which is not in the history: rolled back"
    ),
}

_OF_PUBLICATIONS: Final[Mapping[CauseCode, str]] = {
    CauseCode.OTHER_WRITER: (
        "another writer of the table committed first[: the head was snapshot {expected}]"
        "[, and snapshot {snapshot} was put meanwhile][ by user {first}]"
    ),
    CauseCode.OTHER_TABLE: "the table was replaced by another one",
    CauseCode.CHECKS_OUTDATED: "the table has another schema since the files were checked",
    CauseCode.SNAPSHOTS_GONE: (
        "the table has no snapshot any more[, and had snapshot {expected}]: it was rolled back"
    ),
    CauseCode.NO_HARD_LINKS: (
        "the table's file system cannot publish snapshots safely[: {detail}]. Move the table to a file "
        "system with hard links"
    ),
    CauseCode.NO_CONDITIONAL_PUT: (
        "the table's object store cannot publish snapshots safely[: {detail}]. Move the table to a store "
        "with conditional writes"
    ),
    CauseCode.EVENT_UNUSABLE: "one of its events cannot be used[: {problem}][ ({names})][: {detail}]",
    CauseCode.POSITION_UNREADABLE: (
        "snapshot {snapshot} holds the commit, but the one before it cannot be read[: {detail}]"
    ),
    CauseCode.POSITION_UNPROVEN: (
        "snapshot {snapshot} holds the commit, but nothing shows that it is in the history"
    ),
    CauseCode.SUCCESSOR_GONE: (
        "snapshot {snapshot} was put, but the one that was made on it was removed meanwhile"
    ),
    CauseCode.WITHDRAWN: (
        "snapshot {snapshot} was put where the history has expired or was rolled back, and is withdrawn"
    ),
    CauseCode.TAKER_UNREADABLE: "snapshot {snapshot} exists, and its writer cannot be read[: {detail}]",
    CauseCode.TAKER_GONE: "snapshot {snapshot} existed, and was removed meanwhile",
}

_OF_THE_LOG: Final[Mapping[CauseCode, str]] = {
    CauseCode.LOG_ENDS_EARLIER: "the log ends at offset {number}, so the topic was created again",
    CauseCode.LOG_BEGINS_LATER: "the log begins at offset {number}",
    CauseCode.LOG_END_LOST: "the log ends at offset {number}, so its end was lost",
    CauseCode.OTHER_EVENT: "another event is at this offset, so the topic was created again",
    CauseCode.TOPIC_DELETES: "retention.ms of {first} is {number}",
    CauseCode.RELEASE_FAILED: "this release failed at it[: {detail}]",
    CauseCode.EVENT_ABSENT: "there is no event at offset {number}[ of partition {partition}]",
    CauseCode.EVENT_DELETED: (
        "the event at offset {number}[ of partition {partition}] is no longer in the log[, which begins at "
        "{other}]: it was deleted before it was committed"
    ),
    CauseCode.NOT_AN_EVENT: (
        "the message at offset {number}[ of partition {partition}] is no event[: {problem}]"
    ),
    CauseCode.MESSAGE_TOO_LARGE: (
        "a message is too large for the topic {first}. Set its max.message.bytes to at least {other}[. The "
        "message has {number} bytes: set max.message.bytes of the topics, and then kafka.max_message_bytes, "
        "to more than that]"
    ),
    CauseCode.EVENT_OVER_LIMIT: (
        "an event of the type {first} is outside of its limits[: {second}]. No reader takes it, so it is "
        "not sent. That is a defect of this release: report it"
    ),
    CauseCode.RECORD_TOO_LARGE: (
        "the state record has {number} bytes, and at most {other} are read again. Most of it is source "
        "offsets of the regions: let the drivers publish shorter ones"
    ),
}

_OF_BODIES: Final[Mapping[CauseCode, str]] = {
    CauseCode.FILES_MISCOUNTED: "{number} files, and the attribute ce_files is {other}",
    CauseCode.PATH_REPEATED: "the path {first} is listed twice",
    CauseCode.CONTROL_CHARACTERS: "it has control characters",
    CauseCode.QUERY_IN_LOCATION: "it has a query or a fragment",
    CauseCode.OTHER_MACHINE: "it is on another machine[ ({first})]",
    CauseCode.ENCODED_DOTS: "it has encoded `..` folders",
}

_OF_SIGNATURES: Final[Mapping[CauseCode, str]] = {
    CauseCode.UNSIGNED: "it has no signature",
    CauseCode.KEY_UNKNOWN: "it is signed with the key {first}, which is not in kafka.signing.key_files",
    CauseCode.KEY_RETIRED: "it is signed with the key {first}, which was retired before",
    CauseCode.SIGNATURE_WRONG: "its signature does not fit its content and the key {first}",
    CauseCode.SIGNATURE_OLD: (
        "it was appended {number} s before or after it was signed, and {other} s are allowed; "
        "it is a copy, or the clock of its sender is wrong"
    ),
}

CAUSES: Final[Mapping[CauseCode, str]] = {
    **{code: text + _STRAY for code, text in _OF_HISTORY.items()},
    **_OF_PUBLICATIONS,
    **_OF_THE_LOG,
    **_OF_BODIES,
    **_OF_SIGNATURES,
    CauseCode.UNKNOWN: "a newer release has found a cause that this one does not know[: {detail}]",
}
"""Templates of the sentences, by code. They begin in lower case and have no dot at the end."""


def format_cause(cause: Cause, detail: str = "") -> str:
    """Return the sentence of a cause; `detail` is the text from outside beside it."""
    given = cause.model_dump(mode="json", exclude={"code", "names"}, exclude_none=True)
    values = {
        **given,
        "names": ", ".join(cause.names),
        "first": next(iter(cause.names), ""),
        "second": next(iter(cause.names[1:]), ""),
        "detail": detail,
    }
    return fill(CAUSES[cause.code], {name: str(value) for name, value in values.items() if value != ""})
