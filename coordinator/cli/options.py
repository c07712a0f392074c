"""What several commands share: reading the settings, and choosing a stream."""

import os
from pathlib import Path

import click

from sluicegate.coordinator.cli.errors import UserError
from sluicegate.coordinator.settings import Settings, SettingsError, load


def _load(_: click.Context, __: click.Parameter, path: Path | None) -> Settings:
    try:
        return load(path, os.environ)
    except SettingsError as error:
        lines = "".join(f"\n  {problem}" for problem in error.problems)
        raise UserError(f"the settings cannot be used:{lines}") from error


config_option = click.option(
    "--config",
    "settings",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="SLUICEGATE_CONFIG",
    callback=_load,
    metavar="FILE",
    help="TOML file with the settings; variables SLUICEGATE_SECTION__KEY win over it.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

stream_option = click.option("--stream", required=True, help="Name of the stream, as in the settings.")


def require_stream(settings: Settings, stream: str) -> None:
    """Refuse a stream that the settings do not name. Raises UserError."""
    if stream not in settings.streams:
        known = ", ".join(sorted(settings.streams))
        raise UserError(f"stream {stream} is not configured; configured are: {known}")
