"""Campaigns: many schedules in a row, with the sum of their coverage, and the failing ones shrunk.

The end of the file formats a report for people and for machines.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median_low
from typing import Final

from tests.simulator.coverage import Row, rows
from tests.simulator.plan import LENGTH, draw_plan
from tests.simulator.schedule import attempt
from tests.simulator.shrink import Failure, shrink

MOST_SHRUNK: Final = 3


@dataclass
class Campaign:
    """The sum of some schedules."""

    schedules: int = 0
    lengths: list[int] = field(default_factory=list)
    coverage: Counter[str] = field(default_factory=Counter)
    failing: dict[int, str] = field(default_factory=dict)
    """By seed, the invariant that broke."""
    failures: dict[int, Failure] = field(default_factory=dict)
    """By seed, the first failing ones, shrunk."""
    seconds: float = 0.0
    """Of processor time, without shrinking."""

    @property
    def steps(self) -> int:
        """Return the steps of all schedules."""
        return sum(self.lengths)

    @property
    def median_steps(self) -> int:
        """Return the median length of a schedule, in steps."""
        return median_low(self.lengths) if self.lengths else 0

    @property
    def pace(self) -> float:
        """Return the steps a second of processor time."""
        return self.steps / self.seconds if self.seconds else 0.0

    def add(self, other: "Campaign") -> None:
        """Add the schedules of another campaign."""
        self.schedules += other.schedules
        self.lengths += other.lengths
        self.coverage.update(other.coverage)
        self.failing |= other.failing
        self.failures |= other.failures
        self.seconds += other.seconds


def run_campaign(
    seeds: range,
    length: int = LENGTH,
    progress: Callable[[Campaign], None] = lambda campaign: None,
    shrunk: int = MOST_SHRUNK,
) -> Campaign:
    """Run the schedules of these seeds; shrink the first `shrunk` ones that fail."""
    campaign = Campaign()
    for seed in seeds:
        plan = draw_plan(seed, length)
        began = time.process_time()
        schedule, violation = attempt(plan)
        campaign.seconds += time.process_time() - began
        campaign.schedules += 1
        campaign.lengths.append(schedule.steps)
        campaign.coverage.update(schedule.world.coverage)
        if violation is not None:
            campaign.failing[seed] = violation.invariant
            if len(campaign.failures) < shrunk:
                campaign.failures[seed] = shrink(plan, violation, attempt)
        progress(campaign)
    return campaign


# --- report ---------------------------------------------------------------------------------------


def summary(campaign: Campaign) -> dict[str, object]:
    """Return the numbers, as in the last line of `simulate --json`."""
    return {
        "schedules": campaign.schedules,
        "steps": campaign.steps,
        "violations": len(campaign.failing),
        "coverage": {f"{row.kind}: {row.name}": row.times for row in rows(campaign.coverage)},
        "median_steps": campaign.median_steps,
        "steps_per_second": round(campaign.pace),
        "failing_seeds": campaign.failing,
    }


def table(campaign: Campaign, enough: int) -> Iterator[str]:
    """Yield the count of every fault and every transition; the rare ones are marked."""
    for kind in ("fault", "transition"):
        found = [row for row in rows(campaign.coverage) if row.kind == kind]
        width = max(len(row.name) for row in found)
        yield f"{kind}s"
        yield from (_line(row, width, enough) for row in found)


def _line(row: Row, width: int, enough: int) -> str:
    return f"  {row.name:<{width}} {row.times:>10}{'' if row.times >= enough else '  rare'}"


def format_failure(seed: int, length: int, failure: Failure) -> Iterator[str]:
    """Yield the violation, the command that repeats it, and the shrunk story."""
    setting, policy = failure.plan.setting, failure.plan.setting.machine.policy
    yield f"seed {seed}: {failure.violation}"
    yield f"  again: make simulate SEED={seed} SEEDS=1 STEPS={length}"
    yield (
        f"  shrunk to {len(failure.plan.steps)} steps; regions: {setting.regions}, items a shard: "
        f"{setting.items}, coordinators: {setting.coordinators}, partial cuts: {policy.partial}, "
        f"fixed buckets: {'yes' if setting.fixed_buckets else 'no'}"
    )
    yield from (f"    {line}" for line in failure.story)
    yield f"    {failure.violation}"
