"""Services of the demo: Kafka, Valkey and the coordinator, each a process of its own."""

import asyncio
import sys
import threading
from pathlib import Path
from typing import Final

from sluicegate.cli.local.errors import RunFailed
from sluicegate.cli.local.process import ChildProcess
from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey
from sluicegate.cli.local.tables import DemoTable
from sluicegate.kafka.topics import TopicNames, ensure_topics, topic_specs

STREAM: Final = "flights"
TOPICS: Final = TopicNames("demo")

PARTITIONS: Final = 1
_TAIL_LINES: Final = 15
_STOP_SECONDS: Final = 20.0

# A restart after a kill waits until the session of the killed member times out, so it is short.
_SETTINGS: Final = """\
state_record_interval = "10m"

[kafka]
bootstrap_servers = "{bootstrap}"
topic_prefix = "{prefix}"
group_id = "demo"
partitions = {partitions}
session_timeout = "2s"

[redis]
url = "{redis}"
key_prefix = "demo"

[http]
port = 0

[log]
level = "debug"
format = "json"

[streams.{stream}]
format = "{table_format}"
table = "{table}"
{policy}
[streams.{stream}.options]
{options}{listeners}"""


class Servers:
    """Kafka with the topics, and Valkey."""

    def __init__(self, folder: Path) -> None:
        self.kafka = EmbeddedKafka(folder / "kafka")
        self.valkey = EmbeddedValkey(folder / "valkey")

    def start(self) -> None:
        """Start both, and create the topics. Raises EmbeddedError or TopicError."""
        self.valkey.start()
        self.kafka.start()
        asyncio.run(ensure_topics(self.kafka.bootstrap, topic_specs(TOPICS, partitions=PARTITIONS)))

    def stop(self) -> None:
        """Stop both; may be called repeatedly and at any time."""
        try:
            self.kafka.stop()
        finally:
            self.valkey.stop()

    def write_settings(self, path: Path, table: DemoTable, policy: str = "", listeners: str = "") -> None:
        """Write the coordinator's settings file; both servers must have been started.

        `policy` has more lines for the stream's settings, `listeners` the sections of its listeners.
        """
        text = _SETTINGS.format(
            bootstrap=self.kafka.bootstrap,
            prefix=TOPICS.prefix,
            partitions=PARTITIONS,
            redis=self.valkey.url,
            stream=STREAM,
            table_format=table.format,
            table=table.location,
            policy=policy,
            options="".join(f'{name} = "{value}"\n' for name, value in table.options.items()),
            listeners=listeners,
        )
        path.write_text(text, encoding="utf-8")


class Coordinator:
    """Coordinator process that can be killed and started again; each life has its own log."""

    def __init__(self, settings: Path, logs: Path) -> None:
        self.settings = settings
        self._logs = logs
        self._process: ChildProcess | None = None
        self._lock = threading.Lock()
        self._lives = 0

    @property
    def log_file(self) -> Path:
        """Log file of the current life."""
        return self._logs / f"coordinator-{self._lives}.log"

    def start(self) -> None:
        """Start a new life, unless one is running."""
        with self._lock:
            if self._process is None:
                self._start()

    def kill(self) -> Path:
        """End this life with SIGKILL, start the next, and return the log of the ended life.

        Raises:
            RunFailed: it was stopped, or had ended by itself.
        """
        with self._lock:
            if self._process is None:
                raise RunFailed("the coordinator cannot be killed: it has been stopped")
            self._check()
            log = self.log_file
            self._process.kill()
            self._start()
            return log

    def check(self) -> None:
        """Raise RunFailed if the coordinator has ended by itself."""
        with self._lock:
            self._check()

    def stop(self) -> None:
        """Stop the coordinator and wait until it has ended; may be repeated."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                process.end(_STOP_SECONDS)

    def _start(self) -> None:
        self._lives += 1
        # Run the package's command with this interpreter: the command itself may not be on PATH.
        command = [sys.executable, "-c", "from sluicegate.cli.main import main; main()"]
        command += ["run", "--config", str(self.settings)]
        self._process = ChildProcess(command, log_file=self.log_file, cwd=self._logs)

    def _check(self) -> None:
        status = self._process.poll() if self._process is not None else None
        if status is not None:
            tail = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
            raise RunFailed(
                f"the coordinator ended by itself with status {status}; from {self.log_file}:\n"
                + "\n".join(tail)
            )
