"""`sluicegate servers` and `up`: run Kafka, Valkey and HDFS on this machine, and a coordinator with them.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from sluicegate.cli.coordinators import ask_member
from sluicegate.cli.errors import UserError, as_user_errors
from sluicegate.cli.local.errors import EmbeddedError
from sluicegate.cli.local.process import ChildProcess, port_is_free
from sluicegate.cli.options import TABLE_HELP, pairs_option, parse_tables
from sluicegate.cli.run import key, quoted, section
from sluicegate.cli.terminal import ProgressLine, until_interrupted
from sluicegate.coordinator.settings.model import Settings, SettingsError, StreamSettings, load, validate
from sluicegate.kafka.topics import ensure_topics
from sluicegate.lakes.capabilities import HasLocalCatalog
from sluicegate.lakes.port import TableRefused
from sluicegate.lakes.registry import DEFAULT_FORMAT, adapter

if TYPE_CHECKING:
    from sluicegate.cli.local.servers import EmbeddedHdfs, EmbeddedKafka, EmbeddedServer, EmbeddedValkey


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
@click.option("--hdfs", "with_hdfs", is_flag=True, help="Run HDFS too, with one data node.")
@click.option("--hdfs-port", type=PORT, default=8020, show_default=True, help="Port of its NameNode.")
def servers(folder: Path, kafka_port: int, valkey_port: int, with_hdfs: bool, hdfs_port: int) -> None:
    """Run Kafka and Valkey on this machine until Ctrl-C, and print the settings to use.

    For tests only: one broker, on the loopback interface, without passwords. Valkey does not persist its
    data. With --hdfs, a cluster of HDFS keeps its data in DIR.
    """
    from sluicegate.cli.local.servers import EmbeddedHdfs, EmbeddedKafka, EmbeddedValkey

    log_fetches()
    kafka = EmbeddedKafka(folder / "kafka", kafka_port)
    valkey = EmbeddedValkey(folder / "valkey", valkey_port)
    hdfs = EmbeddedHdfs(folder / "hdfs", hdfs_port) if with_hdfs else None
    used = _ports_of(kafka_port, valkey_port)
    _require_free([*used, _Port(hdfs_port, "--hdfs-port", "HDFS", "")] if with_hdfs else used)
    started: list[EmbeddedServer] = [valkey, kafka, *([hdfs] if hdfs else [])]
    named, each_of = ("Kafka, Valkey and HDFS", "all") if hdfs else ("Kafka and Valkey", "both")
    try:
        with until_interrupted(), ExitStack() as stack:
            click.echo(f"starting {named} in {folder}", err=True)
            for each in started:
                stack.enter_context(each)
            click.echo(_settings(kafka, valkey, hdfs))
            click.echo(f"{each_of} run until Ctrl-C", err=True)
            watched = _Servers(kafka, valkey, hdfs)
            while True:
                watched.check()
                time.sleep(_LOOK)
    except (EmbeddedError, OSError) as error:
        raise UserError(str(error)) from error
    click.echo(f"{each_of} have ended", err=True)


def _settings(kafka: "EmbeddedKafka", valkey: "EmbeddedValkey", hdfs: "EmbeddedHdfs | None") -> str:
    tables = f"\n\n# Locations of tables begin with {hdfs.uri}/" if hdfs is not None else ""
    return f'[kafka]\nbootstrap_servers = "{kafka.bootstrap}"\n\n[redis]\nurl = "{valkey.url}"{tables}'


class _Fetches(logging.Handler):
    """Prints how far a download is: in place on a terminal, and else when it begins."""

    def __init__(self) -> None:
        super().__init__()
        self._line = ProgressLine()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if not getattr(record, "passing", False):
            self._line.note(text)
        elif text.endswith(" 100%"):
            self._line.clear()
        else:
            self._line.show(text)


def log_fetches() -> None:
    """Print what the embedded servers log: the first start downloads Kafka, which takes a while."""
    log = logging.getLogger("sluicegate.cli.local")
    log.setLevel(logging.INFO)
    log.handlers = [_Fetches()]


class _Servers:
    """Kafka, Valkey and perhaps HDFS while they run."""

    def __init__(
        self, kafka: "EmbeddedKafka", valkey: "EmbeddedValkey", hdfs: "EmbeddedHdfs | None" = None
    ) -> None:
        self._needed: list[EmbeddedServer] = [kafka, *([hdfs] if hdfs else [])]
        self._valkey = valkey
        self._noted = False

    def check(self) -> None:
        """Raise UserError if a server has ended by itself; print it once of Valkey, which has only a view."""
        for each in self._needed:
            if not each.running:
                raise UserError(f"{each.name} has ended by itself; see {each.log_file}")
        if not self._valkey.running and not self._noted:
            self._noted = True
            click.echo(
                f"Valkey has ended by itself; see {self._valkey.log_file}. Commits continue, since it has "
                "only the view for dashboards. To have that again, end this command and start it again",
                err=True,
            )


_PORTS: Final = (
    ("--kafka-port", "Kafka", "kafka.bootstrap_servers"),
    ("--valkey-port", "Valkey", "redis.url"),
    ("--http-port", "the coordinator", "http.port"),
)
"""Options of ports, with their servers and settings."""


class _Port(NamedTuple):
    """Port of one server."""

    number: int
    option: str
    server: str
    setting: str


def _ports_of(*numbers: int) -> list[_Port]:
    """Return the ports of Kafka, Valkey and the coordinator, as many as are given."""
    return [_Port(number, *names) for number, names in zip(numbers, _PORTS, strict=False)]


def _require_free(ports: Sequence[_Port], path: Path | None = None) -> None:
    """Raise UserError with all ports that other programs use; `path`: they are in this file."""
    used = [each for each in ports if not port_is_free(each.number)]
    if used:
        named = ", ".join(f"port {each.number} for {each.server}" for each in used)
        way_out = (
            f"choose another port with {' and '.join(each.option for each in used)}"
            if path is None
            else f"change {' and '.join(each.setting for each in used)} in {path}"
        )
        raise UserError(f"already in use: {named}. End what uses it, or {way_out}")


# `sluicegate up`: servers and a coordinator on this machine, in one command.

_OF_GROUPS: Final = "iceberg"
"""Format of tables that can be changed together."""
_GRACE: Final = 30.0
"""Seconds in which the coordinator ends in order."""
_HOST: Final = "127.0.0.1"
_PROGRAM: Final = "from sluicegate.cli.main import main; main()"
_RELOADS: Final = ("settings reloaded", "settings not reloaded", "settings that only a restart takes over")
"""Events of the coordinator's log that answer a SIGHUP."""


@click.command()
@folder_option
@click.option("--table", "tables", multiple=True, metavar="NAME=URI", callback=parse_tables, help=TABLE_HELP)
@click.option(
    "--stream",
    help="Let each --table name a table of this one stream, which changes them together. The first one is "
    "its anchor. Each name in the catalog is the end of its URI, NAMESPACE/TABLE.",
)
@click.option(
    "--format",
    "lake",
    default=None,
    help=f"Format of the tables.  [default: {DEFAULT_FORMAT}; with --stream: {_OF_GROUPS}]",
)
@pairs_option(
    "Option of the format, for each table. A format that needs a catalog has one in DIR by default."
)
@click.option("--kafka-port", type=PORT, default=9092, show_default=True, help="Port of Kafka.")
@click.option("--valkey-port", type=PORT, default=6379, show_default=True, help="Port of Valkey.")
@click.option("--http-port", type=PORT, default=8080, show_default=True, help="Port of the coordinator.")
def up(
    folder: Path,
    tables: dict[str, str],
    stream: str | None,
    lake: str | None,
    options: dict[str, str],
    **ports: int,
) -> None:
    """Run Kafka, Valkey and a coordinator on this machine until Ctrl-C, to try it with tables of your own.

    The first start writes DIR/sluicegate.toml for the tables, and creates the topics. Later starts use that
    file, and need no option but the directory; a new --table is added to it as a stream of its own. SIGHUP
    reloads the settings. For tests only: one broker, on the loopback interface, without passwords.
    """
    from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey

    path = folder.absolute() / "sluicegate.toml"
    wanted = _Tables(tables, lake or DEFAULT_FORMAT, options)
    if stream is not None:
        wanted = _of_one_stream(stream, tables, lake or _OF_GROUPS, options)
    settings, text = _prepare(path, wanted, (ports["kafka_port"], ports["valkey_port"], ports["http_port"]))
    kafka_port, valkey_port = _ports(settings, path)
    used = _ports_of(kafka_port, valkey_port, settings.http.port)
    _refuse_other_ports(path, used, ports)
    _require_free(used, path if path.exists() else None)
    if text is not None:
        _write(path, text)
    log_fetches()
    try:
        with until_interrupted(), ExitStack() as stack:
            click.echo(f"starting Kafka and Valkey in {folder}", err=True)
            valkey = stack.enter_context(EmbeddedValkey(folder / "valkey", valkey_port))
            servers = _Servers(stack.enter_context(EmbeddedKafka(folder / "kafka", kafka_port)), valkey)
            with as_user_errors(settings):
                asyncio.run(ensure_topics(settings.kafka.bootstrap_servers, settings.kafka.topic_specs()))
            coordinator = _Coordinator(path, folder.absolute() / "coordinator.log")
            stack.callback(coordinator.process.end, _GRACE)
            stack.enter_context(_reloading(coordinator.process))
            told = False
            while True:
                servers.check()
                coordinator.check()
                told = told or _tell_ready(path, settings, coordinator.log)
                time.sleep(_LOOK)
    except (EmbeddedError, OSError) as error:
        raise UserError(str(error)) from error
    click.echo("all have ended", err=True)


class _Tables(NamedTuple):
    """Tables of the command line, by the names of their streams."""

    locations: dict[str, str]
    format: str
    options: dict[str, str]
    further: Mapping[str, str] = MappingProxyType({})
    """By name, the further tables of the only stream, as the catalog names them."""

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
            if name not in streams:
                continue
            further, other = _further_of(streams[name]), streams[name].table != table
            if self.further.items() - further.items() or (other and further):
                raise UserError(
                    f"{path} exists, and its stream {name} has other further tables. Change "
                    f"[streams.{key(name)}.tables] there and send SIGHUP, or leave out --stream and --table"
                )
            if other:
                raise UserError(
                    f"{path} exists, and its stream {name} has the table {streams[name].table}. Name another "
                    f"stream for the table {table}, or leave out --table"
                )
        return self._replace(locations={k: v for k, v in self.locations.items() if k not in streams})


def _further_of(settings: StreamSettings) -> dict[str, str]:
    return {name: each.identifier for name, each in settings.tables.items()}


def _of_one_stream(stream: str, tables: dict[str, str], lake: str, options: dict[str, str]) -> _Tables:
    """Return the tables of one stream, the first one as its anchor. Raises UserError."""
    if not tables:
        return _Tables({}, lake, options)
    if lake != _OF_GROUPS:
        raise UserError(
            f"--stream: tables of the format {lake} cannot be changed together. Use Iceberg, or leave out "
            "--stream: each table has a stream of its own then"
        )
    if "identifier" in options:
        raise UserError(
            "--option identifier: with --stream, the name of each table in the catalog is the end of its "
            "URI, NAMESPACE/TABLE. Leave the option out"
        )
    from sluicegate.lakes.iceberg.catalog import identifier_of

    anchor, *others = tables
    try:
        further = {
            name: str(identifier_of(adapter(lake).parse_table(tables[name], {**options, "uri": "-"})))
            for name in others
        }
    except TableRefused as error:
        raise UserError(str(error)) from error
    return _Tables({stream: tables[anchor]}, lake, options, further)


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
        raise UserError(f"the settings in {path} cannot be used:{error.listed}") from error
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
        + _section_of(name, tables.further)
        + section(name, tables.options)
        for name, table in tables.locations.items()
    )


def _section_of(stream: str, further: Mapping[str, str]) -> str:
    """Return the section of the further tables of a stream, empty if there are none."""
    lines = [f"{key(name)} = {quoted(identifier)}\n" for name, identifier in further.items()]
    return f"\n[streams.{key(stream)}.tables]\n{''.join(lines)}" if lines else ""


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


def _refuse_other_ports(path: Path, used: Sequence[_Port], given: dict[str, int]) -> None:
    """Raise UserError if an option contradicts the file of settings."""
    context = click.get_current_context()
    for each in used:
        name = each.option.removeprefix("--").replace("-", "_")
        wanted = given[name]
        if wanted != each.number and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise UserError(
                f"{path} exists, and has port {each.number} for {each.server}. Change {each.setting} there "
                f"to use port {wanted}, or leave out {each.option}"
            )


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


class _Coordinator:
    """The coordinator as a child process, and what its log has of reloads and of its end."""

    def __init__(self, path: Path, log: Path) -> None:
        """Start it with this interpreter: the command may not be on the PATH."""
        self.log = log
        self._read = log.stat().st_size if log.exists() else 0
        """Bytes of the log that are read already."""
        self._last = ""
        command = [sys.executable, "-c", _PROGRAM, "run", "--config", str(path)]
        # The child begins with the signal blocked, and has it when it can reload: the default would end it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        try:
            self.process = ChildProcess(command, log_file=log, cwd=path.parent)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})

    def check(self) -> None:
        """Print the lines of a reload. Raises UserError if the process has ended by itself."""
        status = self.process.poll()
        for line in self._new_lines():
            self._last = line
            if any(event in line for event in _RELOADS):
                click.echo(line, err=True)
        if status is None:
            return
        if status < 0:
            how = f"was killed by signal {-status} ({signal.Signals(-status).name})"
            raise UserError(f"the coordinator {how}; its log is {self.log}")
        raise UserError(
            f"the coordinator has ended by itself with status {status}; see {self.log}: {self._last}"
        )

    def _new_lines(self) -> list[str]:
        """Return the whole lines that the log has got since the last call."""
        with self.log.open("rb") as log:
            log.seek(self._read)
            whole = log.read().rpartition(b"\n")[0]
        self._read += len(whole) + 1 if whole else 0
        return whole.decode(errors="replace").splitlines()


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
