"""`sluicegate init` writes a settings file, and `sluicegate run` runs the service with it."""

import json
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from sluicegate.cli.errors import UserError, as_user_errors
from sluicegate.cli.options import (
    DEFAULT_CONFIG,
    KAFKA,
    absolute,
    config_option,
    file_option,
    load_again,
    pairs_option,
    tables_option,
)
from sluicegate.coordinator.observe.logs import configure_logging
from sluicegate.coordinator.settings.model import Settings, SettingsError, validate
from sluicegate.failpoints.points import arm
from sluicegate.lakes.port import TableRefused
from sluicegate.lakes.registry import DEFAULT_FORMAT, adapter, format_names

# `sluicegate init`: write a settings file for one stream.

REDIS: Final = "redis://127.0.0.1:6379/0"
"""Example of an address in the file."""

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")

_FILE: Final = """\
# Settings of Sluicegate: all its commands read this file. docs/service.md explains the keys.
# Every key can come from the environment, which wins: SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS.

[kafka]
bootstrap_servers = {kafka}  # host:port, several with commas
# partitions = 12            # of new topics; the number never changes afterwards
# replication_factor = -1    # of new topics; -1: the brokers choose, and 3 is usual

# Redis holds a view for dashboards. No decision depends on it.
{hash}[redis]
{hash}url = {redis}

# The output of one job into one table. The job gives both names as its options `stream` and `table`.
[streams.{stream}]
table = {table}
{format}{regions}                    # regions that may register; without this key: any
# partial = "allow"          # lagging regions do not hold back the others; without this key: "never"
# alignment_timeout = "10s"  # wait of a due commit for lagging regions
# commit_interval = "1m"     # shortest time between two commits; without this key: commit at once
"""


def _print_schema(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        # Nothing else of this command needs the types of listeners.
        from sluicegate.coordinator.settings.schema import render

        click.echo(render(), nl=False)
        context.exit()


@click.command()
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Only print the JSON Schema of settings files, for editors.",
)
@click.option(
    "--table",
    required=True,
    help="Path or URI of the table. A relative path becomes absolute.",
)
@click.option("--stream", help="Name of the stream. Default: the name of the table.")
@click.option(
    "--format",
    "lake",
    metavar="NAME",
    help=f"Format of the table. Default: {DEFAULT_FORMAT}.",
)
@pairs_option("Option of the format, as often as there are any.")
@click.option(
    "--region", "regions", multiple=True, help="Region that may register; repeat it for more. Default: any."
)
@click.option(
    "--kafka", default=KAFKA, show_default=True, metavar="HOST:PORT", help="Brokers, several with commas."
)
@click.option("--redis", metavar="URL", help="Redis for the view of dashboards. Default: none.")
@file_option(
    "path",
    default=DEFAULT_CONFIG,
    help="The file. Default: the one that the variable SLUICEGATE_CONFIG names, else ./sluicegate.toml.",
)
@click.pass_context
def init(
    context: click.Context,
    table: str,
    stream: str | None,
    lake: str | None,
    options: dict[str, str],
    regions: tuple[str, ...],
    kafka: str,
    redis: str | None,
    path: Path,
) -> None:
    """Write a commented settings file for one stream, and print the next commands.

    An existing file is never changed.
    """
    name = stream or PurePosixPath(urlsplit(table).path).name
    location = absolute(table)
    content = _content(name, location, regions, kafka, redis, lake) + section(name, options)
    _check_table(location, lake, options)
    _write(path, content, name)
    click.echo(f"{path} is written: stream {name}, table {location}, Kafka at {kafka}. Next:")
    named = context.get_parameter_source("path") is ParameterSource.COMMANDLINE
    config = f" --config {shlex.quote(str(path))}" if named else ""
    for command in ("topics create", "check", "run"):
        click.echo(f"  sluicegate {command}{config}")


def _content(
    stream: str, table: str, regions: tuple[str, ...], kafka: str, redis: str | None, lake: str | None
) -> str:
    """Return the text of the file, without options of the format."""
    names = ", ".join(map(quoted, regions))
    return _FILE.format(
        kafka=quoted(kafka),
        hash="# " if redis is None else "",
        redis=quoted(redis or REDIS),
        stream=key(stream),
        format=f"format = {quoted(lake)}\n" if lake is not None else "",
        table=quoted(table),
        regions=f"regions = [{names}]" if regions else '# regions = ["EWR", "JFK"]',
    )


def section(stream: str, options: Mapping[str, str]) -> str:
    """Return the section with the options of the format, empty if there are none."""
    lines = [f"{key(name)} = {quoted(value)}\n" for name, value in options.items()]
    return f"\n[streams.{key(stream)}.options]\n{''.join(lines)}" if lines else ""


def _check_table(location: str, lake: str | None, options: Mapping[str, str]) -> None:
    """Refuse a table that lacks an option of its format, such as a catalog. Raises UserError.

    A format whose package is not installed here is left to `sluicegate check` on the host of the service.
    """
    if lake is not None and lake not in (known := format_names()):
        raise UserError(f"--format: {lake!r} is no table format; this release knows {', '.join(known)}")
    try:
        found = adapter(lake) if lake is not None else None
    except TableRefused:
        return
    try:
        if found is not None:
            found.parse_table(location, options)
    except TableRefused as error:
        raise UserError(f"{error}. Give it with --option NAME=VALUE") from error


def key(name: str) -> str:
    """Format a name as a key of TOML."""
    return name if _BARE_KEY.fullmatch(name) else quoted(name)


def quoted(text: str) -> str:
    """Format a text as a string of TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")


def _write(path: Path, content: str, stream: str) -> None:
    """Write a file that does not exist yet, if the settings in it can be used. Raises UserError."""
    try:
        validate(tomllib.loads(content), {})
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not written: an option is given twice ({error})") from error
    except SettingsError as error:
        raise UserError(f"{path} is not written, as its settings could not be used:{error.listed}") from error
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError as error:
        raise UserError(
            f"{path} exists, and is not changed. Add the section [streams.{stream}] to it: all coordinators "
            "of a group need the same settings. Or name another file with --config, for another group: set "
            "another kafka.group_id and kafka.topic_prefix in it"
        ) from error
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror or error}. Name another file with --config"
        ) from error


@click.command()
@config_option
@tables_option
@click.pass_context
def run(context: click.Context, settings: Settings) -> None:
    """Run the coordinator until SIGTERM or SIGINT; SIGHUP reloads its settings.

    A first try needs no settings file: `sluicegate run --table flights=/lake/flights.db/flights` uses the
    Kafka at 127.0.0.1:9092, or at SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS.
    """
    from sluicegate.coordinator.listeners.facts import refuse_senseless
    from sluicegate.coordinator.service.process import run_process
    from sluicegate.coordinator.service.service import Service
    from sluicegate.coordinator.service.signals import hold_signals

    secrets = set(settings.secrets())
    configure_logging(settings.log, secrets)
    arm(settings.failpoints, settings.failpoints_log)

    def load() -> Settings:
        loaded = refuse_senseless(load_again(context))
        # Keep the secrets of removed streams: their work in progress can still be logged.
        secrets.update(loaded.secrets())
        configure_logging(settings.log, secrets)
        return loaded

    with as_user_errors(settings):
        refuse_senseless(settings, unready=False)
        run_process(Service(settings, load), hold_signals())
