"""`sluicegate stream`: orders that concern all regions of a stream."""

import click

from sluicegate.cli.group import LazyCommands


@click.group(
    cls=LazyCommands,
    package="sluicegate.cli",
    places={
        "adopt": "adopt",
        "cancel": "savepoint",
        "drain": "savepoint",
        "forget": "forget",
        "pause": "pausing",
        "recover": "recover",
        "resume": "pausing",
        "savepoint": "savepoint",
        "skip": "skip",
    },
)
def stream() -> None:
    """Pause, resume, adopt, recover or forget a stream, take savepoints, wait for its end, skip a record."""
