"""A Spark cluster of processes: a master, two workers with addresses of their own, and their executors.

Two addresses of the loopback are two hosts to Spark, which never speculates on the host of the first try.
"""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from sluicegate.cli.local.jars import find_java
from sluicegate.cli.local.process import ChildProcess, free_port
from tests.integration.waiting import wait_until

HOSTS: Final = ("127.0.0.1", "127.0.0.2")
_HOME: Final = Path(pyspark.__file__).parent
_SCALA: Final = "2.13"
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"

CLUSTERED: Final = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # The tasks of a dead executor are tried again.
    "spark.task.maxFailures": "20",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.2",
}
"""Settings of a session on this cluster."""


class SparkCluster:
    """Master and workers, for as long as the block; their executors come and go with applications."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        # What Spark's own scripts would set, which need a shell of their own.
        spark = {"SPARK_HOME": str(_HOME), "SPARK_SCALA_VERSION": _SCALA}
        self._environment = {**os.environ, **environment, **spark}
        self.url = f"spark://{HOSTS[0]}:{free_port()}"
        self._processes: list[ChildProcess] = []
        self._logs: list[Path] = []

    def __enter__(self) -> Self:
        # A worker asks again until the master listens.
        host, _, port = self.url.removeprefix("spark://").partition(":")
        try:
            self._launch("master.Master", "master", "--host", host, "--port", port)
            for number, each in enumerate(HOSTS):
                work = str(self.folder / f"work-{number}")
                wanted = ("--host", each, "--cores", "1", "--memory", "600m", "--work-dir", work)
                self._launch("worker.Worker", f"worker-{number}", *wanted, self.url)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _launch(self, what: str, name: str, *arguments: str) -> None:
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        class_path = f"{_HOME}/jars/*"
        command = [
            str(find_java().executable),
            "-cp",
            class_path,
            *options,
            f"org.apache.spark.deploy.{what}",
        ]
        # A web server on a port of the system's choice.
        command += ["--webui-port", "0", *arguments]
        log_file = self.folder / f"{name}.log"
        self._logs.append(log_file)
        self._processes.append(
            ChildProcess(command, log_file=log_file, cwd=self.folder, env=self._environment)
        )

    def _end(self) -> None:
        for each in reversed(self._processes):
            each.kill()

    def executors(self) -> list[int]:
        """The processes of the executors."""
        workers = {each.pid for each in self._processes[1:]}
        return [pid for pid in _children(workers) if _EXECUTOR in _command(pid)]

    def executor(self, which: int) -> int:
        """One of them, as soon as there is any."""
        found = wait_until(self.executors, by=self._processes[0], log=self._logs[0], what="an executor")
        return found[which % len(found)]

    def executor_of(self, pid: int) -> int:
        """The executor to which a Python worker belongs. Raises LookupError."""
        executors = set(self.executors())
        while pid > 1:
            if pid in executors:
                return pid
            pid = _parent(pid)
        raise LookupError("the process belongs to no executor")

    def kill_executor(self, which: int) -> None:
        """SIGKILL to an executor; its Python workers notice that it is gone when they speak to it."""
        os.kill(self.executor(which), signal.SIGKILL)


def _children(parents: set[int]) -> list[int]:
    running = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return sorted(pid for pid in running if _parent(pid) in parents)


def _parent(pid: int) -> int:
    """The process that started one, 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
