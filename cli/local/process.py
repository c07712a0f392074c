"""Child processes that cannot outlive their parent, not even one that is killed; and free ports for them."""

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"

# Below the ephemeral ranges of Linux and macOS: an outgoing connection cannot take a stopped server's port.
_LOWEST: Final = 15_000
_HIGHEST: Final = 31_999


def free_port() -> int:
    """Return a free loopback port. Another process may still take it before the caller binds it.

    Raises OSError if none of 200 random ports is free.
    """
    for _ in range(200):
        port = random.randint(_LOWEST, _HIGHEST)  # noqa: S311
        if port_is_free(port):
            return port
    raise OSError(f"none of 200 ports tried between {_LOWEST} and {_HIGHEST} is free on {LOOPBACK}")


def port_is_free(port: int) -> bool:
    """Return True if a server could bind the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


# A child process that cannot outlive its parent, not even a parent that is killed.

# The script ends at EOF, when the parent closes the pipe or dies. `kill 0` reaches only its own process
# group, so a reused pid cannot be hit. The kernel sends SIGHUP to a group that loses its parent while a
# member is stopped, so that signal is ignored.
_LEASH_SCRIPT: Final = "trap '' HUP INT QUIT TERM; read -r _; kill -KILL 0"

_held: set[int] = set()


def _let_go_in_forked_child() -> None:
    """Close the copies of the pipes' write ends; otherwise a forked child would keep the servers alive."""
    while _held:
        with suppress(OSError):
            os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go_in_forked_child)


def _environment() -> dict[str, str]:
    """Return a copy of the environment.

    Without one the child reads that of this process, and the start fails with EFAULT if another thread sets a
    variable at that moment.
    """
    return dict(os.environ)


class _Leash:
    """A small process that leads a process group, and kills the group when our end of a pipe is closed."""

    def __init__(self) -> None:
        read_end, self._write_end = os.pipe()
        _held.add(self._write_end)
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _LEASH_SCRIPT],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                process_group=0,
            )
        except BaseException:
            self._close()
            raise
        finally:
            os.close(read_end)

    @property
    def group(self) -> int:
        return self._process.pid

    def let_go(self) -> None:
        """Kill all remaining processes of the group, the leash included. Repeated calls are allowed."""
        self._close()
        self._process.wait()

    def _close(self) -> None:
        if self._write_end in _held:
            _held.remove(self._write_end)
            os.close(self._write_end)


class ChildProcess:
    """One running command in its own process group. Its output is appended to a log file."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log_file: Path,
        cwd: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._leash = _Leash()
        try:
            with log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env=dict(env) if env is not None else _environment(),
                    process_group=self._leash.group,
                )
        except BaseException:
            self._leash.let_go()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, or None while the process is alive."""
        return self._process.poll()

    def wait(self, timeout: float) -> int:
        """Wait until the process ends by itself, and return its exit status.

        Raises:
            TimeoutError: the process still runs after `timeout` seconds.
        """
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"process {self.pid} still runs after {timeout:g} s") from None
        self._leash.let_go()
        return status

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process; no effect if it has ended."""
        self._process.send_signal(number)

    def suspend(self) -> None:
        """Stop the process, and wait until all its threads have stopped; no effect if it has ended.

        SIGSTOP alone returns before that, and a server then still answers requests for some milliseconds.
        Where the system has no `waitid`, as macOS, this returns that early.
        """
        self.send(signal.SIGSTOP)
        if sys.platform != "darwin" and self.poll() is None:
            # The end of the process stays to be read by `poll` and `wait`.
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def end(self, grace: float) -> int:
        """Send SIGTERM, kill the process after `grace` seconds, and return its exit status."""
        self.send(signal.SIGTERM)
        # A stopped process handles SIGTERM only after it continues.
        self.send(signal.SIGCONT)
        try:
            return self.wait(grace)
        except TimeoutError:
            return self.kill()

    def kill(self) -> int:
        """Kill the process immediately and return its exit status."""
        self.send(signal.SIGKILL)
        status = self._process.wait()
        self._leash.let_go()
        return status
