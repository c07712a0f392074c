"""The root command."""

from importlib.metadata import PackageNotFoundError, version

import click

from sluicegate.coordinator.cli.accept import accept
from sluicegate.coordinator.cli.check import check
from sluicegate.coordinator.cli.demo import demo
from sluicegate.coordinator.cli.resume import resume
from sluicegate.coordinator.cli.run import run
from sluicegate.coordinator.cli.status import status
from sluicegate.coordinator.cli.topics import topics


def _version() -> str:
    try:
        return version("sluicegate")
    except PackageNotFoundError:
        return "unknown: not installed as a package"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="sluicegate")
def main() -> None:
    """Commits data-lake tables from events, exactly once."""


for _command in (accept, check, demo, resume, run, status, topics):
    main.add_command(_command)
