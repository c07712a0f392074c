"""Messages for registrations that are refused."""

from collections.abc import Mapping
from typing import Final

from sluicegate.coordinator.telemetry.message import NEW_STREAM, RESET, STATUS, Message
from sluicegate.events.problems import Code

_REFUSED: Final = "The registration of region {region} is refused"
_ASSIGNMENT: Final = "The registration with assignment {number} is refused"
_LOST: Final = (
    "make sure that the source continues at the source offsets that "
    + STATUS
    + " shows. Then give the order: "
    + RESET
)

MESSAGES: Final[Mapping[Code, Message]] = {
    Code.NO_POLICY: Message(
        _REFUSED,
        "no coordinator has logged the settings of stream {stream} yet",
        "Start a coordinator whose settings have the stream (`sluicegate run`), then start the query again",
    ),
    Code.REGION_NOT_ALLOWED: Message(
        _REFUSED,
        "the settings allow the regions {names} alone, and the list of the query has another one",
        "Correct the options `region` and `regions` of the query, or add the region to "
        "streams.{stream}.regions in the settings of all coordinators",
    ),
    Code.OTHER_TABLE: Message(
        _REFUSED,
        "its query writes to the table {detail}, which is outside of the allowed locations[ {names}]",
        "Set the option `table` of the query to streams.{stream}.table, to which the coordinator commits. "
        "Only if it is another address of the same table, add it to streams.{stream}.allowed_locations in "
        "the settings of all coordinators",
    ),
    Code.REGION_NOT_ASSIGNED: Message(
        _REFUSED,
        "the regions that its query lists ({names}) do not include it",
        "Add it to the option `regions` of every query of the stream, or correct the option `region`",
    ),
    Code.ASSIGNMENT_OLDER: Message(
        _ASSIGNMENT,
        "assignment {other} is in force",
        "Stop this query if a newer job has replaced it. If assignment {other} was begun by mistake, and has "
        "committed nothing yet, undo it: `sluicegate assignment withdraw --stream {stream}`. It tells if "
        "this query can be started again then",
    ),
    Code.ASSIGNMENT_TOO_HIGH: Message(
        _ASSIGNMENT,
        "its number {number} is more than {other} above the newest one, and numbers have a limit",
        "Set the option `assignment` of all queries of the new job to a lower number, such as the newest one "
        "plus 1",
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
        "Set the option `assignment` of all queries of the new job to a number above {other}. A RegionRunner "
        "names its way out when it is started again",
    ),
    Code.ASSIGNMENT_DIFFERS: Message(
        _ASSIGNMENT,
        "assignment {number} has the regions {names}, and the query lists others",
        "Give every query the same option `regions`. To change the regions, end this assignment "
        "(`sluicegate assignment close --stream {stream} --number {number}`), and use the number {next} and "
        "the option `assignment.after` that `sluicegate status` shows then",
    ),
    Code.ASSIGNMENT_OPEN: Message(
        _ASSIGNMENT,
        "the regions {names} of the assignment before have not ended",
        "A query that is stopped does not end its region. Stop the queries, and end their regions: "
        "`sluicegate assignment close --stream {stream} --wait`",
    ),
    Code.ASSIGNMENT_UNRESOLVED: Message(
        _ASSIGNMENT,
        "decision {other} of the assignment before has no outcome yet",
        "Start the query again when " + STATUS + " shows it as committed; if it stays, status shows why",
    ),
    Code.ASSIGNMENT_AFTER_OTHER_CUT: Message(
        _ASSIGNMENT,
        "it has to follow the cut of decision {other}, and its option `assignment.after` names another one",
        "Let the source of every query begin at the source offsets of that cut, which " + STATUS + " shows; "
        "then set `assignment.after` to {other}",
    ),
    Code.REGION_REMOVED: Message(
        _REFUSED,
        "an operator removed the region[, and assignment {number} is over][; the stream goes on with "
        "{names}]",
        "It comes back with a new assignment only[. To begin one, end this one: `sluicegate assignment close "
        "--stream {stream} --wait`. That ends {names} too][. Start all queries with the option `assignment` "
        "{next}, and with the `assignment.after` that `sluicegate status --stream {stream}` names]",
    ),
    Code.INCARNATION_ENDED: Message(
        _REFUSED,
        "the incarnation[ {incarnation}] of its checkpoint location has ended: it was replaced, withdrawn "
        "or reverted",
        "Stop this query if another one has replaced it. Else set the location to the committed position: "
        + RESET,
    ),
    Code.INCARNATION_OF_OTHER_REGION: Message(
        _REFUSED,
        "its checkpoint location belongs to region {first}",
        "Correct the option `region` of the query, or give it a checkpoint location of its own",
    ),
    Code.BASE_UNRESOLVED: Message(
        _REFUSED,
        "decision {number} includes checkpoints of it, and has no outcome yet",
        "The driver asks again by itself, as long as its option `registration.timeout` states. If the "
        "decision stays, " + STATUS + " shows why. Then start the driver again",
    ),
    Code.BASE_DIFFERS: Message(
        _REFUSED,
        "its checkpoint location does not start at the position that is committed for the region",
        "Use the checkpoint location of the newest run. If it is refused too, set it to the committed "
        "position. If it is lost, take an empty one, and make sure that the source continues at the source "
        "offsets that " + STATUS + " shows. The order for both: " + RESET,
    ),
    Code.INCARNATION_LIVE: Message(
        _REFUSED,
        "incarnation[ {incarnation}] of the region is live, and this checkpoint location is not its own",
        "Probably another query of this region is running. If this one is a mistake, do not start it. Else "
        "start it with the checkpoint location of that incarnation. If that is lost: " + _LOST,
    ),
    Code.LOCATION_OLDER: Message(
        _REFUSED,
        "its checkpoint location ends[ at checkpoint {checkpoint}], before the committed checkpoint {other}",
        "Use the newest state of the location. If it is lost, take an empty one: " + _LOST,
    ),
    Code.SOURCE_DIFFERS: Message(
        _REFUSED,
        "checkpoint {checkpoint} of its checkpoint location has another source range than the one in the log",
        "The source was changed, or the location comes from a backup. Restore the newest location, or set "
        "this one to the committed position: " + RESET + ". If that is refused, take an empty one: " + _LOST,
    ),
    Code.REGISTRATION_UNREADABLE: Message(
        _REFUSED,
        "the body of the registration cannot be read",
        "Install the same release of sluicegate for driver and coordinator, then start the query again",
    ),
}
