"""Options that several commands share: the settings file and the stream."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

import click

import sluicegate
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

_FILE: Final = "sluicegate.settings_file"
_STREAMS: Final = "sluicegate.streams"
_ANY_STREAMS: Final = "sluicegate.any_streams"
_UNUSED: Final = {"unused": {"table": "/unused"}}
"""Streams of a command that uses the settings of Kafka alone, as settings need one."""


def _load(context: click.Context, _: click.Parameter, path: Path | None) -> Settings:
    if path is None and DEFAULT_CONFIG.is_file():
        path = DEFAULT_CONFIG
    context.meta[_FILE] = path
    try:
        return load_again(context)
    except SettingsError as error:
        missing = (
            f"no --config given, and there is no ./{DEFAULT_CONFIG} here; "
            "`sluicegate init --table URI --stream NAME` writes one, "
            "also with the table and the name of a `sluicegate run --table NAME=URI`; "
            if path is None and not context.meta.get(_STREAMS)
            else ""
        )
        raise UserError(f"{missing}the settings cannot be used:{error.listed}") from error


def load_again(context: click.Context) -> Settings:
    """Read the settings of a command, from its file and its options. Raises SettingsError."""
    path, named = context.meta[_FILE], context.meta.get(_STREAMS, {})
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


def parse_pairs(_: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Parse NAME=VALUE, given several times; return the values by name. Raises BadParameter."""
    found: dict[str, str] = {}
    for each in given:
        name, _equals, value = each.partition("=")
        if not (name and value):
            raise click.BadParameter(f"{each!r} does not have the form {option.metavar}")
        if name in found:
            raise click.BadParameter(f"{name} is given twice")
        found[name] = value
    return found


def pairs_option(help: str) -> Callable[[F], F]:
    """Return the option `--option NAME=VALUE` with this help; its values are in the parameter `options`."""
    return click.option(
        "--option", "options", multiple=True, metavar="NAME=VALUE", callback=parse_pairs, help=help
    )


def parse_tables(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Parse NAME=URI; return the URIs by the names of their streams. Raises BadParameter."""
    return {name: absolute(table) for name, table in parse_pairs(context, option, given).items()}


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
    if context.meta[_FILE] is None:
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

any_stream_option = click.option("--stream", required=True, help="Name of the stream.")


def stream_options(command: F) -> F:
    """Add the options of a command for one stream of the settings: `--config` and `--stream`."""

    @wraps(command)
    def checked(*args: Any, settings: Settings, stream: str, **more: Any) -> Any:
        require_stream(settings, stream)
        return command(*args, settings=settings, stream=stream, **more)

    return config_option(any_stream_option(cast("F", checked)))


def order_options(command: F) -> F:
    """Add the options of an order to one stream of the settings: `stream_options` and `sender_options`."""
    return stream_options(sender_options(command))


def region_option(text: str) -> Callable[[F], F]:
    """Return the option `--region` of a command for one region, with its help."""
    return click.option("--region", required=True, help=text)


def print_result(values: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print the result of a command: its values as JSON, or its lines."""
    if as_json:
        click.echo(json.dumps(values, indent=2))
        return
    for line in lines:
        click.echo(line)


def parse_timeout(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Parse a duration of an option: a number of seconds, or a number with a unit. Raises BadParameter."""
    if value is None:
        return None
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


def _text(most: int, kept: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    """Return a callback that keeps a printable text of at most so many characters for `current_order`."""

    def keep(context: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is None:
            return
        if len(value) > most:
            raise click.BadParameter(f"it has {len(value):,} characters, and {most} are allowed")
        if not value.isprintable():
            raise click.BadParameter(
                "control characters, line breaks and invisible marks are not allowed. Give one line of text"
            )
        context.meta[kept] = value

    return keep


def sender_options(command: F) -> F:
    """Add the options of an order: its sender and its reason, which `current_order` has."""
    by = click.option(
        "--by",
        metavar="NAME",
        envvar=BY_VARIABLE,
        expose_value=False,
        callback=_text(MOST_CHARACTERS, _BY),
        help="Name of the sender, for `sluicegate audit`. Default: the user of the operating system.",
    )
    reason = click.option(
        "--reason",
        metavar="TEXT",
        expose_value=False,
        callback=_text(MOST_OF_REASON, _REASON),
        help="Reason of the order, for `sluicegate audit`.",
    )
    return by(reason(command))


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
