"""Messages for a stream that makes no progress as a whole."""

from collections.abc import Mapping
from typing import Final

from sluicegate.coordinator.telemetry.message import (
    ADOPT,
    NEW_STREAM,
    RESUME,
    STATUS,
    UPGRADE,
    VERIFY,
    Message,
)
from sluicegate.events.problems import Code

_STALLED: Final = "Stream {stream} is stalled"
_REBUILD: Final = (
    "make an empty table with its columns and partitioning at another place. Fill it from the log: "
    "`sluicegate replay rebuild --stream {stream} --into TABLE --schema-from-target`, with `--option "
    "identifier=NAME` if a catalog has it. Set streams.{stream}.table to it, and that option"
)
_PROOF: Final = (
    "Look for decision {number} of the commit user in the table's history. If no snapshot up to the head, "
    "which `sluicegate check` shows, has it, and the earlier ones are there, state that: `sluicegate stream "
    "resume --stream {stream} --head SNAPSHOT:IDENTITY`. If its files are in the table, and only its "
    "snapshot has expired, add --committed"
)

MESSAGES: Final[Mapping[Code, Message]] = {
    Code.PAUSED: Message(
        "Stream {stream} commits nothing",
        "an operator paused it",
        f"Continue with {RESUME}. `sluicegate audit --stream {{stream}}` tells who paused it, when and why",
    ),
    Code.SAVEPOINT_WAITS: Message(
        "Savepoint {first} of stream {stream} waits",
        "its commit is not in the table yet[; it needs a checkpoint of {rest}]",
        "Start the queries of these regions if they do not run; for a region of batch jobs, call "
        "`prepare_jobs` with their options. To give it up: `sluicegate stream cancel --stream {stream} "
        "--name {first}`",
    ),
    Code.DRAIN_WAITS: Message(
        "Drain {first} of stream {stream} waits",
        "not all regions have ended[: {rest}]. A query that is stopped does not end its region",
        "Run the queries with `bounded=true`, or end all regions: `sluicegate assignment close --stream "
        "{stream}`. For one: `sluicegate region remove --stream {stream} --region REGION`",
    ),
    Code.RECORD_UNREADABLE: Message(
        _STALLED,
        "this release cannot read the record[ at offset {number}] of the events topic[ ({detail})][, which "
        "release {first} wrote]",
        UPGRADE + "; the stream then continues by itself. If a program wrote it by mistake, skip it: "
        "`sluicegate stream skip --stream {stream} --offset {number}`",
    ),
    Code.SKIPPED_LATE: Message(
        _STALLED,
        "the order at offset {other} skips the record at offset {number}, which a coordinator had applied "
        "before",
        "If no newer release can run, " + ADOPT,
    ),
    Code.LOG_DISCONTINUOUS: Message(
        _STALLED,
        "events that it needs[, from offset {number} on,] are not in the events topic[: {detail}]",
        "Restore the topic, then restart the coordinators. If that is impossible, " + ADOPT,
    ),
    Code.OTHER_PARTITION: Message(
        _STALLED,
        "its events are in partition {number}, and it now belongs to partition {other}: the events topic got "
        "more partitions",
        "Restore the topic with its former number of partitions, then restart the coordinators. If that is "
        "impossible, " + ADOPT,
    ),
    Code.OTHER_COMMIT_USER: Message(
        _STALLED,
        "it commits as the user[ {first}], and the settings name another one[ ({second})]",
        "Set streams.{stream}.commit_user to the former value in the settings of all coordinators",
    ),
    Code.TABLE_UNFIT: Message(
        _STALLED,
        "its table cannot be used[: {detail}]",
        "Correct the table or its address in the settings; it is checked again by itself. See "
        "`sluicegate check`. If the metadata of the table is lost, " + _REBUILD + ". Then " + ADOPT,
    ),
    Code.TABLE_REPLACED: Message(
        _STALLED,
        "the table is another one[ ({detail})] than that with which the stream began",
        "Put the former table back, with its files; the stream then continues by itself. If only its data "
        "files are left, " + _REBUILD + ". Then " + ADOPT + ". If its files are gone as well, do the same "
        "without `rebuild`",
    ),
    Code.TABLE_AHEAD: Message(
        _STALLED,
        "the table has decision {other} of its commit user, and the log ends with {number}. Another "
        "deployment commits as the same user, the topics were created again or restored from an older copy, "
        "or decisions were refused. Their signing key was missing, or a member with another "
        "kafka.signing.mode did not sign them",
        "If the stream was moved to another Kafka cluster or name, remove it from the settings of these "
        "coordinators, and change nothing else here. If `sluicegate dead-letters list --stream {stream}` "
        "shows the code `signature`, give all members the key that it names. If it names none, a member of "
        "yours may have written them unsigned. Then set kafka.signing.since everywhere to a time after the "
        "last of them. Restart the members. If the stall stays, stop them, read the log again with "
        "`sluicegate stream recover --stream {stream}`, and start them. Else put topics back that have these "
        "decisions. If there are none, "
        + ADOPT
        + ". If another deployment commits as the same user, "
        + NEW_STREAM,
    ),
    Code.TABLE_CONTRADICTS: Message(
        _STALLED,
        "the table contradicts decision {number} of the log[: digest {first}][: it ends with decision "
        "{other}][: {detail}]. Usual causes are a table that was rolled back, and another job with the same "
        "commit user",
        "Compare them: "
        + VERIFY
        + ". Put the lost snapshots back. Or stop the coordinators, and commit them again: `sluicegate "
        "replay repair --stream {stream}`. If it refuses, or finds nothing to commit, " + ADOPT,
    ),
    Code.ABSENCE_UNPROVEN: Message(
        _STALLED,
        "nothing proves that decision {number} is absent in the table[: {detail}]",
        _PROOF,
    ),
    Code.COMMIT_REFUSED: Message(
        _STALLED,
        "the table refuses the commit of decision {number} with checkpoints of {names}[: {detail}]",
        "Remove the cause; the commit is tried again by itself. To give the decision up: `sluicegate commit "
        "revert --stream {stream} --decision {number} --region {first}`[, or with the region of {rest} whose "
        "files are refused]. That region reads again what it had in the decision",
    ),
    Code.RETRYING: Message(
        "Stream {stream} tries again",
        "the step {first} fails[: {detail}]",
        "It continues by itself when the cause is gone. `sluicegate check` looks at Kafka, the tables and "
        "Redis. If the metadata of a table is lost for good, restart the coordinators: the stream then "
        "stalls, and names the way out",
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
        "Let its jobs publish fewer and larger events. To read faster, raise "
        "streams.{stream}.max_events_per_second in the settings of all coordinators, and send SIGHUP",
    ),
    Code.STATE_RECORD_OLDER: Message(
        _STALLED,
        "an older release wrote its state record[ (version {number})], which this one does not read",
        "Run that release again. Or use other topics (kafka.topic_prefix), and " + ADOPT,
    ),
    Code.STATE_RECORD_NEWER: Message(
        _STALLED,
        "a newer release[, {first},] wrote its state record[ (version {number})]",
        UPGRADE + "; the stream then continues by itself",
    ),
    Code.STATE_RECORD_MALFORMED: Message(
        _STALLED,
        "its state record cannot be read[ at {first}][: {detail}]",
        "If nobody but sluicegate writes to the state topic, report a defect. To read the log again "
        "instead: `sluicegate stream recover --stream {stream}`; then restart the coordinators",
    ),
}
