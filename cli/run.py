"""`sluicegate run`: run the service."""

import click

from sluicegate.cli.errors import as_user_errors
from sluicegate.cli.options import config_option, load_again, tables_option
from sluicegate.coordinator.observe.logs import configure_logging
from sluicegate.coordinator.settings.model import Settings
from sluicegate.failpoints.points import arm


@click.command()
@config_option
@tables_option
@click.pass_context
def run(context: click.Context, settings: Settings) -> None:
    """Run the coordinator until SIGTERM or SIGINT; SIGHUP reloads its settings.

    A first try needs no settings file: `sluicegate run --table flights=/lake/flights.db/flights` uses the
    Kafka at 127.0.0.1:9092, or at SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS.
    """
    from sluicegate.coordinator.listeners.facts import refuse_senseless
    from sluicegate.coordinator.service.process import run_process
    from sluicegate.coordinator.service.service import Service
    from sluicegate.coordinator.service.signals import hold_signals

    secrets = set(settings.secrets())
    configure_logging(settings.log, secrets)
    arm(settings.failpoints, settings.failpoints_log)

    def load() -> Settings:
        loaded = refuse_senseless(load_again(context))
        # Keep the secrets of removed streams: their work in progress can still be logged.
        secrets.update(loaded.secrets())
        configure_logging(settings.log, secrets)
        return loaded

    with as_user_errors(settings):
        refuse_senseless(settings, unready=False)
        run_process(Service(settings, load), hold_signals())
