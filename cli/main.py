"""Root command. A command is imported on its first use: no command waits for the packages of another."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from click.exceptions import NoSuchCommand

import sluicegate
from sluicegate.cli.group import LazyCommands
from sluicegate.coordinator.service.signals import hold_signals

COMMANDS: Final = {
    "assignment": "assignment",
    "audit": "audit",
    "check": "check",
    "commit": "commit",
    "completion": "completion",
    "conformance": "conformance",
    "dead-letters": "deadletters",
    "demo": "demo",
    "history": "history",
    "init": "init",
    "orphans": "orphans",
    "region": "region",
    "replay": "replay",
    "run": "run",
    "servers": "servers",
    "simulate": "simulate",
    "status": "status",
    "stream": "stream",
    "topics": "topics",
    "up": "up",
    "uploads": "uploads",
    "wait": "wait",
}
"""Module of each command."""

RENAMED: Final = {
    "accept": "region reset",
    "drain": "stream drain",
    "pause": "stream pause",
    "remove": "region remove",
    "resume": "stream resume",
    "rewind": "region reset",
    "savepoint": "stream savepoint",
    "void": "commit revert",
}
"""By command of older releases, the command that replaces it."""


class _Root(LazyCommands):
    """Root group. A command of an older release is refused with the name of its replacement."""

    def __init__(self, *, renamed: Mapping[str, str], **rest: Any) -> None:
        super().__init__(**rest)
        self._renamed = renamed

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> Any:
        """Run a command; its arguments are those of the process by default."""
        given = sys.argv[1:] if args is None else args
        if given[:1] == ["run"]:
            # A signal must not meet the default handlers while the command is imported.
            hold_signals()
        return super().main(args, *rest, **named)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            if error.command_name not in self._renamed:
                raise
            new = f"sluicegate {self._renamed[error.command_name]}"
            raise click.UsageError(
                f"the command {error.command_name} of older releases does not exist any more. Use "
                f"`{new}`; its options are different, see: {new} --help",
                ctx=ctx,
            ) from None


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version and exit."""
    if not wanted or context.resilient_parsing:
        return
    click.echo(f"sluicegate, version {sluicegate.__version__}")
    context.exit()


@click.group(
    cls=_Root,
    package="sluicegate.cli",
    places=COMMANDS,
    renamed=RENAMED,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Commit data-lake tables from events, exactly once."""
