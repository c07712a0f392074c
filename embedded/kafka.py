"""A Kafka broker and controller in one child process."""

import base64
import hashlib
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from sluicegate.embedded.cache import cache_dir
from sluicegate.embedded.errors import StartError
from sluicegate.embedded.jars import kafka_jars
from sluicegate.embedded.java import Java, find_java
from sluicegate.embedded.kafka_probe import cluster_id
from sluicegate.embedded.ports import LOOPBACK, free_port
from sluicegate.embedded.process import ChildProcess
from sluicegate.embedded.server import EmbeddedServer
from sluicegate.embedded.settings import EMBEDDED_BROKER_SETTINGS, SHARED_BROKER_SETTINGS

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
    start_seconds: ClassVar[float] = 600.0
    stop_seconds: ClassVar[float] = 120.0
    poll_seconds: ClassVar[float] = 0.05

    def __init__(
        self,
        data_dir: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        listeners: Sequence[str] = (),
        scram: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir, port)
        self._settings = dict(settings or {})
        self._listeners = tuple(listeners)
        self._scram = tuple(scram)
        self._cluster_id = ""
        self._archive: _ClassArchive | None = None

    @property
    def bootstrap(self) -> str:
        """Bootstrap address for clients, `host:port`."""
        return f"{LOOPBACK}:{self.port}"

    def _prepare(self) -> Sequence[str]:
        java = find_java()
        jars = kafka_jars(java)
        self._archive = _ClassArchive(java, jars, self.data_dir / "classes.jsa")
        properties = self._write_properties()
        base = [str(java.executable), *_JVM_OPTIONS]
        class_path = ["-cp", os.pathsep.join(str(jar) for jar in jars)]
        # The storage is formatted only once: its cluster id must stay the same across restarts.
        self._cluster_id = _stored_cluster_id(self._log_dir) or self._format(
            [*base, *self._archive.use(), *class_path], properties
        )
        return [*base, *self._archive.use_or_record(), *class_path, "kafka.Kafka", str(properties)]

    def _ready(self, pid: int) -> bool:
        # Another broker may serve on this port; the cluster id identifies this one.
        return cluster_id(LOOPBACK, self.port) == self._cluster_id

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

    def _format(self, java_command: Sequence[str], properties: Path) -> str:
        identity = _new_cluster_id()
        tool = [
            "kafka.tools.StorageTool",
            "format",
            "--ignore-formatted",
            "-t",
            identity,
            "-c",
            str(properties),
        ]
        for user in self._scram:
            tool += ["--add-scram", user]
        log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        process = ChildProcess([*java_command, *tool], log_file=self.log_file, cwd=self.data_dir)
        try:
            status = process.wait(_FORMAT_SECONDS)
        except TimeoutError as error:
            raise StartError(
                f"Kafka's storage was not formatted: {error}; {self._log_tail(log_start)}"
            ) from error
        finally:
            process.kill()
        if status != 0:
            raise StartError(f"Kafka's storage was not formatted; {self._log_tail(log_start)}")
        return identity


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


def _stored_cluster_id(log_dir: Path) -> str | None:
    try:
        lines = (log_dir / "meta.properties").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    return next((line.removeprefix("cluster.id=") for line in lines if line.startswith("cluster.id=")), None)


def _new_cluster_id() -> str:
    """Return an id in Kafka's form: a random UUID in URL-safe base64.

    It does not begin with `-`, because a command-line tool would parse it as an option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _escaped(value: str) -> str:
    """Escape a value for a Java properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
