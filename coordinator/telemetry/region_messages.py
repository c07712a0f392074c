"""Messages for regions that make no progress."""

from collections.abc import Mapping
from typing import Final

from sluicegate.coordinator.telemetry.message import RESET, Message
from sluicegate.events.problems import Code

_STALLED: Final = "Region {region} is stalled"
_CHECKPOINT: Final = "Checkpoint {checkpoint} of region {region} is not committed"
_FILES: Final = "Files of region {region} are not committed"
_RESET: Final = "Set the region to its committed position: " + RESET
_DISCARD: Final = "`sluicegate region remove --stream {stream} --region {region} --discard`"

_UNTIL_RESET: Final[Mapping[Code, Message]] = {
    Code.COMPLETED_DIFFERENTLY: Message(
        _STALLED,
        "checkpoint {checkpoint} was completed twice, for different source ranges: the source was changed, "
        "or two queries share the checkpoint location",
        "Stop one of two queries. " + _RESET,
    ),
    Code.PREDECESSOR_IMPOSSIBLE: Message(
        _STALLED,
        "checkpoint {checkpoint} cannot follow the checkpoint that it names as its predecessor[ ({other})]",
        "Make sure that one query alone uses the checkpoint location. " + _RESET,
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
        "Have the query write them again. " + _RESET,
    ),
    Code.FINAL_TOO_OLD: Message(
        _STALLED,
        "its query ended[ at checkpoint {other}], before the committed checkpoint {checkpoint}: its "
        "checkpoint "
        "location is an older one",
        "Use the newest state of the location. If it is lost, take an empty one, and let its source begin "
        "right after the committed rows. The order: " + RESET,
    ),
    Code.RECORD_SKIPPED: Message(
        "Region {region} is stalled",
        "an order skipped its record at offset {number}, so what that said is unknown",
        _RESET,
    ),
    Code.REVERTED: Message(
        _STALLED,
        "decision {number} with checkpoints of the region was reverted",
        "Remove what the table refused. " + _RESET + ". To end the region instead: " + _DISCARD,
    ),
}

_WAITING: Final[Mapping[Code, Message]] = {
    Code.EVENTS_MISSING: Message(
        _CHECKPOINT,
        "it is completed, and[ {number} of] its events have not arrived[, such as {event}]",
        "Wait for uploads that still run. If nothing is left to arrive: " + RESET,
    ),
    Code.EVENT_MISPLACED: Message(
        _CHECKPOINT,
        "it names the event {event}, which belongs to[ checkpoint {other} of] region {first}",
        "Correct the driver, which must name the events of its own checkpoint. " + _RESET,
    ),
    Code.PREDECESSOR_MISSING: Message(
        _CHECKPOINT,
        "it follows checkpoint {other}, which nobody has completed",
        "Wait while the query of the region works on it. If it never completes: " + RESET,
    ),
    Code.COMPLETION_UNREADABLE: Message(
        _CHECKPOINT,
        "its completion cannot be read",
        "Correct the driver and send the completion again, or set the region back: " + RESET,
    ),
    Code.WAITS_FOR_REGIONS: Message(
        "The next commit of stream {stream} waits",
        "the regions {names} have completed nothing since their committed positions",
        "Nothing is to be done while their queries run. Start the queries and drivers that do not run, also "
        "those that were idle; for a region of batch jobs, call `prepare_jobs` with their options. To stop "
        "waiting for one that has ended for good: `sluicegate region remove --stream {stream} --region "
        "{first}`",
    ),
    Code.STILL_RUNNING: Message(
        "A query of region {region} of stream {stream} still runs, and nothing of it is committed any more",
        "its incarnation {incarnation} has ended",
        "Stop the query. It has to read again what is not committed. " + _RESET,
    ),
    Code.TEXTS_TOO_LARGE: Message(
        "Region {region} is not committed",
        "source offsets and listeners of all regions would have {number} bytes, and {other} are allowed",
        "Let its driver state shorter ones. " + _RESET,
    ),
    Code.WATERMARK_IGNORED: Message(
        "Watermark {first} of checkpoint {checkpoint} of region {region} counts as none",
        "it is too far ahead, or in no year from 1 to 9999[. In {second}, it would be right]",
        "The rows are committed, and nothing is marked as done by this watermark. Correct the times in the "
        "source, or let the driver state Unix milliseconds; the next right watermark counts. A Spark query "
        "that has seen such a time keeps it: filter such rows before `withWatermark`. "
        + _RESET
        + ". If such times are right, raise streams.{stream}.future_limit "
        "in the settings of all coordinators, and send SIGHUP",
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
        "the table does not take them[ ({detail})]",
        "Restore what is missing, and they are checked again. To have them written again: " + RESET,
    ),
    Code.FILE_NAME_DIFFERS: Message(
        _FILES,
        "the name of {first} lacks the digest[ {second}] of the attempt that reports it",
        "Let the writer name its files with the digest of its own attempt, then set the region back: "
        + RESET
        + ". For writers that cannot choose names, set streams.{stream}.file_names to `unchecked`",
    ),
    Code.LOCATION_NOT_ALLOWED: Message(
        _FILES,
        "the location {first} is outside of the allowed locations[ {rest}]",
        "Let the writer put its files where the table keeps its data, and set the region back: "
        + RESET
        + ". If that is {first}, by this or another address, add it to streams.{stream}.allowed_locations in "
        "the settings of all coordinators; streams.{stream}.table itself is always allowed",
    ),
    Code.LOCATION_AMBIGUOUS: Message(
        _FILES,
        "the location {first} can be read in two ways[: {detail}]",
        "Give the query a plain location for its table, then set the region back: " + RESET,
    ),
    Code.PATH_ESCAPES: Message(
        _FILES,
        "the path {first} leads out of its location[ {second}]",
        "Correct the writer, which must name paths inside its location. " + _RESET,
    ),
    Code.OTHER_FORMAT: Message(
        _FILES,
        "they have the format {first}[, and the table has the format {second}][ ({detail})]",
        "Correct streams.{stream}.format in the settings, or the writer of the query; then set the region "
        "back: " + RESET,
    ),
    Code.BODY_UNREADABLE: Message(
        _FILES,
        "the event[ at offset {number}] that lists them cannot be read[ ({detail})]",
        "Correct the writer, then have the files written again: " + RESET,
    ),
    Code.TOO_MANY_FILES: Message(
        _FILES,
        "a checkpoint[ ({checkpoint})] has too many files[: {number}, of at most {other}]",
        "Raise streams.{stream}.max_files_per_checkpoint in the settings of all coordinators. Or let the "
        "query write fewer files, and set the region back: " + RESET,
    ),
    Code.TOO_MANY_BYTES: Message(
        _FILES,
        "the events of one commit would be too large[: {number} bytes of this region, {other} allowed in "
        "all]",
        "Raise streams.{stream}.max_pending_bytes, and the memory, of all coordinators",
    ),
}

MESSAGES: Final = {**_UNTIL_RESET, **_WAITING, **_EXCLUDED}
