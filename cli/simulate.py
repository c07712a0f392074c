"""`sluicegate simulate`: run the real core against simulated jobs, stores and faults."""

import json
import os
import time
from collections.abc import Callable

import click

from sluicegate.cli.options import json_option
from sluicegate.coordinator.observe.messages import duration
from sluicegate.simulator.campaign import Campaign, format_failure, run_campaign, summary, table
from sluicegate.simulator.coverage import ENOUGH
from sluicegate.simulator.plan import LENGTH

FULL_LENGTH = 20_000
"""Number of schedules that must reach every required state often enough."""
PATIENCE = 10.0
"""Seconds between two progress lines."""


@click.command()
@click.option(
    "--seeds", type=click.IntRange(min=1), default=200, show_default=True, help="How many schedules."
)
@click.option("--seed", type=click.IntRange(min=0), help="The first seed; by default a fresh one.")
@click.option(
    "--steps", type=click.IntRange(min=1), default=LENGTH, show_default=True, help="Length of a schedule."
)
@json_option
@click.pass_context
def simulate(context: click.Context, seeds: int, seed: int | None, steps: int, as_json: bool) -> None:
    """Run seeded schedules of faults against the core, and check every invariant after every step.

    A schedule that breaks an invariant is shrunk to a short trace. Exit status 1 if there is one.
    """
    first = seed if seed is not None else int.from_bytes(os.urandom(4), "big")
    click.echo(f"seeds {first} to {first + seeds - 1}, {steps} steps each and more until rest", err=True)
    campaign = run_campaign(range(first, first + seeds), steps, _signs_of_life(seeds))
    enough = ENOUGH if seeds >= FULL_LENGTH else 1
    for line in table(campaign, enough):
        click.echo(line, err=as_json)
    for number, failure in campaign.failures.items():
        for line in format_failure(number, steps, failure):
            click.echo(line, err=as_json)
    if as_json:
        click.echo(json.dumps(summary(campaign)))
    else:
        click.echo(_in_short(campaign))
    context.exit(1 if campaign.failing else 0)


def _in_short(campaign: Campaign) -> str:
    failing = f" (seeds {', '.join(map(str, campaign.failing))})" if campaign.failing else ""
    return (
        f"{campaign.schedules} schedules, {campaign.steps} steps, median {campaign.median_steps}, "
        f"{campaign.pace:.0f} steps a second, {len(campaign.failing)} violations{failing}"
    )


def _signs_of_life(seeds: int) -> Callable[[Campaign], None]:
    """Make a callback that prints the progress every PATIENCE seconds."""
    began = said_at = time.monotonic()

    def say(campaign: Campaign) -> None:
        nonlocal said_at
        now, done = time.monotonic(), campaign.schedules
        if now - said_at >= PATIENCE and 0 < done < seeds:
            said_at = now
            left = duration((now - began) * (seeds - done) / done)
            told = f"{len(campaign.failing)} violations so far, about {left} to go"
            click.echo(f"{done} of {seeds} schedules, {told}", err=True)

    return say
