"""`sluicegate check`: is everything there that the service needs?"""

import asyncio
import json
from dataclasses import asdict

import click

from sluicegate.coordinator.cli.checks_kafka import check_kafka
from sluicegate.coordinator.cli.checks_rest import check_redis, check_stream
from sluicegate.coordinator.cli.errors import run_async
from sluicegate.coordinator.cli.finding import Finding
from sluicegate.coordinator.cli.options import config_option, json_option
from sluicegate.coordinator.settings import Settings


@click.command()
@config_option
@click.option("--create", is_flag=True, help="Create the topics that are missing.")
@json_option
@click.pass_context
def check(context: click.Context, settings: Settings, create: bool, as_json: bool) -> None:
    """Check brokers, topics, group, Redis and tables; one line each. Exit status 1 if there is a problem."""
    findings = run_async(settings, _check(settings, create=create))
    if as_json:
        click.echo(json.dumps({"checks": [asdict(finding) for finding in findings]}, indent=2))
    else:
        for finding in findings:
            click.echo(f"{'OK     ' if finding.ok else 'PROBLEM'}  {finding.check}: {finding.detail}")
    context.exit(0 if all(finding.ok for finding in findings) else 1)


async def _check(settings: Settings, *, create: bool) -> list[Finding]:
    streams = asyncio.gather(
        *(asyncio.to_thread(check_stream, name, stream) for name, stream in settings.streams.items())
    )
    kafka = await check_kafka(settings, create=create)
    return [*kafka, await check_redis(settings.redis), *(each for found in await streams for each in found)]
