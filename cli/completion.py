"""`sluicegate completion`: completion of commands and options in a shell."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from sluicegate.coordinator.settings.model import SettingsError, read_file

# Values that a shell completes: streams and regions of the settings file, table formats, folders.
#
# A file that cannot be read completes nothing: an error would break the line that the user types.

SETTINGS_FILE: Final = "sluicegate.settings_file"
"""Key of the path of the settings file in `Context.meta`."""


def _streams(context: click.Context) -> Mapping[str, Any]:
    """Return the sections of the streams in the settings file of a command."""
    path: Path | None = context.meta.get(SETTINGS_FILE)
    try:
        streams = read_file(path).get("streams", {})
    except SettingsError:
        return {}
    return streams if isinstance(streams, Mapping) else {}


def complete_streams(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """Return the streams that begin so."""
    return sorted(name for name in _streams(context) if name.startswith(begun))


def complete_regions(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """Return the regions that begin so, of the given stream or of all, as far as the settings list them."""
    streams, stream = _streams(context), str(context.params.get("stream"))
    sections = [streams[stream]] if stream in streams else [*streams.values()]
    found = {region for each in sections if isinstance(each, Mapping) for region in each.get("regions", [])}
    return sorted(region for region in found if isinstance(region, str) and region.startswith(begun))


def complete_formats(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """Return the table formats that begin so."""
    # Entry points are files of every installed package: no other command waits for the search.
    from sluicegate.lakes.registry import format_names

    return [name for name in format_names() if name.startswith(begun)]


def complete_folders(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Let the shell complete folders of this machine."""
    return [CompletionItem(begun, type="dir")]


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
