"""What the embedded servers have in common: directory, port, readiness, clean and unclean ends."""

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

    Without `data_dir` the data lives in a temporary directory that `stop()` removes; a given directory is
    kept. Without `port` a free one is chosen at the first start. Methods may be called from any thread.
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
        """Write what the server needs into its directory and return its command."""

    @abstractmethod
    def _ready(self, pid: int) -> bool:
        """Return whether it is this process that serves on the port now."""

    def _stopped_cleanly(self) -> None:
        """Do what may follow a clean end, before a temporary directory goes."""
        return

    @property
    def port(self) -> int:
        """The loopback port; known once the server has been started."""
        if self._port is None:
            raise StartError(f"{self.name} has no port yet; call start() first")
        return self._port

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        process = self._process
        if process is None:
            raise StartError(f"{self.name} is not running; call start() first")
        return process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives; a suspended one does."""
        process = self._process
        return process is not None and process.poll() is None

    @property
    def data_dir(self) -> Path:
        """The directory with the server's data, configuration and log."""
        if self._dir is None:
            raise StartError(f"{self.name} has no data directory yet; call start() first")
        return self._dir

    @property
    def log_file(self) -> Path:
        """The log of every start in this data directory."""
        return self.data_dir / "server.log"

    def start(self) -> Self:
        """Start the server and return once it serves; does nothing when it runs already.

        Raises:
            StartError: it ended early or was not ready in time; the message shows the end of its log.
            JavaError, FetchError: Kafka only, a prerequisite is missing.
        """
        with self._lock:
            if self.running:
                return self
            self._forget_process()
            self._open_directory()
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
        """End the server cleanly, and remove its data if they are temporary; may be repeated."""
        with self._lock:
            self._end()
            if self._given_dir is None and self._dir is not None:
                shutil.rmtree(self._dir, ignore_errors=True)
                self._dir = None

    def kill(self) -> None:
        """Kill the server as a crash would; its data and port stay for the next start."""
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
        """Freeze the process: its connections stay open and nothing answers."""
        with self._lock:
            self._live().send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen process go on."""
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
        # What went wrong first is often far above the last line, which tells of the shutdown after it.
        errors = [line for line in lines[:-_TAIL_LINES] if _ERROR.search(line)][:_ERROR_LINES]
        shown = [*errors, *(["..."] if errors else []), *lines[-_TAIL_LINES:]]
        return f"from {self.log_file}:\n" + "\n".join(shown)

    def _end(self) -> None:
        if self._process is None:
            return
        status = self._process.end(self.stop_seconds)
        self._process = None
        if status != -signal.SIGKILL:
            self._stopped_cleanly()

    def _forget_process(self) -> None:
        """Release the leash of a process that ended by itself."""
        if self._process is not None:
            self._process.kill()
            self._process = None


class _PortTaken(StartError):
    """Another process took the port between the choice and the bind."""
