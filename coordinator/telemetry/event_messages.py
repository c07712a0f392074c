"""Messages for events and messages of the log that have no effect."""

from collections.abc import Mapping
from typing import Final

from sluicegate.coordinator.telemetry.message import STATUS, UPGRADE, VERIFY, Message
from sluicegate.events.problems import Code

_IGNORED: Final = "The event has no effect"
_VOID: Final = "The decision[ {number}] has no effect"
_UNUSABLE: Final = "The message is not used"
_NOTHING: Final = "Nothing is to be done"
_SENDER: Final = "Correct the program that sends it. The message is kept: `sluicegate dead-letters list`"
_DEFECT: Final = "Nothing is lost. If it repeats, report a defect of sluicegate"

_WITHOUT_EFFECT: Final[Mapping[Code, Message]] = {
    Code.DUPLICATE: Message(_IGNORED, "the same one[ (decision {number})] was applied before", _NOTHING),
    Code.SETTLED: Message(
        _IGNORED,
        "its checkpoint was decided before, or the job tries it again after a failure",
        _NOTHING,
    ),
    Code.REPLAYED: Message(_IGNORED, "its checkpoint was completed before, with the same source", _NOTHING),
    Code.NOT_LIVE: Message(
        _IGNORED,
        "its incarnation[ {incarnation}] is not the live one of its region[ {region}]",
        "If the query should run, start it again. " + STATUS + " shows the live incarnation",
    ),
    Code.UNEXPECTED: Message(_IGNORED, "a message of its type does not belong in the log", _DEFECT),
    Code.NOT_APPLICABLE: Message(
        "The order[ about region {region}] has no effect",
        "it does not fit the state of the stream[: it names {number}][, and {other} is expected][: it names "
        "the regions {names}]",
        "Compare it with " + STATUS + ", then give a new one",
    ),
    Code.TOO_MANY_SAVEPOINTS: Message(
        "The order has no effect",
        "the stream has {number} open savepoints and drains, and no more are allowed",
        "Wait for them, or cancel one: `sluicegate stream cancel --stream {stream} --name {first}`",
    ),
    Code.STALE_POLICY: Message(
        "The settings of one coordinator are not used",
        "number {other} is in force, and it sent number {number} instead of the next one",
        "Give all coordinators of the stream the same settings",
    ),
}

_VOID_DECISIONS: Final[Mapping[Code, Message]] = {
    Code.OUT_OF_ORDER: Message(_VOID, "it does not follow decision {other}", _DEFECT),
    Code.UNRESOLVED: Message(_VOID, "decision {other} has no outcome yet", _DEFECT),
    Code.NOTHING_MOVES: Message(_VOID, "it moves no region", _DEFECT),
    Code.NOT_SEALED: Message(
        _VOID, "checkpoint {checkpoint} of region {region} is not sealed, or may not be committed", _DEFECT
    ),
    Code.REGION_STALLED: Message(
        _VOID, "region {region} is stalled", "See " + STATUS + " for the reason and the way out"
    ),
    Code.INCOMPLETE_CUT: Message(_VOID, "it does not name the position of every region", _DEFECT),
    Code.NOT_FULL: Message(_VOID, "it must include every region[, and lacks {names}]", _DEFECT),
    Code.TOO_MANY_BEHIND: Message(
        _VOID,
        "too many regions would fall back[ ({names})]",
        "Start their queries, or raise streams.{stream}.max_failure_ratio in the settings of all "
        "coordinators",
    ),
    Code.OTHER_DIGEST: Message(
        _VOID, "its digest is not that of the content in the log", "Compare table and log: " + VERIFY
    ),
    Code.NOT_FORCED: Message(
        "The abandoned attempt[ {number}] has no effect", "the next cut may leave these regions out", _DEFECT
    ),
}

_MESSAGES: Final[Mapping[Code, Message]] = {
    Code.NO_EVENT: Message(_UNUSABLE, "it has no attribute[ {first}], so it is no event", _SENDER),
    Code.OLDER_RELEASE: Message(
        _UNUSABLE, "an older release sent it[ (major version {number})][ ({detail})]", UPGRADE
    ),
    Code.SPEC_VERSION: Message(_UNUSABLE, "its CloudEvents version is not 1.0[: {detail}]", _SENDER),
    Code.SOURCE: Message(
        _UNUSABLE, "its attribute {first} is not a source of sluicegate[: {detail}]", _SENDER
    ),
    Code.CONTENT_TYPE: Message(_UNUSABLE, "its content type is not JSON[: {detail}]", _SENDER),
    Code.CONTRADICTION: Message(_UNUSABLE, "attributes have two values[: {names}]", _SENDER),
    Code.UNKNOWN_TYPE: Message(_UNUSABLE, "its type is unknown[: {detail}]", _SENDER),
    Code.MALFORMED_ATTRIBUTE: Message(
        _UNUSABLE, "the attribute {first} has a value that is not allowed[: {detail}]", _SENDER
    ),
    Code.MISSING_ATTRIBUTE: Message(_UNUSABLE, "the attribute {first} is missing", _SENDER),
    Code.UNDECODABLE: Message(
        _UNUSABLE, "the name of a header is not UTF-8, so no client can be relied on to read it", _SENDER
    ),
    Code.UNKNOWN_STREAM: Message(
        "Stream {stream} is not known here",
        "the coordinator that has its partition does not have it in its settings",
        "All members of a group need the same settings. Add [streams.{stream}] with its table to those of "
        "each coordinator, and send them SIGHUP. Or correct the name of the stream in the query. Then start "
        "the query again",
    ),
    Code.WRONG_PARTITION: Message(
        "The message is not used",
        "it is on partition {other} of the events topic, and its stream {stream} belongs to {number}. The "
        "topic got more partitions, or a program chose the partition itself",
        "Correct the cause, then send the message again: `sluicegate dead-letters retry --help`",
    ),
    Code.SIGNATURE: Message(
        "The decision or the order is not used",
        "{detail}",
        "If a coordinator or a command of yours sent it, compare its clock and its settings kafka.signing "
        "with the others, and repeat the order. Else somebody forged it: find the client that wrote it",
    ),
    Code.MALFORMED_BODY: Message(_UNUSABLE, "its body is malformed[ at {first}][: {detail}]", _SENDER),
}

MESSAGES: Final = {**_WITHOUT_EFFECT, **_VOID_DECISIONS, **_MESSAGES}
