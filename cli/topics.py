"""`sluicegate topics`: create the topics."""

import click

from sluicegate.cli.errors import run_async
from sluicegate.cli.group import Commands
from sluicegate.cli.kafka import security
from sluicegate.cli.options import kafka_config_option
from sluicegate.coordinator.settings.model import Settings
from sluicegate.kafka.topics import TopicProblem, ensure_topics, verify_topics


@click.group(cls=Commands)
def topics() -> None:
    """Create and verify the topics."""


@topics.command()
@kafka_config_option
@click.pass_context
def create(context: click.Context, settings: Settings) -> None:
    """Create the topics that are missing; existing topics are verified, never altered.

    No stream is needed, and so no settings file, for a coordinator that `sluicegate run --table` starts.
    """
    created, problems = run_async(settings, _create(settings))
    for spec in settings.kafka.topic_specs():
        click.echo(f"{'created' if spec.name in created else 'exists '}  {spec.name}")
    for problem in problems:
        click.echo(f"{'WARNING' if problem.warning else 'PROBLEM'}  {problem}")
    context.exit(0 if all(problem.warning for problem in problems) else 1)


async def _create(settings: Settings) -> tuple[list[str], list[TopicProblem]]:
    where = (settings.kafka.bootstrap_servers, settings.kafka.topic_specs(), security(settings))
    created = await ensure_topics(*where)
    return created, await verify_topics(*where)
