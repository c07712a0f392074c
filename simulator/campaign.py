"""Campaigns: many schedules in a row, with the sum of their coverage, and the failing ones shrunk."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median_low
from typing import Final

from sluicegate.simulator.plan import LENGTH, draw_plan
from sluicegate.simulator.shrink import Failure, attempt, shrink

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
                campaign.failures[seed] = shrink(plan, violation)
        progress(campaign)
    return campaign
