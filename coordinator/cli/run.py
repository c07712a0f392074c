"""`sluicegate run`: the service."""

import sys

import click

from sluicegate.coordinator.cli.errors import as_user_errors
from sluicegate.coordinator.cli.options import config_option
from sluicegate.coordinator.logs import configure_logging
from sluicegate.coordinator.settings import Settings
from sluicegate.events.failpoints import arm


@click.command()
@config_option
def run(settings: Settings) -> None:
    """Run the coordinator until it is told to stop (SIGTERM or SIGINT)."""
    from sluicegate.coordinator.shell.service import run_service

    configure_logging(settings.log, settings.secrets())
    arm(settings.failpoints, settings.failpoints_log)
    with as_user_errors(settings):
        status = run_service(settings)
    sys.exit(status)
