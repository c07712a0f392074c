"""Reports of a campaign, for people and for machines."""

from collections.abc import Iterator

from sluicegate.simulator.campaign import Campaign
from sluicegate.simulator.coverage import Row, rows
from sluicegate.simulator.shrink import Failure


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
    yield f"  again: sluicegate simulate --seed {seed} --seeds 1 --steps {length}"
    yield (
        f"  shrunk to {len(failure.plan.steps)} steps; regions: {setting.regions}, items a shard: "
        f"{setting.items}, coordinators: {setting.coordinators}, partial cuts: {policy.partial}, "
        f"single region: {setting.single_region or 'no'}"
    )
    yield from (f"    {line}" for line in failure.story)
    yield f"    {failure.violation}"
