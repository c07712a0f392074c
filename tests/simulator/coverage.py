"""Coverage: every fault and every transition that a full campaign must hit, by name."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from sluicegate.coordinator.core import effects
from sluicegate.events.notifications import NotificationType
from sluicegate.events.problems import Code
from tests.simulator.fates import FATES, KINDS, kinds_of
from tests.simulator.plan import FAULTS as OF_PLANS
from tests.simulator.plan import OF_FURTHER_TABLES
from tools.docs.states_page import REGION

ENOUGH: Final = 100
"""Number of times that a campaign of full length hits each."""

_OF_PROCESSES: Final = (
    *(f"crash after {kind}" for kind in KINDS),
    *(f"frozen before {kind}" for kind in KINDS),
    "a frozen effect runs",
    "a whole process wakes up",
    "topic restored",
)
_OF_STORES: Final = (
    *(f"{fate}: {kind}" for fate in FATES for kind in kinds_of(fate)),
    "snapshots put back",
    "rollback taken back",
    "an operator names the head",
    "a commit without outcome is rolled back",
    "a named head lacks the newest outcome",
    "an answer by the marker alone",
    "table put back",
    "table in scope again",
)
_OF_FURTHER_TABLES: Final = (
    "a table is added",
    "a table is left out",
    "a table that was made again is accepted",
    "a dropped table is put back",
    "a further table is put back",
    "a further table is repaired",
    "an operator states that a table is right",
    "a process ends between two tables",
    "a publication between two questions",
    "a publication of several tables",
    "tables that lack a decision get it",
    "a table that was left out is not waited for",
    "a reader needs the mark, or loads the anchor again",
    "regions go on beside a table in trouble",
)
_OF_JOBS: Final = (
    "watermark falls",
    "watermark of the far future",
    "a completion carries its files",
    "a completion with files loses",
    "region reset",
    "a driver without state takes over",
    "another assignment begins",
    "back to the assignment before",
    "the first assignment is withdrawn",
)
RESULTS: Final = (
    "InspectTable -> TableState",
    "InspectTable -> TableUnfit",
    "FetchEnd -> EndOffset",
    "CheckFiles -> FilesChecked",
    "CheckFiles -> TableReplaced",
    *(f"{kind} -> Appended" for kind in KINDS if "." in kind),
    "Ask -> Found",
    "Ask -> Absent",
    "Ask -> OtherDigest",
    "Ask -> Unproven",
    "Ask -> TableReplaced",
    "Publish -> Published",
    "Publish -> Refused that may pass",
    "Publish -> OutcomeUnknown",
    "Publish -> Refused",
    "WriteRecord -> Done",
    "Announce -> Done",
    "WriteView -> Done",
    "ReleaseOffsets -> Done",
)
COMMANDS: Final = (
    "remove", "discard", "close", "withdraw", "revert", "savepoint", "drain", "cancel", "pause", "resume",
    "skip",
)  # fmt: skip
REFUSALS: Final = (
    Code.NO_POLICY,
    Code.TAKEN_OVER_SINCE,
    Code.REGION_NOT_ALLOWED,
    Code.OTHER_TABLE,
    Code.REGION_NOT_ASSIGNED,
    Code.ASSIGNMENT_OLDER,
    Code.ASSIGNMENT_WITHDRAWN,
    Code.ASSIGNMENT_DIFFERS,
    Code.ASSIGNMENT_OPEN,
    Code.ASSIGNMENT_UNRESOLVED,
    Code.ASSIGNMENT_AFTER_OTHER_CUT,
    Code.REGION_REMOVED,
    Code.INCARNATION_ENDED,
    Code.INCARNATION_OF_OTHER_REGION,
    Code.BASE_UNRESOLVED,
    Code.BASE_DIFFERS,
    Code.INCARNATION_LIVE,
    Code.LOCATION_OLDER,
    Code.SOURCE_DIFFERS,
    Code.REGISTRATION_UNREADABLE,
)
"""Codes with which a registration is refused."""
FAULTS_OF_REGIONS: Final = (
    Code.COMPLETED_DIFFERENTLY,
    Code.PREDECESSOR_IMPOSSIBLE,
    Code.TWO_ATTEMPTS,
    Code.FILES_LOST,
    Code.FINAL_TOO_OLD,
    Code.REVERTED,
)
VOID: Final = (
    Code.OUT_OF_ORDER,
    Code.UNRESOLVED,
    Code.PAUSED,
    Code.NOTHING_MOVES,
    Code.NOT_SEALED,
    Code.TABLE_UNKNOWN,
    Code.REGION_STALLED,
    Code.NOT_FULL,
    Code.TOO_MANY_BEHIND,
    Code.OTHER_DIGEST,
    Code.NOT_FORCED,
)
"""Codes of decisions, outcomes and attempts that have no effect."""
_OF_CUTS: Final = (
    "decision: full",
    "decision: partial",
    "decision: the first of an assignment",
    "abandoned: forced",
    "abandoned: ratio",
    "cut.committed: applied",
    "cut.reverted: applied",
)

FAULTS: Final = (*OF_PLANS, *OF_FURTHER_TABLES, *_OF_PROCESSES, *_OF_STORES, *_OF_FURTHER_TABLES, *_OF_JOBS)
TRANSITIONS: Final = (
    *RESULTS,
    *_OF_CUTS,
    *(f"void: {code}" for code in VOID),
    *(f"command: {name}" for name in COMMANDS),
    *(f"registration refused: {code}" for code in REFUSALS),
    *(f"region stalled: {code}" for code in FAULTS_OF_REGIONS),
    *(f"phase: {row.cause}" for row in REGION),
    *(f"announced: {kind}" for kind in NotificationType),
)


class Row(NamedTuple):
    """One line of the table."""

    kind: str
    name: str
    times: int


def rows(counted: Mapping[str, int]) -> Iterator[Row]:
    """Yield every fault and transition with its count, which may be 0."""
    for kind, names in (("fault", FAULTS), ("transition", TRANSITIONS)):
        for name in names:
            yield Row(kind, name, counted.get(name, 0))


def rare(counted: Mapping[str, int], enough: int = ENOUGH) -> list[Row]:
    """Return the rows that were hit less often than that."""
    return [row for row in rows(counted) if row.times < enough]


def effects_of_core() -> set[str]:
    """Return the names of all effects of the core."""
    return {kind.__name__ for kind in effects.Effect.__subclasses__()}
