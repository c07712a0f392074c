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
    },
)
def stream() -> None:
    """Pause and resume a stream, take savepoints of it, wait for its end, adopt, recover or forget it."""
