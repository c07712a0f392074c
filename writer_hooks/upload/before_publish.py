"""Call of the user's function `before.publish`, in a process of its own with a lower priority."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from sluicegate.writer_hooks.upload.failures import Lost

_MODULE: Final = "sluicegate.writer_hooks.upload.calling"
_SHOWN: Final = 2_000
"""Characters of the output of a failed call that its reason has."""


def call_before_publish(function: str, local: str, uri: str, *, path: Sequence[str], timeout: float) -> None:
    """Call a function with a local file and its final URI, and wait for its end.

    `path` has the folders in which the task found its modules, `timeout` is in seconds. Raises Lost if the
    call raises, or does not end in time; its process is killed then.
    """
    with subprocess.Popen(
        [sys.executable, "-m", _MODULE, str(os.getpid()), function, local, uri],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Lost(
                f"the function {function} of before.publish did not end within {timeout:g} s for {uri}"
            ) from None
        finally:
            # Its own children must not outlive it either.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        text = output.decode(errors="replace").strip()
        last = text.splitlines()[-1] if text else f"exit status {process.returncode}"
        raise Lost(f"the function {function} of before.publish failed for {uri}: {last[-_SHOWN:]}")
