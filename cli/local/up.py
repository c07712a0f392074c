"""`sluicegate servers` and `up`: run Kafka and Valkey on this machine, and a coordinator with them.

Both are for a try without containers. The servers are imported when they run: their clients are heavy.
"""

import asyncio
import logging
import os
import shlex
import signal
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from sluicegate.cli.coordinators import ask_member
from sluicegate.cli.errors import UserError, as_user_errors
from sluicegate.cli.local.errors import EmbeddedError
from sluicegate.cli.local.process import ChildProcess, port_is_free
from sluicegate.cli.options import TABLE_HELP, parse_pairs, parse_tables
from sluicegate.cli.run import key, quoted, section
from sluicegate.cli.terminal import until_interrupted
from sluicegate.coordinator.settings.model import Settings, SettingsError, load, validate
from sluicegate.kafka.topics import ensure_topics
from sluicegate.lakes.capabilities import HasLocalCatalog
from sluicegate.lakes.port import TableRefused
from sluicegate.lakes.registry import DEFAULT_FORMAT, adapter

if TYPE_CHECKING:
    from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey


_LOOK: Final = 0.5
"""Seconds between two checks that both servers run."""

PORT: Final = click.IntRange(1, 65_535)


folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Where Kafka's data, settings and logs are kept; the next start goes on with them.",
)


@click.command()
@folder_option
@click.option("--kafka-port", type=PORT, default=9092, show_default=True, help="Port of Kafka.")
@click.option("--valkey-port", type=PORT, default=6379, show_default=True, help="Port of Valkey.")
def servers(folder: Path, kafka_port: int, valkey_port: int) -> None:
    """Run Kafka and Valkey on this machine until Ctrl-C, and print the settings to use.

    For tests only: one broker, on the loopback interface, without passwords. Valkey does not persist its
    data.
    """
    from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey

    log_fetches()
    kafka = EmbeddedKafka(folder / "kafka", kafka_port)
    valkey = EmbeddedValkey(folder / "valkey", valkey_port)
    try:
        with until_interrupted():
            click.echo(f"starting Kafka and Valkey in {folder}", err=True)
            with valkey, kafka:
                click.echo(_settings(kafka, valkey))
                click.echo("both run until Ctrl-C", err=True)
                while True:
                    require_running(kafka, valkey)
                    time.sleep(_LOOK)
    except (EmbeddedError, OSError) as error:
        raise UserError(str(error)) from error
    click.echo("both have ended", err=True)


def _settings(kafka: "EmbeddedKafka", valkey: "EmbeddedValkey") -> str:
    return f'[kafka]\nbootstrap_servers = "{kafka.bootstrap}"\n\n[redis]\nurl = "{valkey.url}"'


def log_fetches() -> None:
    """Print what the embedded package logs: the first start downloads Kafka, which takes a while."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("sluicegate.cli.local").setLevel(logging.INFO)


def require_running(*servers: "EmbeddedKafka | EmbeddedValkey") -> None:
    """Raise UserError if one of the servers has ended by itself."""
    for server in servers:
        if not server.running:
            raise UserError(f"{server.name} has ended by itself; see {server.log_file}")


# `sluicegate up`: servers and a coordinator on this machine, in one command.

_GRACE: Final = 30.0
"""Seconds in which the coordinator ends in order."""
_HOST: Final = "127.0.0.1"
_PORTS: Final = (
    ("kafka_port", "Kafka", "kafka.bootstrap_servers"),
    ("valkey_port", "Valkey", "redis.url"),
    ("http_port", "the coordinator", "http.port"),
)
"""Options of ports, with their servers and settings."""
_PROGRAM: Final = "from sluicegate.cli.main import main; main()"


@click.command()
@folder_option
@click.option("--table", "tables", multiple=True, metavar="NAME=URI", callback=parse_tables, help=TABLE_HELP)
@click.option(
    "--format",
    "lake",
    default=DEFAULT_FORMAT,
    show_default=True,
    help="Format of the tables.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=parse_pairs,
    help="Option of the format, for each table. A format that needs a catalog has one in DIR by default.",
)
@click.option("--kafka-port", type=PORT, default=9092, show_default=True, help="Port of Kafka.")
@click.option("--valkey-port", type=PORT, default=6379, show_default=True, help="Port of Valkey.")
@click.option("--http-port", type=PORT, default=8080, show_default=True, help="Port of the coordinator.")
def up(folder: Path, tables: dict[str, str], lake: str, options: dict[str, str], **ports: int) -> None:
    """Run Kafka, Valkey and a coordinator on this machine until Ctrl-C, to try it with tables of your own.

    The first start writes DIR/sluicegate.toml for the tables, and creates the topics. Later starts use that
    file, and need no option but the directory; a new --table is added to it. SIGHUP reloads the settings. For
    tests only: one broker, on the loopback interface, without passwords.
    """
    from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey

    path = folder.absolute() / "sluicegate.toml"
    wanted = _Tables(tables, lake, options)
    settings, text = _prepare(path, wanted, (ports["kafka_port"], ports["valkey_port"], ports["http_port"]))
    kafka_port, valkey_port = _ports(settings, path)
    _require_ports(path, ports, (kafka_port, valkey_port, settings.http.port))
    if text is not None:
        _write(path, text)
    log_fetches()
    try:
        with until_interrupted(), ExitStack() as stack:
            click.echo(f"starting Kafka and Valkey in {folder}", err=True)
            servers = (
                stack.enter_context(EmbeddedValkey(folder / "valkey", valkey_port)),
                stack.enter_context(EmbeddedKafka(folder / "kafka", kafka_port)),
            )
            with as_user_errors(settings):
                asyncio.run(ensure_topics(settings.kafka.bootstrap_servers, settings.kafka.topic_specs()))
            log = folder.absolute() / "coordinator.log"
            coordinator = _start(path, log)
            stack.callback(coordinator.end, _GRACE)
            stack.enter_context(_reloading(coordinator))
            told = False
            while True:
                require_running(*servers)
                _require_coordinator(coordinator, log)
                told = told or _tell_ready(path, settings, log)
                time.sleep(_LOOK)
    except (EmbeddedError, OSError) as error:
        raise UserError(str(error)) from error
    click.echo("all have ended", err=True)


class _Tables(NamedTuple):
    """Tables of the command line, by the names of their streams."""

    locations: dict[str, str]
    format: str
    options: dict[str, str]

    def completed(self, folder: Path) -> "_Tables":
        """Return them with a catalog in the folder if the format needs one. Raises TableRefused."""
        found, options = adapter(self.format), self.options
        if isinstance(found, HasLocalCatalog):
            options = found.with_local_catalog(options, folder)
        for location in self.locations.values():
            found.parse_table(location, options)
        return self._replace(options=options)

    def without(self, settings: Settings | None, path: Path) -> "_Tables":
        """Return those whose streams the settings lack. Raises UserError if one has another table there."""
        streams = settings.streams if settings is not None else {}
        for name, table in self.locations.items():
            if name in streams and streams[name].table != table:
                raise UserError(
                    f"{path} exists, and its stream {name} has the table {streams[name].table}. Name another "
                    f"stream for the table {table}, or leave out --table"
                )
        return self._replace(locations={k: v for k, v in self.locations.items() if k not in streams})


def _prepare(path: Path, tables: _Tables, ports: tuple[int, int, int]) -> tuple[Settings, str | None]:
    """Return the settings, and the text of their file if that has to be written. Raises UserError."""
    try:
        settings, text = None, _file(ports)
        if path.exists():
            settings, text = load(path, {}), path.read_text(encoding="utf-8")
        elif not tables.locations:
            raise UserError(
                f"{path} does not exist yet: name a stream and its table, such as "
                "--table flights=/lake/flights.db/flights"
            )
        new = tables.without(settings, path)
        if not new.locations and settings is not None:
            return settings, None
        text += _sections(new.completed(path.parent))
        return validate(tomllib.loads(text), {}), text
    except SettingsError as error:
        lines = "".join(f"\n  {problem}" for problem in error.problems)
        raise UserError(f"the settings in {path} cannot be used:{lines}") from error
    except TableRefused as error:
        raise UserError(str(error)) from error


def _write(path: Path, text: str) -> None:
    """Write the file of settings. Raises UserError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}. Name another --dir") from error


def _file(ports: tuple[int, int, int]) -> str:
    """Return the text of a settings file, without streams."""
    kafka, valkey, http = ports
    lines = [
        "# For a try on one machine; docs/service.md has the keys.",
        f'[kafka]\nbootstrap_servers = "{_HOST}:{kafka}"\n',
        f'[redis]\nurl = "redis://{_HOST}:{valkey}/0"\n',
        f"[http]\nport = {http}\n",
    ]
    return "\n".join(lines)


def _sections(tables: _Tables) -> str:
    """Return the sections of the streams of these tables."""
    return "".join(
        f"\n[streams.{key(name)}]\ntable = {quoted(table)}\nformat = {quoted(tables.format)}\n"
        + section(name, tables.options)
        for name, table in tables.locations.items()
    )


def _ports(settings: Settings, path: Path) -> tuple[int, int]:
    """Return the ports of Kafka and Valkey in the settings. Raises UserError if they are elsewhere."""
    kafka = settings.kafka.bootstrap_servers.partition(":")
    redis = urlsplit(settings.redis.url.get_secret_value() if settings.redis is not None else "")
    if kafka[0] != _HOST or redis.hostname != _HOST or not kafka[2].isdigit() or redis.port is None:
        raise UserError(
            f"{path} does not name Kafka and Redis at {_HOST}, which this command runs. Use other servers "
            "with `sluicegate run` and that file"
        )
    return int(kafka[2]), redis.port


def _require_ports(path: Path, given: dict[str, int], used: tuple[int, int, int]) -> None:
    """Raise UserError if an option contradicts the file, or if a port is taken."""
    context = click.get_current_context()
    for (name, server, setting), port in zip(_PORTS, used, strict=True):
        wanted, option = given[name], f"--{name.replace('_', '-')}"
        if wanted != port and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise UserError(
                f"{path} exists, and has port {port} for {server}. Change {setting} there to use "
                f"port {wanted}, or leave out {option}"
            )
        if not port_is_free(port):
            way_out = f"change {setting} in {path}" if path.exists() else f"choose another port with {option}"
            raise UserError(f"port {port} for {server} is already in use. End its program, or {way_out}")


@contextmanager
def _reloading(coordinator: ChildProcess) -> Iterator[None]:
    """Pass SIGHUP on to the coordinator. The SIGHUP of a terminal that was closed ends all in order."""
    terminal = os.isatty(0)

    def take(*_: object) -> None:
        if terminal and not os.isatty(0):
            raise KeyboardInterrupt
        coordinator.send(signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, take)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _start(path: Path, log: Path) -> ChildProcess:
    """Start a coordinator with this interpreter: the command may not be on the PATH."""
    command = [sys.executable, "-c", _PROGRAM, "run", "--config", str(path)]
    # The child begins with the signal blocked, and has it when it can reload: the default would end it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        return ChildProcess(command, log_file=log, cwd=path.parent)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def _require_coordinator(coordinator: ChildProcess, log: Path) -> None:
    """Raise UserError if the coordinator has ended by itself."""
    if coordinator.poll() is not None:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
        raise UserError(f"the coordinator has ended by itself; see {log}: {' '.join(last)}")


def _tell_ready(path: Path, settings: Settings, log: Path) -> bool:
    """Print how to reach the coordinator when it answers; return True then."""
    if asyncio.run(ask_member(settings)) is None:
        return False
    click.echo(f"export SLUICEGATE_CONFIG={shlex.quote(str(path))}")
    click.echo(
        f"Kafka is at {settings.kafka.bootstrap_servers}, and the page of the coordinator at "
        f"http://{_HOST}:{settings.http.port}/; its log is {log}. All run until Ctrl-C. In another "
        "shell, use the line above, and `sluicegate status`",
        err=True,
    )
    return True
