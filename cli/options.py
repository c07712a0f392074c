"""Options that several commands share: the settings file and the stream."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click

import sluicegate
from sluicegate.cli.completion import SETTINGS_FILE, complete_regions, complete_streams
from sluicegate.cli.errors import UserError
from sluicegate.coordinator.settings.model import Settings, SettingsError, parse_seconds, read_file, validate
from sluicegate.events.orders import MOST_ABOUT, MOST_CHARACTERS, MOST_OF_REASON, Order

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_CONFIG: Final = Path("sluicegate.toml")
"""Settings file when the user names none, so that suggested commands work without --config."""

_CONFIG_VARIABLE: Final = "SLUICEGATE_CONFIG"
"""Variable that names the settings file."""

KAFKA: Final = "127.0.0.1:9092"
"""Address of the brokers if none is given: the one of `sluicegate servers`."""

_STREAMS: Final = "sluicegate.streams"
_ANY_STREAMS: Final = "sluicegate.any_streams"
_UNUSED: Final = {"unused": {"table": "/unused"}}
"""Streams of a command that uses the settings of Kafka alone, as settings need one."""


def _load(context: click.Context, _: click.Parameter, path: Path | None) -> Settings:
    if path is None and DEFAULT_CONFIG.is_file():
        path = DEFAULT_CONFIG
    context.meta[SETTINGS_FILE] = path
    try:
        return load_again(context)
    except SettingsError as error:
        lines = "".join(f"\n  {problem}" for problem in error.problems)
        missing = (
            f"no --config given, and there is no ./{DEFAULT_CONFIG} here; "
            "`sluicegate init --table URI --stream NAME` writes one, "
            "also with the table and the name of a `sluicegate run --table NAME=URI`; "
            if path is None and not context.meta.get(_STREAMS)
            else ""
        )
        raise UserError(f"{missing}the settings cannot be used:{lines}") from error


def load_again(context: click.Context) -> Settings:
    """Read the settings of a command, from its file and its options. Raises SettingsError."""
    path, named = context.meta[SETTINGS_FILE], context.meta.get(_STREAMS, {})
    values = read_file(path)
    if path is None and (named or context.meta.get(_ANY_STREAMS)):
        values["kafka"] = {"bootstrap_servers": KAFKA}
    if path is None and context.meta.get(_ANY_STREAMS):
        values["streams"] = dict(_UNUSED)
    streams = values.setdefault("streams", {}) if named else {}
    for name, table in named.items():
        if name in streams:
            raise SettingsError(
                [f"--table: the stream {name} is in {path} already. Leave it out, or change the table there"]
            )
        streams[name] = {"table": table}
    return validate(values, os.environ)


def absolute(table: str) -> str:
    """Return the URI of a table as it is, and its path as an absolute one."""
    return table if urlsplit(table).scheme else os.path.abspath(table)


def parse_tables(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Parse NAME=URI; return the URIs by the names of their streams. Raises BadParameter."""
    found = {}
    for each in given:
        name, equals, table = each.partition("=")
        if not (name and equals and table):
            raise click.BadParameter(f"{each!r} must be NAME=URI, such as flights=/lake/flights.db/flights")
        if name in found:
            raise click.BadParameter(f"the stream {name} is given twice")
        found[name] = absolute(table)
    return found


def _keep_tables(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> None:
    context.meta[_STREAMS] = parse_tables(context, parameter, given)


TABLE_HELP: Final = "Stream and its table, as often as there are any."

tables_option = click.option(
    "--table",
    multiple=True,
    metavar="NAME=URI",
    # The settings are loaded with them.
    is_eager=True,
    expose_value=False,
    callback=_keep_tables,
    help=f"{TABLE_HELP} They are added to those of the settings file, which is not needed then.",
)


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


def _load_kafka(context: click.Context, parameter: click.Parameter, path: Path | None) -> Settings:
    context.meta[_ANY_STREAMS] = True
    settings = _load(context, parameter, path)
    if context.meta[SETTINGS_FILE] is None:
        kafka = settings.kafka
        where = f"Kafka at {kafka.bootstrap_servers}, topics {kafka.topic_prefix}.*"
        click.echo(f"no settings file: {where}", err=True)
    return settings


kafka_config_option = file_option(
    "settings",
    callback=_load_kafka,
    help="TOML file with the settings. Default: the file that the variable SLUICEGATE_CONFIG names, else "
    f"./sluicegate.toml, if it is there, else Kafka at {KAFKA}. Variables SLUICEGATE_SECTION__KEY win over "
    "it, such as SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS and SLUICEGATE_KAFKA__TOPIC_PREFIX.",
)

forged_option = click.option(
    "--forged",
    multiple=True,
    metavar="KEY",
    help="Your statement that records which name this signing key, and cannot be verified, are forged. "
    "`unsigned`: the refused records without a signature.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

stream_option = click.option(
    "--stream", required=True, shell_complete=complete_streams, help="Name of the stream, as in the settings."
)


def region_option(text: str) -> Callable[[F], F]:
    """Return the option `--region` of a command for one region, with its help."""
    return click.option("--region", required=True, shell_complete=complete_regions, help=text)


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


# Options of every order: its sender and its reason, which the log keeps beside the order.

BY_VARIABLE: Final = "SLUICEGATE_BY"
"""Variable that names the sender, for automation."""

_BY: Final = "sluicegate.by"
_REASON: Final = "sluicegate.reason"


def _text(most: int, kept: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Return a callback that keeps a printable text of at most so many characters for `current_order`."""

    def keep(context: click.Context, _: click.Parameter, value: str | None) -> str | None:
        if value is None:
            return None
        if len(value) > most:
            raise click.BadParameter(f"it has {len(value):,} characters, and {most} are allowed")
        if not value.isprintable():
            raise click.BadParameter(
                "control characters, line breaks and invisible marks are not allowed. Give one line of text"
            )
        context.meta[kept] = value
        return value

    return keep


_by_option = click.option(
    "--by",
    metavar="NAME",
    envvar=BY_VARIABLE,
    expose_value=False,
    callback=_text(MOST_CHARACTERS, _BY),
    help="Name of the sender, for `sluicegate audit`. Default: the user of the operating system.",
)


def reason_option(text: str, **how: Any) -> Callable[[F], F]:
    """Return the option `--reason` with this help; `how` as of `click.option`."""
    return click.option("--reason", metavar="TEXT", callback=_text(MOST_OF_REASON, _REASON), help=text, **how)


def by_option(command: F) -> F:
    """Add the option `--by` to an order that has a `--reason` of its own."""
    return _by_option(command)


def order_options(command: F) -> F:
    """Add the options of an order: `--by` and `--reason`."""
    return _by_option(
        reason_option("Reason of the order, for `sluicegate audit`.", expose_value=False)(command)
    )


def current_order(about: str = "") -> Order:
    """Return the claim of the command that runs; `about` has arguments that the order's body lacks."""
    context = click.get_current_context(silent=True)
    meta, names = ({} if context is None else context.meta), list[str]()
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return Order(
        order=_clean(" ".join(names), MOST_CHARACTERS) or "unknown",
        by=meta.get(_BY) or _clean(_user(), MOST_CHARACTERS) or "unknown",
        host=_clean(socket.gethostname(), MOST_CHARACTERS) or "unknown",
        at=time.time_ns() // 1_000_000,
        release=sluicegate.__version__,
        reason=meta.get(_REASON) or "",
        about=_clean(about, MOST_ABOUT),
    )


def _user() -> str:
    """Return the user of the process; after `sudo` also the user who called it."""
    number = os.getuid()
    try:
        import pwd

        name = pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        # A container may run as a number without a name.
        name = f"uid {number}"
    before = os.environ.get("SUDO_USER", "")
    return f"{name} (sudo by {before})" if number == 0 and before else name


def _clean(text: str, most: int) -> str:
    """Return a text of the machine without unprintable characters, cut to a length."""
    return "".join(each for each in text if each.isprintable())[:most]
