"""Root command and groups. A command is imported on its first use: none waits for the packages of another."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import click
from click.exceptions import NoSuchCommand

import sluicegate
from sluicegate.coordinator.service.signals import hold_signals


class Commands(click.Group):
    """Command group that lists each command with a whole sentence; click itself truncates long ones."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command. The list shows the first sentence of its help."""
        cmd.short_help = cmd.short_help or _first_sentence(cmd.help or "")
        super().add_command(cmd, name)


class LazyCommands(Commands):
    """Command group that imports a command on its first use, beside those that are added to it.

    One command then does not need the packages, or the import time, of another.
    """

    def __init__(self, *, package: str, places: Mapping[str, str], **rest: Any) -> None:
        super().__init__(**rest)
        self._package = package
        self._places = places
        """Module of each command, by command name. The function has the same name, with `_` for `-`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, imported or not."""
        return sorted({*self._places, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported on its first use; None if there is no such command."""
        if cmd_name in self._places and cmd_name not in self.commands:
            module = import_module(f"{self._package}.{self._places[cmd_name]}")
            self.add_command(getattr(module, cmd_name.replace("-", "_")), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the arguments.

        An unknown name raises NoSuchCommand with the nearest names, of commands not yet imported too.
        """
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            raise NoSuchCommand(error.command_name, possibilities=self.list_commands(ctx), ctx=ctx) from None


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")


COMMANDS: Final = {
    "assignment": "region",
    "audit": "history",
    "check": "check",
    "commit": "commit",
    "conformance": "writers",
    "dead-letters": "deadletters",
    "demo": "local.demo",
    "history": "history",
    "init": "run",
    "orphans": "orphans",
    "region": "region",
    "replay": "replay",
    "run": "run",
    "servers": "local.up",
    "status": "status",
    "stream": "stream",
    "topics": "kafka",
    "up": "local.up",
    "uploads": "writers",
    "wait": "wait",
}
"""Module of each command."""


class _Root(LazyCommands):
    """Root group: it holds signals before a command is imported that must not lose one."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> Any:
        """Run a command; its arguments are those of the process by default."""
        given = sys.argv[1:] if args is None else args
        if given[:1] == ["run"]:
            # A signal must not meet the default handlers while the command is imported.
            hold_signals()
        return super().main(args, *rest, **named)


@click.group(
    cls=_Root,
    package="sluicegate.cli",
    places=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(sluicegate.__version__, prog_name="sluicegate")
def main() -> None:
    """Commit data-lake tables from events, exactly once."""
