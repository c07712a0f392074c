"""Root command. A command is imported on its first use: no command waits for the packages of another."""

from typing import Final

import click

from sluicegate.cli.group import LazyCommands

_WATCHING: Final = {
    name: name for name in ("check", "run", "servers", "simulate", "status", "topics", "demo")
}
_MENDING: Final = {"dead-letters": "deadletters", "orphans": "orphans", "replay": "replay"}
_ORDERS: Final = {
    "accept": "accept",
    "drain": "savepoint",
    "pause": "pause",
    "remove": "remove",
    "resume": "resume",
    "rewind": "rewind",
    "savepoint": "savepoint",
    "takeover": "takeover",
    "void": "void",
}


def _tell_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version and exit."""
    if not wanted or context.resilient_parsing:
        return
    # Finding the version is slow, and no other command needs it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("sluicegate")
    except PackageNotFoundError:
        found = "unknown: not installed as a package"
    click.echo(f"sluicegate, version {found}")
    context.exit()


@click.group(
    cls=LazyCommands,
    package="sluicegate.cli",
    places={**_WATCHING, **_MENDING, **_ORDERS},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_tell_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Commit data-lake tables from events, exactly once."""
