"""Groups of commands whose list tells each in a whole sentence."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.exceptions import NoSuchCommand


class Commands(click.Group):
    """A group whose list of commands has no sentence cut with dots."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command; the first sentence of its help stands in the list."""
        cmd.short_help = cmd.short_help or _first_sentence(cmd.help or "")
        super().add_command(cmd, name)


class LazyCommands(Commands):
    """A group that imports a command when it is asked for."""

    def __init__(self, *, package: str, places: Mapping[str, str], **rest: Any) -> None:
        super().__init__(**rest)
        self._package = package
        self._places = places
        """Of each command, by its name: the module that has it, under its name with `_` for `-`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, if there is one of that name."""
        if cmd_name in self._places and cmd_name not in self.commands:
            module = import_module(f"{self._package}.{self._places[cmd_name]}")
            self.add_command(getattr(module, cmd_name.replace("-", "_")), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a slip is answered with the nearest name, imported yet or not."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            raise NoSuchCommand(error.command_name, possibilities=self._places, ctx=ctx) from None


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")
