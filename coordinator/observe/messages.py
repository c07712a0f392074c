"""Sentences for people: the only place that turns codes with their arguments into text.

A message has three parts: what happened, why, what to do. Each table below maps codes to a function that
makes the three. No id, comparison or decision depends on a sentence."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, NamedTuple

from sluicegate.events.envelope import MAJOR_VERSION
from sluicegate.events.problems import Cause, CauseCode, Code, Problem

# Formats of times.

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso_time(millis: int | None) -> str | None:
    """Format milliseconds since the Unix epoch as an ISO date, with milliseconds if they are not 0.

    The result is None for None and for dates out of range.
    """
    if millis is None:
        return None
    try:
        digits = "milliseconds" if millis % 1000 else "seconds"
        return (_EPOCH + timedelta(milliseconds=millis)).isoformat(timespec=digits).replace("+00:00", "Z")
    except OverflowError:
        return None


def duration(seconds: float) -> str:
    """Format a duration for people: `12 s`, `4 min`, `2.5 h`, `3 days`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 172_800:
        return f"{round(seconds / 60)} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"
    return f"{round(seconds / 86_400)} days"


# The three parts of a message, and the commands and remedies that several messages share.
#
# A placeholder such as `{region}` stands for an argument of the problem. Text in brackets is left out if an
# argument in it is absent.


class Message(NamedTuple):
    """Template of a message: what happened, why, and what to do."""

    what: str
    why: str
    remedy: str


STATUS: Final = "`sluicegate status --stream {stream}`"
_LOCATION: Final = (
    "`sluicegate region reset --stream {stream} --region {region} --checkpoint-location LOCATION`"
)
RESET: Final = (
    "start the driver of the region again, with a new incarnation at the committed position: plain Python "
    "does that by itself. With Spark, stop the query, run " + _LOCATION + ", and start it again"
)
RESUME: Final = "`sluicegate stream resume --stream {stream}`"
VERIFY: Final = "`sluicegate replay verify --stream {stream}`"
NEW_STREAM: Final = (
    "begin with a new stream: a new name and commit_user. Let its sources begin right after the committed "
    "rows. With Spark, give the queries empty checkpoint locations"
)
ADOPT: Final = (
    "stop the coordinators and the drivers, and continue from the table: `sluicegate stream adopt --stream "
    "{stream}`. It compares both, and prints the next steps"
)
UPGRADE: Final = "Upgrade all coordinators, drivers and commands to the newest release that is in use"

_PART: Final = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_FIELD: Final = re.compile(r"\{(\w+)\}")


def fill(template: str, arguments: Mapping[str, str]) -> str:
    """Replace the placeholders. A part in brackets is left out if one of its values is absent."""
    found: list[str] = []
    for optional, fixed in _PART.findall(template):
        part = optional or fixed
        if optional and any(name not in arguments for name in _FIELD.findall(part)):
            continue
        found.append(_FIELD.sub(lambda field: arguments.get(field[1], field[1].upper()), part))
    return "".join(found)


# Sentences for causes: the part of a message that follows its reason, without a remedy of its own.
#
# A placeholder stands for an argument of the cause, and `{detail}` for the text from outside beside it.

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
    CauseCode.OTHER_NEWEST: (
        "the newest commit of the stream in it is decision {number}, and in the log it is {other}; 0 is none"
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
    CauseCode.FILES_MISCOUNTED: "the number of its files is {number}, and the attribute ce_files is {other}",
    CauseCode.PATH_REPEATED: "the path {first} is listed twice",
    CauseCode.FILES_WITHOUT_ATTEMPT: "it carries files, and lacks the attributes ce_writer and ce_attempt",
    CauseCode.ATTEMPT_WITHOUT_FILES: "it has the attributes ce_writer and ce_attempt, and carries no files",
    CauseCode.PREDECESSOR_WITHOUT_DIGEST: "a predecessor of another incarnation, {first}, needs its digest",
    CauseCode.KEY_REPEATED: "one object has the key {first} twice",
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


# Messages for events and messages of the log that have no effect.

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
        "its checkpoint was decided before, or the driver tries it again after a failure",
        _NOTHING,
    ),
    Code.REPLAYED: Message(_IGNORED, "its checkpoint was completed before, with the same source", _NOTHING),
    Code.NOT_LIVE: Message(
        _IGNORED,
        "its incarnation[ {incarnation}] is not the live one of its region[ {region}]",
        "If the driver should run, start it again. " + STATUS + " shows the live incarnation",
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
        "Start their drivers, or raise streams.{stream}.max_failure_ratio in the settings of all "
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
        "the coordinator that has its partition does not have it in its settings, so it knows no position "
        "of its regions",
        "All members of a group need the same settings. Add [streams.{stream}] with its table to those of "
        "each coordinator, and send them SIGHUP. Or correct the name of the stream in the driver. Then start "
        "the driver again",
    ),
    Code.WRONG_PARTITION: Message(
        "The message is not used",
        "it is on partition {other} of the events topic, and its stream {stream} belongs to {number}, whose "
        "reader alone knows the positions of its regions. The topic got more partitions, or a client chose "
        "the partition by the key; it is CRC-32 of the stream's name modulo N, here {number}",
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

EVENT_MESSAGES: Final = {**_WITHOUT_EFFECT, **_VOID_DECISIONS, **_MESSAGES}


# Messages for registrations that are refused.

_REFUSED: Final = "The registration of region {region} is refused"
_ASSIGNMENT: Final = "The registration with assignment {number} is refused"
_LOST: Final = (
    "make sure that the source continues at the source offsets that "
    + STATUS
    + " shows, and "
    + RESET
    + "; an empty location takes the place of a lost one, but for a source of files"
)

REFUSAL_MESSAGES: Final[Mapping[Code, Message]] = {
    Code.NO_POLICY: Message(
        _REFUSED,
        "no coordinator has logged the settings of stream {stream} yet",
        "Start a coordinator whose settings have the stream (`sluicegate run`), then start the driver again",
    ),
    Code.REGION_NOT_ALLOWED: Message(
        _REFUSED,
        "the settings allow the regions {names} alone, and its driver lists another one",
        "Correct the regions of the driver, or add the region to streams.{stream}.regions in the settings of "
        "all coordinators. With Spark, set the options `region` and `regions`",
    ),
    Code.OTHER_TABLE: Message(
        _REFUSED,
        "its driver writes to the table[ {detail}, which is outside of the allowed locations {names}]"
        "[ {table}, and that is no further table of the stream]",
        "[Correct the option tables.{table} of the driver. Or add {table} to streams.{stream}.tables in the "
        "settings of all coordinators, and send them SIGHUP; if it is there, see `sluicegate check`. For the "
        "stream's own table: ]Let the driver write to streams.{stream}.table, to which the coordinator "
        "commits: its option `table`. Only if it names another address of the same table, add that to "
        "streams.{stream}.allowed_locations in the settings of all coordinators",
    ),
    Code.REGION_NOT_ASSIGNED: Message(
        _REFUSED,
        "the regions that its driver lists ({names}) do not include it",
        "Let every driver of the stream list all regions, its own included. With Spark, correct the options "
        "`region` and `regions`",
    ),
    Code.ASSIGNMENT_OLDER: Message(
        _ASSIGNMENT,
        "assignment {other} is in force",
        "Stop this driver if a newer one has replaced it. If assignment {other} was begun by mistake, and "
        "has committed nothing yet, undo it: `sluicegate assignment withdraw --stream {stream}`. It tells if "
        "this driver can be started again then",
    ),
    Code.ASSIGNMENT_TOO_HIGH: Message(
        _ASSIGNMENT,
        "its number {number} is more than {other} above the newest one, and numbers have a limit",
        "Give all drivers of the new assignment a lower number, such as the newest one plus 1. With Spark, "
        "set the option `assignment`",
    ),
    Code.TOO_MANY_REGIONS: Message(
        _ASSIGNMENT,
        "with earlier ones, the stream would have {other} regions, and 1,000 with names of 65,536 characters "
        "are allowed",
        "Give the regions names that the stream has already. If that is impossible, " + NEW_STREAM,
    ),
    Code.ASSIGNMENT_WITHDRAWN: Message(
        _ASSIGNMENT,
        "an operator withdrew assignment {other}, and no number up to that one can be used again",
        "Give all drivers of the new assignment a number above {other}. With Spark, set the option "
        "`assignment`; a RegionRunner names its way out when it is started again",
    ),
    Code.ASSIGNMENT_DIFFERS: Message(
        _ASSIGNMENT,
        "assignment {number} has the regions {names}, and the driver lists others",
        "Give every driver the same list. To change the regions, end this assignment (`sluicegate assignment "
        "close --stream {stream} --number {number}`). The next one has the number {next}, and follows the "
        "decision that `sluicegate status` shows then. With Spark, set the options `regions`, "
        "`assignment` and `assignment.after`",
    ),
    Code.ASSIGNMENT_OPEN: Message(
        _ASSIGNMENT,
        "the regions {names} of the assignment before have not ended",
        "A driver that stops does not end its region. Stop the drivers, and end their regions: `sluicegate "
        "assignment close --stream {stream} --wait`",
    ),
    Code.ASSIGNMENT_UNRESOLVED: Message(
        _ASSIGNMENT,
        "decision {other} of the assignment before has no outcome yet",
        "Start the driver again when " + STATUS + " shows it as committed; if it stays, status shows why",
    ),
    Code.ASSIGNMENT_AFTER_OTHER_CUT: Message(
        _ASSIGNMENT,
        "it has to follow the cut of decision {other}, and its driver names another one",
        "Let the source of every driver begin at the source offsets of that cut, which " + STATUS + " shows; "
        "then name decision {other}. With Spark, set the option `assignment.after`",
    ),
    Code.REGION_REMOVED: Message(
        _REFUSED,
        "an operator removed the region[, and assignment {number} is over][; the stream goes on with "
        "{names}]",
        "It comes back with a new assignment only[. To begin one, end this one: `sluicegate assignment close "
        "--stream {stream} --wait`. That ends {names} too][. Start all drivers with assignment {next}, which "
        "follows the decision that `sluicegate status --stream {stream}` names. With Spark, set the "
        "options `assignment` and `assignment.after`]",
    ),
    Code.INCARNATION_ENDED: Message(
        _REFUSED,
        "its incarnation[ {incarnation}] has ended: it was replaced, withdrawn or reverted",
        "Stop this driver if another one has replaced it. Else " + RESET,
    ),
    Code.INCARNATION_OF_OTHER_REGION: Message(
        _REFUSED,
        "its incarnation belongs to region {first}",
        "Correct the region of the driver, or let it begin a new incarnation. With Spark, correct the option "
        "`region`, or give the query a checkpoint location of its own",
    ),
    Code.BASE_UNRESOLVED: Message(
        _REFUSED,
        "decision {number} includes checkpoints of it, and has no outcome yet",
        "Let the driver ask again. If the decision stays, " + STATUS + " shows why. With Spark, and in "
        "Python, it asks by itself, as long as the option `registration.timeout` states. Then start it again",
    ),
    Code.BASE_DIFFERS: Message(
        _REFUSED,
        "its incarnation does not start at the position that is committed for the region",
        "Start the driver with its newest state. If that is lost, or refused too, " + _LOST,
    ),
    Code.TAKE_OVER_AHEAD: Message(
        _REFUSED,
        "its driver names the end {other} of the partition, which has reached {number} only",
        "Let the driver fetch the end offset of the partition of its stream, after its own start",
    ),
    Code.TAKEN_OVER_SINCE: Message(
        _REFUSED,
        "another driver was accepted at offset {number}, at or after the end {other} that this one has seen",
        "Stop this driver if the other one works. Else start it again: it fetches a new end",
    ),
    Code.OFFSETS_KIND_DIFFERS: Message(
        _REFUSED,
        "the source offsets of the region are of another kind ({names}) than those of its driver",
        "Use the driver that has written the region so far, or another region. To continue with this driver, "
        "make sure that its source begins at the source offsets that " + STATUS + " shows, and " + RESET,
    ),
    Code.INCARNATION_LIVE: Message(
        _REFUSED,
        "incarnation[ {incarnation}] of the region is live, and its driver has another one",
        "Either another driver of this region is running, and this one is a mistake: do not start it. Or "
        "this one lacks the state of that incarnation: start it with that. If that is lost, " + _LOST,
    ),
    Code.LOCATION_OLDER: Message(
        _REFUSED,
        "the state of its driver ends[ at checkpoint {checkpoint}], before the committed checkpoint {other}",
        "Start the driver with its newest state. If that is lost, " + _LOST,
    ),
    Code.SOURCE_DIFFERS: Message(
        _REFUSED,
        "checkpoint {checkpoint} of its driver has another source range than the one in the log",
        "The source was changed, or the state of the driver comes from a backup. Restore the newest state. "
        "If that is lost, " + _LOST,
    ),
    Code.REGISTRATION_UNREADABLE: Message(
        _REFUSED,
        "the body of the registration cannot be read[ ({detail})], or an order skipped it",
        "Let the driver send a body that its schema allows. With Spark, and in Python, install the release "
        "of sluicegate that the coordinators have. Then start the driver again",
    ),
}


# Messages for regions that make no progress.

_STALLED: Final = "Region {region} is stalled"
_CHECKPOINT: Final = "Checkpoint {checkpoint} of region {region} is not committed"
_FILES: Final = "Files of region {region} are not committed"
_RESET: Final = RESET[0].upper() + RESET[1:]
_AGAIN: Final = "To have the files written again, " + RESET
_DISCARD: Final = "`sluicegate region remove --stream {stream} --region {region} --discard`"

_UNTIL_RESET: Final[Mapping[Code, Message]] = {
    Code.COMPLETED_DIFFERENTLY: Message(
        _STALLED,
        "checkpoint {checkpoint} was completed twice, for different source ranges: the source was changed, "
        "or two drivers share one state",
        "Stop one of two drivers. " + _RESET,
    ),
    Code.PREDECESSOR_IMPOSSIBLE: Message(
        _STALLED,
        "checkpoint {checkpoint} cannot follow the checkpoint that it names as its predecessor[ ({other})]",
        "Make sure that one driver alone uses the state of the region. " + _RESET,
    ),
    Code.CHECKPOINT_TOO_HIGH: Message(
        _STALLED,
        "checkpoint {checkpoint} is more than {other} after the checkpoint that it names as its predecessor, "
        "and numbers have a limit",
        "Correct the driver, whose next number may be any higher one within that distance. " + _RESET,
    ),
    Code.TWO_ATTEMPTS: Message(
        _STALLED,
        "checkpoint {checkpoint} includes two attempts of one writer[ ({first})], so rows would be doubled",
        "Correct the writer, which must report one attempt. " + _RESET,
    ),
    Code.FILES_LOST: Message(
        _STALLED,
        "files of checkpoint {checkpoint} are lost[: {detail}]",
        _AGAIN,
    ),
    Code.FINAL_TOO_OLD: Message(
        _STALLED,
        "its driver ended[ at checkpoint {other}], before the committed checkpoint {checkpoint}: it has an "
        "older state",
        "Start the driver with its newest state. If that is lost, " + _LOST,
    ),
    Code.RECORD_SKIPPED: Message(
        "Region {region} is stalled",
        "an order skipped its record at offset {number}, so what that said is unknown",
        _RESET,
    ),
    Code.REVERTED: Message(
        _STALLED,
        "decision {number} with checkpoints of the region was reverted",
        "Remove what the table refused. To end the region: " + _DISCARD + ". To continue it, " + RESET,
    ),
}

_WAITING: Final[Mapping[Code, Message]] = {
    Code.EVENTS_MISSING: Message(
        _CHECKPOINT,
        "it is completed, and[ {number} of] its events have not arrived[, such as {event}]",
        "Wait for uploads that still run. If nothing is left to arrive, " + RESET,
    ),
    Code.PREDECESSOR_MISSING: Message(
        _CHECKPOINT,
        "it follows checkpoint {other}, which nobody has completed",
        "Wait while the driver of the region works on it. In a writer of your own, the first completion of a "
        "process names the whole `committed` of its answer as `predecessor`. If the driver never completes "
        "the checkpoint, " + RESET,
    ),
    Code.COMPLETION_UNREADABLE: Message(
        _CHECKPOINT,
        "its completion cannot be read",
        "Correct the driver, and send the completion again. If that is impossible, " + RESET,
    ),
    Code.WAITS_FOR_REGIONS: Message(
        "The next commit of stream {stream} waits",
        "the regions {names} have completed nothing since their committed positions",
        "Nothing is to be done while their drivers run. Start those that do not run, also those that were "
        "idle; for a region of batch jobs in Python, call `prepare_jobs` with their options",
    ),
    Code.DECLINED: Message(
        "Region {region} does not complete checkpoint {checkpoint} soon",
        "its driver has declined it[ ({first})][: {detail}]",
        "Look at its driver. Partial commits do not wait for the region, until it completes a "
        "checkpoint or registers",
    ),
    Code.POSITION_OLD: Message(
        "Region {region} of stream {stream} falls more and more behind the others",
        "it has moved with no commit for more than {number} seconds",
        "Look at its driver. If it has ended for good: `sluicegate region remove --stream {stream} "
        "--region {region}`",
    ),
    Code.POSITIONS_STATED: Message(
        "Nothing proves that the positions of stream {stream} belong to one cut",
        "an operator stated those of the regions {names} when the stream was adopted. If one is wrong, rows "
        "are lost or doubled",
        "Compare the rows of the table with the sources. If a position is wrong, repeat the adoption with "
        "--position for each region before the next commit. That includes every region that is not idle, and "
        "ends this warning",
    ),
    Code.STILL_RUNNING: Message(
        "A driver of region {region} of stream {stream} still runs, and nothing of it is committed any more",
        "its incarnation {incarnation} has ended",
        "Stop that driver. To read again what is not committed, "
        + RESET
        + ". If the region was removed, it continues with the next assignment",
    ),
    Code.TEXTS_TOO_LARGE: Message(
        "Region {region} is not committed",
        "source offsets and listeners of all regions would have {number} bytes, and {other} are allowed",
        "Correct its driver, which must state shorter ones. " + _RESET,
    ),
    Code.WATERMARK_IGNORED: Message(
        "Watermark {first} of checkpoint {checkpoint} of region {region} counts as none",
        "it is too far ahead, or in no year from 1 to 9999",
        "The rows are committed, and nothing is marked as done by this watermark. Correct the times in the "
        "source, or let the driver state Unix milliseconds; the next right watermark counts. If such times "
        "are right, raise streams.{stream}.future_limit in the settings of all coordinators, and send "
        "SIGHUP. With Spark, a query that has seen such a time keeps it: filter such rows before "
        "`withWatermark`, stop the query, run " + _LOCATION + ", and start it again",
    ),
    Code.WATERMARK_IN_SECONDS: Message(
        "The watermark {first} of checkpoint {checkpoint} of region {region} seems to be in seconds",
        "in that unit, it would be the time of its event",
        "Let the driver state Unix milliseconds. Until then nothing is marked as done: the watermark of the "
        "stream waits for the region. If the rows are of that year, nothing is to be done",
    ),
}

_EXCLUDED: Final[Mapping[Code, Message]] = {
    Code.FILES_EXCLUDED: Message(
        _FILES,
        "the table[ {table}] does not take them[ ({detail})]",
        "If a file was lost or changed, restore it, and it is checked again. Else correct the writer. "
        + _AGAIN,
    ),
    Code.TABLE_UNKNOWN: Message(
        _FILES,
        "checkpoint {checkpoint} has files of the table {table}, which the stream does not have",
        "Add {table} to streams.{stream}.tables in the settings of all coordinators, and send them SIGHUP: "
        "the files are committed then. If the table is a mistake of the writer, correct the writer. A driver "
        "in plain Python that is started again writes them again. For others, " + RESET,
    ),
    Code.TABLE_UNUSABLE: Message(
        "The table {table} of stream {stream} takes no commits",
        "[{detail}][. Region {region} has files of it, and stays at its position]",
        "Remove the cause; the table is looked at again by itself, and the other regions are committed "
        "meanwhile. If the table was rolled back, put its snapshots back, or commit them again: `sluicegate "
        "replay repair --stream {stream} --table {table}`. If it has a later decision than the log, that was "
        "given up, or is of another deployment: roll the table back to the snapshot before it, and state "
        "that: `sluicegate stream resume --stream {stream} --table {table} --head SNAPSHOT:IDENTITY`. To do "
        "without the table, leave it out of streams.{stream}.tables in the settings of all coordinators, and "
        "let no driver write to it",
    ),
    Code.FILE_NAME_DIFFERS: Message(
        _FILES,
        "the name of {first} lacks the label[ {second}] of the attempt that reports it",
        "Let the writer name its files with digest, incarnation and checkpoint of its own attempt. For "
        "writers that cannot choose names, set streams.{stream}.file_names to `unchecked`. " + _AGAIN,
    ),
    Code.LOCATION_NOT_ALLOWED: Message(
        _FILES,
        "the location {first} is outside of the allowed locations[ {rest}]",
        "Let the writer put its files where the table[ {table}] keeps its data[: see its option "
        "tables.{table}]. If that is {first}, by this or another address, add it to "
        "streams.{stream}[.tables.{table}].allowed_locations in the settings of all coordinators; the "
        "table's own location is always allowed. " + _AGAIN,
    ),
    Code.LOCATION_AMBIGUOUS: Message(
        _FILES,
        "the location {first} can be read in two ways[: {detail}]",
        "Give the writer a plain location for its table. " + _AGAIN,
    ),
    Code.PATH_ESCAPES: Message(
        _FILES,
        "the path {first} leads out of its location[ {second}]",
        "Correct the writer, which must name paths inside its location. " + _AGAIN,
    ),
    Code.OTHER_FORMAT: Message(
        _FILES,
        "they have the format {first}[, and the table has the format {second}][ ({detail})]",
        "Correct streams.{stream}.format in the settings, or the writer. " + _AGAIN,
    ),
    Code.BODY_UNREADABLE: Message(
        _FILES,
        "the event[ at offset {number}] that lists them cannot be read[ ({detail})]",
        "Correct the writer. " + _AGAIN,
    ),
    Code.TOO_MANY_FILES: Message(
        _FILES,
        "a checkpoint[ ({checkpoint})] has too many files[: {number}, of at most {other}]",
        "Raise streams.{stream}.max_files_per_checkpoint in the settings of all coordinators. Or let the "
        "writer write fewer files. " + _AGAIN,
    ),
    Code.TOO_MANY_BYTES: Message(
        _FILES,
        "the events of one commit would be too large[: {number} bytes of this region, {other} allowed in "
        "all]",
        "Raise streams.{stream}.max_pending_bytes, and the memory, of all coordinators",
    ),
}

REGION_MESSAGES: Final = {**_UNTIL_RESET, **_WAITING, **_EXCLUDED}


# Messages for a stream that makes no progress as a whole.

_STREAM_STALLED: Final = "Stream {stream} is stalled"
_REBUILD: Final = (
    "make an empty table with its columns and partitioning at another place. Fill it from the log: "
    "`sluicegate replay rebuild --stream {stream} --into TABLE --schema-from-target`, with `--option "
    "identifier=NAME` if a catalog has it. Set streams.{stream}.table to it, and that option"
)
_PROOF: Final = (
    "Look for decision {number} of the commit user in the table's history. If no snapshot up to the head, "
    "which `sluicegate check` shows, has it, and the earlier ones are there, state that: `sluicegate stream "
    "resume --stream {stream} --head SNAPSHOT:IDENTITY`. If its files are in the table, state "
    "nothing: begin a stream at what the table has, see `sluicegate stream adopt --help`"
)

STREAM_MESSAGES: Final[Mapping[Code, Message]] = {
    Code.PAUSED: Message(
        "Stream {stream} commits nothing",
        "an operator paused it",
        f"Continue with {RESUME}. `sluicegate audit --stream {{stream}}` tells who paused it, when and why",
    ),
    Code.SAVEPOINT_WAITS: Message(
        "Savepoint {first} of stream {stream} waits",
        "its commit is not in the table yet[; it needs a checkpoint of {rest}]",
        "[Start the drivers of {rest} if they do not run; for a region of batch jobs in Python, call "
        "`prepare_jobs` with their options. ]To give it up: `sluicegate stream cancel --stream {stream} "
        "--name {first}`",
    ),
    Code.DRAIN_WAITS: Message(
        "Drain {first} of stream {stream} waits",
        "not all regions have ended[: {rest}]. A driver that stops does not end its region",
        "Let the drivers close their regions, or end all of them: `sluicegate assignment close --stream "
        "{stream}`. For one: `sluicegate region remove --stream {stream} --region REGION`. With Spark, run "
        "the queries with `bounded=true`",
    ),
    Code.RECORD_UNREADABLE: Message(
        _STREAM_STALLED,
        f"this release reads version {MAJOR_VERSION} of events, and the record[ at offset {{number}}] of the "
        "events topic has another one[: {detail}][; release {first} wrote it]",
        UPGRADE + "; the stream then continues by itself. If a program wrote it by mistake, "
        "`sluicegate stream skip --stream {stream}` shows it, and how to skip it. If the whole topic is of "
        "an older version, " + ADOPT,
    ),
    Code.SKIPPED_LATE: Message(
        _STREAM_STALLED,
        "the order at offset {other} skips the record at offset {number}, which a coordinator had applied "
        "before",
        "If no newer release can run, " + ADOPT,
    ),
    Code.LOG_DISCONTINUOUS: Message(
        _STREAM_STALLED,
        "events that it needs[, from offset {number} on,] are not in the events topic[: {detail}]",
        "Restore the topic, then restart the coordinators. If that is impossible, " + ADOPT,
    ),
    Code.OTHER_PARTITION: Message(
        _STREAM_STALLED,
        "its events are in partition {number}, and it now belongs to partition {other}: the events topic got "
        "more partitions",
        "Restore the topic with its former number of partitions, then restart the coordinators. If that is "
        "impossible, " + ADOPT,
    ),
    Code.OTHER_COMMIT_USER: Message(
        _STREAM_STALLED,
        "it commits as the user[ {first}], and the settings name another one[ ({second})]",
        "Set streams.{stream}.commit_user to the former value in the settings of all coordinators",
    ),
    Code.TABLE_UNFIT: Message(
        _STREAM_STALLED,
        "its table cannot be used[: {detail}]",
        "Correct the table: it is checked again by itself. Or correct its address in the settings, and send "
        "the coordinators SIGHUP. See `sluicegate check`. If the metadata of a table with commits is lost, "
        + _REBUILD
        + ". Then "
        + ADOPT,
    ),
    Code.TABLE_REPLACED: Message(
        _STREAM_STALLED,
        "the table is another one[ ({detail})] than that with which the stream began",
        "Put the former table back, with its files; the stream then continues by itself. If only its data "
        "files are left, " + _REBUILD + ". Then " + ADOPT + ". If its files are gone as well, do the same "
        "without `rebuild`",
    ),
    Code.TABLE_AHEAD: Message(
        _STREAM_STALLED,
        "the table has decision {other} of its commit user, and the log ends with {number}. The topics were "
        "created again or restored from an older copy, the stream was moved, another deployment commits as "
        "the same user, or this member lacks a signing key",
        "If topics with these decisions still exist, connect the coordinators to them. If the stream was "
        "moved, remove it from the settings here, and change nothing else. If `sluicegate dead-letters list "
        "--stream {stream}` shows the code `signature`, follow docs/security.md, Signed records. If another "
        "deployment commits as the same user, " + NEW_STREAM + ". Otherwise " + ADOPT,
    ),
    Code.TABLE_CONTRADICTS: Message(
        _STREAM_STALLED,
        "the table contradicts decision {number} of the log[: digest {first}][: it ends with decision "
        "{other}][: {detail}]",
        "Somebody has rolled the table back, or another deployment commits as the same commit user. Compare "
        "them: "
        + VERIFY
        + ". Put the lost snapshots back. Or stop the coordinators, and commit them again: `sluicegate "
        "replay repair --stream {stream}`. If it refuses, or finds nothing to commit, " + ADOPT,
    ),
    Code.ABSENCE_UNPROVEN: Message(
        _STREAM_STALLED,
        "nothing proves that decision {number} is absent in the table[: {detail}]",
        _PROOF,
    ),
    Code.TABLES_APART: Message(
        "Decision {number} of stream {stream} is not in all of its tables",
        "the table of the stream has it, and these lack it: {names}. The catalog is not atomic, or somebody "
        "has rolled them back",
        "They get it now by themselves. See whether that succeeds: "
        + STATUS
        + ". If one was dropped, leave it "
        "out of streams.{stream}.tables in the settings of all coordinators",
    ),
    Code.COMMIT_REFUSED: Message(
        _STREAM_STALLED,
        # Without regions it is a decision that was given up already: the table takes no commit at all.
        "the table[ {table}] refuses the commit of decision {number}[ with checkpoints of {names}]"
        "[: {detail}]",
        "Remove the cause; the commit is tried again by itself[. To give the decision up: `sluicegate commit "
        "revert --stream {stream} --decision {number} --region {first}`][, or with the region of {rest} "
        "whose files are refused][. The region {first} reads again what it had in the decision]",
    ),
    Code.RETRYING: Message(
        "Stream {stream} tries again",
        "the step {first} fails[: {detail}]",
        "It continues by itself when the cause is gone. `sluicegate check` looks at Kafka, the tables and "
        "Redis. If the metadata of the table is lost for good, restart the coordinators: they name the way "
        "out",
    ),
    Code.RETENTION: Message(
        "Events of stream {stream} are close to their deletion",
        "the topic's retention is shorter than the age of uncommitted work[: {detail}]",
        "Set retention.ms of the topic to -1. " + STATUS + " shows the work that waits, and why",
    ),
    Code.EVENTS_LIMITED: Message(
        "Stream {stream} is read at its limit",
        "its events came faster than {number} a second. They stay in Kafka, and are committed when it has "
        "caught up; other streams do not wait",
        "Let its writers publish fewer and larger events. To read faster, raise "
        "streams.{stream}.max_events_per_second in the settings of all coordinators, and send SIGHUP",
    ),
    Code.STATE_RECORD_NEWER: Message(
        _STREAM_STALLED,
        "a newer release[, {first},] wrote its state record[ (version {number})]",
        UPGRADE + "; the stream then continues by itself",
    ),
    Code.STATE_RECORD_MALFORMED: Message(
        _STREAM_STALLED,
        "its state record cannot be read[ at {first}][: {detail}]",
        "If nobody but sluicegate writes to the state topic, report a defect. To read the log again "
        "instead: `sluicegate stream recover --stream {stream}`; then restart the coordinators",
    ),
}


# Sentences for problems: the only place that turns a code with its arguments into a text for people.
#
# Each message has three parts: the event, the reason, and the next step with a command that exists. Nothing
# in the protocol depends on a sentence, so a text may change at any time.

MESSAGES: Final[Mapping[Code, Message]] = {
    **REFUSAL_MESSAGES,
    **REGION_MESSAGES,
    **STREAM_MESSAGES,
    **EVENT_MESSAGES,
}

_LISTED: Final = 8
"""Names that a sentence lists; a count stands for the others."""
_SHORT: Final = 8
_LONG: Final = 12
"""Characters; longer incarnation ids are shortened."""
_OF_TIMES: Final = (Code.WATERMARK_IGNORED, Code.WATERMARK_IN_SECONDS)
"""Codes whose first name is a time in Unix milliseconds."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")


def format_problem(problem: Problem, stream: str) -> str:
    """Return a problem of a stream as sentences: what happened, why, and what to do."""
    message, arguments = MESSAGES[problem.code], _arguments(problem, stream)
    what, why, remedy = (fill(part, arguments) for part in message)
    return f"{what}: {why}. {remedy}."


def _why(problem: Problem, stream: str) -> str:
    """Return the sentence of the cause; without one, the text from outside."""
    cause, detail = problem.cause, problem.detail.rstrip(". ")
    if cause is None:
        return detail
    if cause.code is CauseCode.EVENT_UNUSABLE and cause.problem is not None and cause.problem in {*Code}:
        code = Code(cause.problem)
        found = Problem(code=code, region=cause.region, names=cause.names, detail=detail)
        return format_problem(found, stream).rstrip(". ")
    return format_cause(cause, detail)


def _as_time(millis: str) -> str:
    """Return Unix milliseconds as a time; as they are if no date has them."""
    return (iso_time(int(millis)) if _NUMBER.fullmatch(millis) else None) or millis


def short_id(incarnation: str) -> str:
    """Return the first characters of a long incarnation id."""
    return incarnation if len(incarnation) <= _LONG else f"{incarnation[:_SHORT]}…"


def listed(names: tuple[str, ...]) -> str:
    """Return names as a list for people; a count stands for those after the first ones."""
    more = len(names) - _LISTED
    shown = ", ".join(islice(names, _LISTED))
    return f"{shown} and {more} more" if more > 0 else shown


def _arguments(problem: Problem, stream: str) -> dict[str, str]:
    """Return the values of the placeholders; those without a value are absent."""
    names = problem.names
    if problem.code in _OF_TIMES and names:
        names = (_as_time(names[0]), *names[1:])
    values = {
        "stream": stream,
        "region": problem.region,
        "incarnation": short_id(problem.incarnation) if problem.incarnation else None,
        "checkpoint": problem.checkpoint,
        "other": problem.other,
        "number": problem.number,
        "next": problem.number + 1 if problem.number is not None else None,
        "event": problem.event,
        "table": problem.table,
        "names": listed(names),
        "first": names[0] if names else None,
        "second": names[1] if len(names) > 1 else None,
        "rest": listed(names[1:]),
        "detail": _why(problem, stream),
    }
    return {name: str(value) for name, value in values.items() if value not in (None, "")}
