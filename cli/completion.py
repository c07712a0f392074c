"""`sluicegate completion`: completion of commands and options in a shell."""

from collections.abc import Mapping
from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

_NAME: Final = "sluicegate"
_SHELLS: Final[Mapping[str, type[ShellComplete]]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, and names of streams in a shell.

    In bash: `eval "$(sluicegate completion bash)"`, and likewise in zsh. In fish: `sluicegate completion fish
    | source`.
    """
    variable = f"_{_NAME.upper()}_COMPLETE"
    click.echo(_SHELLS[shell](context.find_root().command, {}, _NAME, variable).source())
