"""Settings of a schedule: the size of the job, its source, and the settings of the coordinators."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from sluicegate.coordinator.core.effects import MachineSettings
from sluicegate.events.models import StreamPolicy
from tests.doubles.memory_lake import MarkerKind
from tests.simulator.dice import Dice

FRESH_REGIONS: Final = 64
"""Number of names for regions of later assignments."""
FURTHER: Final = ("items", "taxes", "fees", "notes")
"""Names of further tables."""
_MARKERS: Final[tuple[MarkerKind, ...]] = ("none", "none", "property", "state")
Need = Literal["", "lagging", "idle", "old heads", "commits"]
"""Situations: regions fall back; regions are idle and silent; table and log part; there are many commits."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything about a schedule that is fixed before its first step."""

    regions: int
    coordinators: int
    items: int
    """Items of each shard."""
    machine: MachineSettings
    late_data: bool = False
    """Some batches have a lower watermark than the one before."""
    silent: int | None = None
    """The region that states no watermark."""
    bounded: bool = True
    """Regions close when they have read everything; else they are idle then."""
    slow_uploads: bool = False
    """Most files arrive long after the completion that names them."""
    fixed_buckets: bool = False
    """The table makes all regions one failure domain, so every cut is full."""
    running: bool = False
    """The first cut is committed before the first step."""
    markers: MarkerKind = "none"
    """Marker that the table has of the newest commit."""
    gaps: bool = False
    """The positions of the table's snapshots have gaps."""
    carries: bool = False
    """Most completions carry their files."""
    tables: int = 0
    """Further tables; 0: a stream of one table."""
    late_table: bool = False
    """The settings lack the last one at first."""
    atomic: bool = True
    """The catalog changes several tables in one step; else it applies them one after the other."""
    states_tables: bool = False
    """Registrations name the further tables that the query writes to."""


def draw_setting(dice: Dice) -> Setting:
    """Return a random setting."""
    regions = dice.pick((1, 2, 2, 3, 3, 4))
    return Setting(
        regions=regions,
        coordinators=dice.pick((1, 1, 2, 2, 3)),
        items=dice.between(3, 20),
        machine=_draw_machine(dice),
        late_data=dice.chance(0.4),
        silent=dice.below(regions) if dice.chance(0.15) else None,
        bounded=dice.chance(0.6),
        slow_uploads=dice.chance(0.2),
        fixed_buckets=dice.chance(0.15),
        running=dice.chance(0.8),
        markers=dice.pick(_MARKERS),
        gaps=dice.chance(0.3),
        carries=dice.chance(0.3),
    )


def with_tables(setting: Setting, dice: Dice) -> Setting:
    """Return the setting with further tables; about half of all streams have some."""
    if dice.chance(0.5):
        return setting
    return replace(
        setting,
        tables=dice.between(1, len(FURTHER)),
        late_table=dice.chance(0.3),
        atomic=dice.chance(0.6),
        states_tables=dice.chance(0.5),
    )


def suit(setting: Setting, need: Need, dice: Dice) -> Setting:
    """Return a setting in which the situation that a theme needs comes up."""
    machine = setting.machine
    match need:
        case "lagging":
            ratio = dice.pick((1.0, 0.5, 0.34, 0.34))
            policy = machine.policy.model_copy(update={"partial": "allow", "max_failure_ratio": ratio})
            machine = replace(machine, policy=policy, alignment_timeout=dice.pick((100, 400)))
            regions = dice.between(3, 4)
            return replace(setting, regions=regions, silent=None, fixed_buckets=False, machine=machine)
        case "idle":
            machine = replace(machine, silence=1_000)
            return replace(setting, bounded=False, items=dice.between(2, 5), machine=machine)
        case "old heads":
            machine = replace(machine, head_interval=300_000, stall_pause=100)
            return replace(setting, coordinators=1, machine=machine)
        case "commits":
            return replace(setting, items=20, machine=replace(machine, commit_interval=0))
    return setting


def _draw_machine(dice: Dice) -> MachineSettings:
    policy = StreamPolicy(
        number=0,
        partial="allow" if dice.chance(0.8) else "never",
        max_consecutive_fallbacks=dice.pick((1, 1, 2, 3)),
        max_failure_ratio=dice.pick((1.0, 1.0, 0.5, 0.34)),
        regions=_names() if dice.chance(0.2) else (),
        allowed_locations=("memory://",),
    )
    stall_pause = dice.pick((100, 1_000, 15_000))
    return MachineSettings(
        policy,
        commit_interval=dice.pick((0, 0, 0, 500, 5_000)),
        commit_max_files=dice.pick((None, None, 3)),
        record_interval=dice.pick((500, 20_000)),
        head_interval=dice.pick((2_000, 300_000)),
        stall_pause=stall_pause,
        overdue_after=stall_pause,
        silence=dice.pick((1_000, 60_000)),
        alignment_timeout=dice.pick((100, 100, 400, 1_500, 10_000)),
    )


def _names() -> tuple[str, ...]:
    """Return the names of all regions that a schedule may have, without those of stray queries."""
    return tuple(f"r{number}" for number in range(4)) + tuple(
        f"x{number}" for number in range(1, FRESH_REGIONS + 1)
    )


def simpler(setting: Setting) -> Iterator[Setting]:
    """Yield settings that differ from one in a single way, and are simpler."""
    plain = MachineSettings(setting.machine.policy)
    for changed in (
        replace(setting, coordinators=1),
        replace(setting, coordinators=max(1, setting.coordinators - 1)),
        replace(setting, regions=max(1, setting.regions - 1), silent=None),
        replace(setting, items=2),
        replace(setting, items=max(1, setting.items // 2)),
        replace(setting, late_data=False),
        replace(setting, silent=None),
        replace(setting, bounded=True),
        replace(setting, slow_uploads=False),
        replace(setting, fixed_buckets=False),
        replace(setting, running=False),
        replace(setting, markers="none"),
        replace(setting, gaps=False),
        replace(setting, carries=False),
        replace(setting, tables=0),
        replace(setting, tables=max(0, setting.tables - 1)),
        replace(setting, late_table=False),
        replace(setting, atomic=True),
        replace(setting, states_tables=False),
        replace(setting, machine=plain),
        replace(setting, machine=replace(setting.machine, commit_interval=0, commit_max_files=None)),
    ):
        if changed != setting:
            yield changed
