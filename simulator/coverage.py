"""What a campaign must have hit: every fault and every transition, by name."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from sluicegate.coordinator.core import effects
from sluicegate.simulator.lineages import REFUSALS
from sluicegate.simulator.node import FATES
from sluicegate.simulator.troubles import TROUBLES
from sluicegate.simulator.watching import WAYS

ENOUGH: Final = 100
"""How often each must be hit in a campaign of full length."""

EFFECTS: Final = (
    "InspectTable",
    "FetchEnd",
    "CheckFiles",
    "AppendPolicy",
    "AppendDecision",
    "AppendAbandoned",
    "AppendVoided",
    "Carry",
    "Ask",
    "Publish",
    "WriteRecord",
    "Announce",
    "WriteView",
    "ReleaseOffsets",
)

OF_PROCESSES: Final = (
    *(f"crash after {name}" for name in EFFECTS if name != "WriteView"),
    *(f"frozen before {name}" for name in EFFECTS if name != "WriteView"),
    "crash",
    "a whole process wakes up",
    "rebalance",
    "rebalanced back and forth",
    "more coordinators",
    "boot from an older record",
    "bodies dropped",
    "body fetched again",
    "time passes",
)
OF_STORES: Final = (
    *(f"{fate}: {kind.__name__}" for fate, kinds in FATES.items() for kind in kinds),
    "foreign commit",
    "foreign commit as our user",
    "another deployment",
    "table out of scope",
    "table mended",
    "table replaced",
    "table put back",
    "table rolled back",
    "snapshots put back",
    "contradiction expired",
    "proof of absence expired",
    "expired snapshots restored",
    "table joins its writers",
    "table joins nobody",
    "history expired",
    "log retained",
    "view wiped",
    "broker's clock wrong",
    "broker's clock right",
    "one wrong append time",
    "newer record",
    "release upgraded",
)
OF_JOBS: Final = (
    *TROUBLES,
    "watermark falls",
    "opened what others have",
    "lost uploads given up",
    "newer location put back",
    "set back to what is committed instead",
    "stalled region rewound",
    "split 1 to 1",
    "split 1 to 2",
    "split 2 to 1",
    "split 2 to 2",
    "contradict what others build on",
    "a region keeps a part of its shards",
    "took over from the region beside it",
    "back to the regions before",
    "built anew on what is committed",
    "replaced by others from the same end",
    "went on from what was to be replaced",
    "started under the next number",
)
OF_OPERATORS: Final = (
    "pause",
    "stall in the log",
    "resume",
    "savepoint",
    "drain",
    "void",
    "remove",
    "policy",
)

RESULTS: Final = (
    "InspectTable -> TableState",
    "InspectTable -> TableUnfit",
    "FetchEnd -> EndOffset",
    "CheckFiles -> FilesChecked",
    "CheckFiles -> TableReplaced",
    "AppendPolicy -> Appended",
    "AppendDecision -> Appended",
    "AppendAbandoned -> Appended",
    "AppendVoided -> Appended",
    "Carry -> Appended",
    "Ask -> Found",
    "Ask -> Absent",
    "Ask -> OtherDigest",
    "Ask -> TableReplaced",
    "Publish -> Published",
    "Publish -> Conflict",
    "Publish -> NotPublished",
    "Publish -> OutcomeUnknown",
    "Publish -> Refused",
    "WriteRecord -> Done",
    "Announce -> Done",
    "WriteView -> Done",
    "ReleaseOffsets -> Done",
)
OF_OPENINGS: Final = (
    "opening: first",
    "opening: restart",
    "opening: rewind",
    "opening: accepted without parents",
    "opening: begun again before anything was committed",
    "opening: accepted behind what was committed since",
    "opening: child of other regions",
    *(f"opening refused: {reason}" for reason in REFUSALS),
)
OF_CHECKPOINTS: Final = (
    "files: arrived",
    "files: late, after the completion",
    "files: duplicate",
    "files: decided or void",
    "files: of no live lineage",
    "completion: won",
    "completion: replayed",
    "completion: names two attempts of a writer",
    "completion: contradicted",
    "completion: contradicted at the ref",
    "completion: decided or void",
    "completion: of no live lineage",
    "carried",
    "lost: region stalls",
    "lost: too late",
)
OF_REGIONS: Final = (
    "region: idle",
    "region: idle, with work undecided",
    "region: awake",
    "region: closed",
    "region: closed before what is in the table",
    "region: left",
    "region: works beyond its end",
    "region: removed",
)
OF_CUTS: Final = (
    "decision: full",
    "decision: partial",
    "decision: forced",
    "decision: final",
    "decision: void by number",
    "decision: void by content",
    "decision: assignment comes into force",
    "decision: savepoint reached",
    "abandonment: valid",
    "abandonment: void",
    "void: taken back",
    "void: repeated",
    "commit: full",
    "commit: partial",
    "commit: void",
    "told: committed",
    "told: partially committed",
    "told: abandoned",
    "told: voided",
    "told: savepoint",
    "told: drained",
    "told: stalled stream",
    "told: stalled region",
    "told: accepted",
    "told: refused",
)

FAULTS: Final = (*OF_PROCESSES, *OF_STORES, *OF_JOBS, *OF_OPERATORS)
TRANSITIONS: Final = (*WAYS, *RESULTS, *OF_OPENINGS, *OF_CHECKPOINTS, *OF_REGIONS, *OF_CUTS)


class Row(NamedTuple):
    """One line of the table."""

    kind: str
    name: str
    times: int


def rows(counted: Mapping[str, int]) -> Iterator[Row]:
    """Every fault and transition with how often it was hit; never is 0."""
    for name in FAULTS:
        yield Row("fault", name, counted.get(name, 0))
    for name in TRANSITIONS:
        yield Row("transition", name, counted.get(name, 0))


def rare(counted: Mapping[str, int], enough: int = ENOUGH) -> list[Row]:
    """What was hit less often than that."""
    return [row for row in rows(counted) if row.times < enough]


def known_effects() -> set[str]:
    """The names of all effects of the core, so that a new one is not forgotten here."""
    return {kind.__name__ for kind in effects.Effect.__args__}
