"""Call of the user's function `before.publish`, in a process of its own with a lower priority."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Final

from sluicegate.writer_hooks.upload.failures import Lost

_MODULE: Final = "sluicegate.writer_hooks.upload.calling"
_SHOWN: Final = 2_000
"""Characters of the output of a failed call that its reason has."""


def call_before_publish(
    function: str,
    local: str,
    uri: str,
    *,
    path: Sequence[str],
    environment: Mapping[str, str],
    timeout: float,
) -> None:
    """Call a function with a local file and its final URI, and wait for its end.

    `path` has the folders in which the task found its modules, `timeout` is in seconds. Raises Lost if the
    call raises, or does not end in time; its process is killed then. Raises InterruptedError if another
    process has killed it: a repetition is safe.
    """
    with (
        _output_file() as printed,
        subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(os.getpid()), function, local, uri],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            env={**environment, "PYTHONPATH": os.pathsep.join(path)},
            start_new_session=True,
        ) as process,
    ):
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Lost(
                f"the function {function} of before.publish did not end within {timeout:g} s for {uri}"
            ) from None
        finally:
            # Its own children must not outlive it either.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        _judge(process.returncode, printed, function, uri)


def _output_file() -> IO[bytes]:
    """Open a file for the output of a call; in memory where that is possible, because a disk may be full."""
    if sys.platform == "linux":
        return open(os.memfd_create("before.publish"), "w+b")
    return tempfile.TemporaryFile()


def _judge(status: int, printed: IO[bytes], function: str, uri: str) -> None:
    """Raise Lost if a call has failed, and InterruptedError if its process was killed."""
    if status < 0:
        raise InterruptedError(f"the function {function} of before.publish was killed for {uri}")
    if status:
        text = _end_of(printed).decode(errors="replace").strip()
        last = text.splitlines()[-1] if text else f"exit status {status}"
        raise Lost(f"the function {function} of before.publish failed for {uri}: {last[-_SHOWN:]}")


def _end_of(printed: IO[bytes]) -> bytes:
    size = printed.seek(0, os.SEEK_END)
    printed.seek(max(0, size - 4 * _SHOWN))
    return printed.read()
