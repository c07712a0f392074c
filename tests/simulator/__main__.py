"""`make simulate SEEDS=n SEED=n`: run the real core against simulated jobs, stores and faults."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable

from sluicegate.coordinator.observe.messages import duration
from tests.simulator.campaign import Campaign, format_failure, run_campaign, summary, table
from tests.simulator.coverage import ENOUGH
from tests.simulator.plan import LENGTH

FULL_LENGTH = 20_000
"""Number of schedules that must reach every required state often enough."""
PATIENCE = 10.0
"""Seconds between two progress lines."""


def main() -> int:
    """Run seeded schedules of faults against the core, and check every invariant after every step.

    A schedule that breaks an invariant is shrunk to a short trace. Return 1 if there is one.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=main.__doc__)
    parser.add_argument("--seeds", type=_number, default=200, help="number of schedules (200)")
    parser.add_argument("--seed", type=int, help="the first seed; by default a fresh one")
    parser.add_argument("--steps", type=_number, default=LENGTH, help=f"length of a schedule ({LENGTH})")
    parser.add_argument("--json", action="store_true", help="print one line of JSON, and the rest to stderr")
    given = parser.parse_args()
    first = given.seed if given.seed is not None else int.from_bytes(os.urandom(4), "big")
    _say(f"seeds {first} to {first + given.seeds - 1}, {given.steps} steps each and more until rest")
    campaign = run_campaign(range(first, first + given.seeds), given.steps, _progress(given.seeds))
    show = _say if given.json else print
    for line in table(campaign, ENOUGH if given.seeds >= FULL_LENGTH else 1):
        show(line)
    for number, failure in campaign.failures.items():
        for line in format_failure(number, given.steps, failure):
            show(line)
    print(json.dumps(summary(campaign)) if given.json else _in_short(campaign))
    return 1 if campaign.failing else 0


def _number(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("the least is 1")
    return number


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _in_short(campaign: Campaign) -> str:
    failing = f" (seeds {', '.join(map(str, campaign.failing))})" if campaign.failing else ""
    return (
        f"{campaign.schedules} schedules, {campaign.steps} steps, median {campaign.median_steps}, "
        f"{campaign.pace:.0f} steps a second, {len(campaign.failing)} violations{failing}"
    )


def _progress(seeds: int) -> Callable[[Campaign], None]:
    """Make a callback that prints the progress every PATIENCE seconds."""
    began = said_at = time.monotonic()  # time: a line of progress

    def say(campaign: Campaign) -> None:
        nonlocal said_at
        now, done = time.monotonic(), campaign.schedules  # time: a line of progress
        if now - said_at >= PATIENCE and 0 < done < seeds:
            said_at = now
            left = duration((now - began) * (seeds - done) / done)
            told = f"{len(campaign.failing)} violations so far, about {left} to go"
            _say(f"{done} of {seeds} schedules, {told}")

    return say


if __name__ == "__main__":
    sys.exit(main())
