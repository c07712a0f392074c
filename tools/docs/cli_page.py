"""The reference page of the commands, from the commands themselves."""

import re
from collections.abc import Iterator
from typing import Final

import click

from sluicegate.cli.main import main
from tools.docs.markdown import cell

NAME: Final = "sluicegate"
HEADING: Final = """\
# Commands, all options

[Operations](../operations.md) explains the tasks. Every command has `--help`. The completion of commands
and options in bash is `eval "$(_SLUICEGATE_COMPLETE=bash_source sluicegate)"`, and likewise in zsh and fish.

| exit status | meaning |
|---|---|
| 0 | success |
| 1 | a difference was found, there is no outcome yet, or Ctrl-C; an order that was given stays in force |
| 2 | the command could not be done; the message has the reason and the way out |

A command with `--json` prints data alone on stdout. Progress and messages go to stderr.
"""


def render() -> str:
    """Return the page."""
    context = click.Context(main, info_name=NAME)
    return HEADING + "".join(_commands(main, context))


def _commands(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the sections of a command and of those below it."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _commands(below, click.Context(below, context, info_name=name))
        return
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"\n## {context.command_path}\n\n```text\nUsage: {context.command_path} {usage}\n```\n\n"
    yield "\n\n".join(_paragraphs(command.help or "")) + "\n"
    rows = list(_options(command, context))
    if rows:
        yield "\n| option | default | meaning |\n|---|---|---|\n" + "".join(rows)


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help; those that keep their lines become blocks."""
    for paragraph in re.split(r"\n\s*\n", text.strip().partition("\f")[0]):
        if paragraph.startswith("\b\n"):
            yield f"```text\n{paragraph[2:]}\n```"
        else:
            yield " ".join(paragraph.split()).replace("<", "&lt;")


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the rows of the options and arguments of a command."""
    for parameter in command.get_params(context):
        if not isinstance(parameter, click.Option) or parameter.hidden or "--help" in parameter.opts:
            continue
        plain = parameter.is_flag or parameter.count
        value = "" if plain else f" {parameter.make_metavar(context).removesuffix(' RANGE')}"
        names = ", ".join(f"`{name}{value}`" for name in (*parameter.opts, *parameter.secondary_opts))
        yield f"| {cell(names)} | {_default(parameter)} | {cell(parameter.help or '')} |\n"


def _default(option: click.Option) -> str:
    """Return the default of an option as a user gives it."""
    if option.required:
        return "required"
    shown = option.show_default
    if isinstance(shown, str):
        return cell(shown)
    return f"`{option.default}`" if shown and option.default is not None else ""
