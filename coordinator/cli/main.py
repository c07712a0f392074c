"""The root command."""

from importlib.metadata import PackageNotFoundError, version

import click

from sluicegate.coordinator.cli.accept import accept
from sluicegate.coordinator.cli.check import check
from sluicegate.coordinator.cli.deadletters import dead_letters
from sluicegate.coordinator.cli.demo import demo
from sluicegate.coordinator.cli.group import Commands
from sluicegate.coordinator.cli.orphans import orphans
from sluicegate.coordinator.cli.pause import pause
from sluicegate.coordinator.cli.remove import remove
from sluicegate.coordinator.cli.replay import replay
from sluicegate.coordinator.cli.resume import resume
from sluicegate.coordinator.cli.rewind import rewind
from sluicegate.coordinator.cli.run import run
from sluicegate.coordinator.cli.savepoint import drain, savepoint
from sluicegate.coordinator.cli.servers import servers
from sluicegate.coordinator.cli.simulate import simulate
from sluicegate.coordinator.cli.status import status
from sluicegate.coordinator.cli.takeover import takeover
from sluicegate.coordinator.cli.topics import topics
from sluicegate.coordinator.cli.void import void


def _version() -> str:
    try:
        return version("sluicegate")
    except PackageNotFoundError:
        return "unknown: not installed as a package"


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="sluicegate")
def main() -> None:
    """Commits data-lake tables from events, exactly once."""


_WATCHING = (check, run, servers, simulate, status, topics, demo)
_MENDING = (dead_letters, orphans, replay)
_ORDERS = (accept, drain, pause, remove, resume, rewind, savepoint, takeover, void)
for _command in (*_WATCHING, *_MENDING, *_ORDERS):
    main.add_command(_command)
