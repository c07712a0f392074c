"""`sluicegate up`: servers and a coordinator on this machine, in one command."""

import asyncio
import shlex
import sys
import time
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

import click

from sluicegate.cli.completing import complete_formats
from sluicegate.cli.errors import UserError, as_user_errors
from sluicegate.cli.init import key, parse_options, quoted, section
from sluicegate.cli.interrupting import until_interrupted
from sluicegate.cli.live import ask_member
from sluicegate.cli.options import TABLE_HELP, parse_tables
from sluicegate.cli.servers import PORT, folder_option, log_fetches, require_running
from sluicegate.coordinator.settings.model import Settings, SettingsError, load, validate
from sluicegate.kafka.topics import ensure_topics
from sluicegate.lakes.local_catalog import HasLocalCatalog
from sluicegate.lakes.port import TableRefused
from sluicegate.lakes.registry import DEFAULT_FORMAT, adapter

if TYPE_CHECKING:
    from sluicegate.embedded.process import ChildProcess

_LOOK: Final = 0.5
"""Seconds between two looks at the processes."""
_GRACE: Final = 30.0
"""Seconds in which the coordinator ends in order."""
_HOST: Final = "127.0.0.1"
_PROGRAM: Final = "from sluicegate.cli import main; main()"


@click.command()
@folder_option
@click.option("--table", "tables", multiple=True, metavar="NAME=URI", callback=parse_tables, help=TABLE_HELP)
@click.option(
    "--format",
    "lake",
    shell_complete=complete_formats,
    default=DEFAULT_FORMAT,
    show_default=True,
    help="Format of the tables.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of the format, for each table. A format that needs a catalog has one in DIR by default.",
)
@click.option("--kafka-port", type=PORT, default=9092, show_default=True, help="Port of Kafka.")
@click.option("--valkey-port", type=PORT, default=6379, show_default=True, help="Port of Valkey.")
@click.option("--http-port", type=PORT, default=8080, show_default=True, help="Port of the coordinator.")
def up(folder: Path, tables: dict[str, str], lake: str, options: tuple[str, ...], **ports: int) -> None:
    """Run Kafka, Valkey and a coordinator on this machine until Ctrl-C, to try it with tables of your own.

    The first start writes DIR/sluicegate.toml for the tables, and creates the topics. Later starts use that
    file, and need no option but the directory. For tests only: one broker, on the loopback interface, without
    passwords.
    """
    from sluicegate.embedded import EmbeddedError, EmbeddedKafka, EmbeddedValkey

    path = folder.absolute() / "sluicegate.toml"
    wanted = _Tables(tables, lake, parse_options(options))
    settings = _prepare(path, wanted, (ports["kafka_port"], ports["valkey_port"], ports["http_port"]))
    kafka_port, valkey_port = _ports(settings, path)
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


def _prepare(path: Path, tables: _Tables, ports: tuple[int, int, int]) -> Settings:
    """Return the settings, written if the file does not exist. Raises UserError."""
    try:
        if not path.exists():
            if not tables.locations:
                raise UserError(
                    f"{path} does not exist yet: name a stream and its table, such as "
                    "--table flights=/lake/flights.db/flights"
                )
            text = _file(tables.completed(path.parent), ports)
            settings = validate(tomllib.loads(text), {})
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return settings
        settings = load(path, {})
    except SettingsError as error:
        lines = "".join(f"\n  {problem}" for problem in error.problems)
        raise UserError(f"the settings in {path} cannot be used:{lines}") from error
    except TableRefused as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}. Name another --dir") from error
    for name, table in tables.locations.items():
        if name not in settings.streams or settings.streams[name].table != table:
            verb = "Change" if name in settings.streams else "Add"
            raise UserError(
                f"{path} exists, and does not have the stream {name} with the table {table}. {verb} the "
                f"section [streams.{key(name)}] there, with the key table, and leave out --table"
            )
    return settings


def _file(tables: _Tables, ports: tuple[int, int, int]) -> str:
    """Return the text of a settings file."""
    kafka, valkey, http = ports
    lines = [
        "# For a try on one machine; docs/service.md has the keys.",
        f'[kafka]\nbootstrap_servers = "{_HOST}:{kafka}"\n',
        f'[redis]\nurl = "redis://{_HOST}:{valkey}/0"\n',
        f"[http]\nport = {http}\n",
    ]
    for name, table in tables.locations.items():
        lines.append(f"[streams.{key(name)}]\ntable = {quoted(table)}\nformat = {quoted(tables.format)}")
        lines.append(section(name, tables.options))
    return "\n".join(lines)


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


def _start(path: Path, log: Path) -> "ChildProcess":
    """Start a coordinator with this interpreter: the command may not be on the PATH."""
    from sluicegate.embedded.process import ChildProcess

    command = [sys.executable, "-c", _PROGRAM, "run", "--config", str(path)]
    return ChildProcess(command, log_file=log, cwd=path.parent)


def _require_coordinator(coordinator: "ChildProcess", log: Path) -> None:
    """Raise UserError if the coordinator has ended by itself."""
    if coordinator.poll() is not None:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
        raise UserError(f"the coordinator has ended by itself; see {log}: {' '.join(last)}")


def _tell_ready(path: Path, settings: Settings, log: Path) -> bool:
    """Print how to reach the coordinator when it answers; return True then."""
    if asyncio.run(ask_member(settings)) is None:
        return False
    _tell(path, settings, log)
    return True


def _tell(path: Path, settings: Settings, log: Path) -> None:
    click.echo(f"export SLUICEGATE_CONFIG={shlex.quote(str(path))}")
    click.echo(
        f"Kafka is at {settings.kafka.bootstrap_servers}, and the page of the coordinator at "
        f"http://{_HOST}:{settings.http.port}/; its log is {log}. All run until Ctrl-C. In another "
        "shell, use the line above, and `sluicegate status`",
        err=True,
    )
