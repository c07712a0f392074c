"""`sluicegate region`: end a region, or give it a new incarnation."""

import click

from sluicegate.cli.group import LazyCommands


@click.group(
    cls=LazyCommands, package="sluicegate.cli", places={"remove": "region_remove", "reset": "region_reset"}
)
def region() -> None:
    """End a region, or set it back to its committed position."""
