"""Options that several commands share: the settings file and the stream."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from sluicegate.cli.errors import UserError
from sluicegate.coordinator.settings.model import Settings, SettingsError, load
from sluicegate.coordinator.settings.units import parse_seconds

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_CONFIG: Final = Path("sluicegate.toml")
"""Settings file when the user names none, so that suggested commands work without --config."""

_CONFIG_VARIABLE: Final = "SLUICEGATE_CONFIG"
"""Variable that names the settings file."""

_PATH: Final = "sluicegate.settings_file"


def _load(context: click.Context, _: click.Parameter, path: Path | None) -> Settings:
    if path is None and DEFAULT_CONFIG.is_file():
        path = DEFAULT_CONFIG
    context.meta[_PATH] = path
    try:
        return load(path, os.environ)
    except SettingsError as error:
        lines = "".join(f"\n  {problem}" for problem in error.problems)
        missing = (
            f"no --config given, and there is no ./{DEFAULT_CONFIG} here; `sluicegate init` writes one; "
            if path is None
            else ""
        )
        raise UserError(f"{missing}the settings cannot be used:{lines}") from error


def load_again(context: click.Context) -> Settings:
    """Read the settings of a command again, from the same file. Raises SettingsError."""
    return load(context.meta[_PATH], os.environ)


def file_option(name: str, **how: Any) -> Callable[[F], F]:
    """Return the option `--config` for a parameter of this name; `how` as of `click.option`."""
    path = click.Path(dir_okay=False, path_type=Path)
    return click.option("--config", name, type=path, envvar=_CONFIG_VARIABLE, metavar="FILE", **how)


config_option = file_option(
    "settings",
    callback=_load,
    help="TOML file with the settings. Default: the file that the variable SLUICEGATE_CONFIG names, else "
    "./sluicegate.toml, if it is there. Variables SLUICEGATE_SECTION__KEY win over it.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

stream_option = click.option("--stream", required=True, help="Name of the stream, as in the settings.")


def parse_timeout(_: click.Context, __: click.Parameter, value: str) -> float:
    """Parse a duration of an option: a number of seconds, or a number with a unit. Raises BadParameter."""
    try:
        return parse_seconds(float(value) if value.replace(".", "", 1).isdigit() else value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def require_stream(settings: Settings, stream: str) -> None:
    """Refuse a stream that is not in the settings. Raises UserError."""
    if stream not in settings.streams:
        known = ", ".join(sorted(settings.streams))
        raise UserError(f"stream {stream} is not configured; configured are: {known}")
