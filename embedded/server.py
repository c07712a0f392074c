"""Base of the embedded servers: directory, port, readiness, clean and unclean ends."""

import re
import shutil
import signal
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from sluicegate.embedded.errors import StartError
from sluicegate.embedded.ports import free_port
from sluicegate.embedded.process import ChildProcess

_PORT_ATTEMPTS: Final = 5
_TAIL_LINES: Final = 15
_ERROR_LINES: Final = 8
_ERROR: Final = re.compile(r"\b(ERROR|FATAL)\b|Exception|[Ee]rror:")
_PORT_TAKEN: Final = "ddress already in use"


class EmbeddedServer(ABC):
    """One server as a child process on a loopback port, with its own data directory.

    Without `data_dir` the data is in a temporary directory that `stop()` removes; a given directory is kept.
    Without `port`, the first start chooses a free one. Methods may be called from any thread.
    """

    name: ClassVar[str]
    start_seconds: ClassVar[float]
    stop_seconds: ClassVar[float]
    poll_seconds: ClassVar[float]

    def __init__(self, data_dir: Path | None = None, port: int | None = None) -> None:
        self._given_dir = data_dir
        self._given_port = port
        self._dir: Path | None = None
        self._port: int | None = port
        self._process: ChildProcess | None = None
        self._lock = threading.RLock()

    @abstractmethod
    def _prepare(self) -> Sequence[str]:
        """Write the server's files into its directory and return its command."""

    @abstractmethod
    def _ready(self, pid: int) -> bool:
        """Return True if the process with this id serves on the port now."""

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
        command = self._prepare()
        log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        process = ChildProcess(command, log_file=self.log_file, cwd=self.data_dir)
        try:
            self._wait_until_ready(process, log_start)
        except BaseException:
            process.kill()
            raise
        self._process = process

    def _wait_until_ready(self, process: ChildProcess, log_start: int) -> None:
        deadline = time.monotonic() + self.start_seconds
        while not self._ready(process.pid):
            status = process.poll()
            if status is not None:
                message = (
                    f"{self.name} ended with status {status} while starting; {self._log_tail(log_start)}"
                )
                raise _PortTaken(message) if _PORT_TAKEN in message else StartError(message)
            if time.monotonic() > deadline:
                waited = f"{self.name} was not ready on port {self.port} within {self.start_seconds:g} s"
                raise StartError(f"{waited}; {self._log_tail(log_start)}")
            time.sleep(self.poll_seconds)

    def _log_tail(self, start: int) -> str:
        with self.log_file.open("rb") as log:
            log.seek(start)
            lines = log.read().decode(errors="replace").splitlines()
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
