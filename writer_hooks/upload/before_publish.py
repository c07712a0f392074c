"""The user's function `before.publish`: its call, in a process of its own, and the facts that it returns.

The process is `python -m ... parent module:function file uri answer`. This module loads neither models nor
clients, because each call starts a process. A call that fails is repeated: nothing is lost by that, because
the file stays where it is. The result of a call becomes part of the event that describes the file.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import IO, Final

_MODULE: Final = "sluicegate.writer_hooks.upload.before_publish"
_LONGEST_CALL: Final = 600.0  # seconds
_SHOWN: Final = 2_000
"""Characters of the output of a failed call that its reason has."""
_NICENESS: Final = 10
"""Tasks and the uploader come first."""
_POLL: Final = 1.0
"""Seconds between two checks of the caller."""
_MOST_FACTS: Final = 16
_LONGEST_NAME: Final = 64
_LONGEST_FACTS: Final = 1_000
"""Limits of `events.models.Facts`, which the process of a call does not load."""


class WorkFailed(Exception):
    """A call of the function has failed, did not end in time, or was killed. Another call is safe."""


# --- the caller ---------------------------------------------------------------------------------------


def call_before_publish(
    function: str,
    local: str,
    uri: str,
    *,
    path: Sequence[str],
    environment: Mapping[str, str],
    timeout: float = _LONGEST_CALL,
) -> dict[str, str]:
    """Call a function with a local file and its final URI, and return the facts that it returns.

    `path` has the folders in which the task found its modules, `timeout` is in seconds. A call that does not
    end in time is killed. Raises WorkFailed.
    """
    try:
        return _call(function, local, uri, {**environment, "PYTHONPATH": os.pathsep.join(path)}, timeout)
    except OSError as error:
        # Such as a machine without memory or processes. It says nothing about the file.
        raise WorkFailed(
            f"the function {function} of before.publish could not be called for {uri}: {error}"
        ) from error


def _call(
    function: str, local: str, uri: str, environment: Mapping[str, str], timeout: float
) -> dict[str, str]:
    with (
        _memory_file() as printed,
        _memory_file() as answer,
        subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(os.getpid()), function, local, uri, str(answer.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            pass_fds=[answer.fileno()],
            env=environment,
            start_new_session=True,
        ) as process,
    ):
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise WorkFailed(
                f"the function {function} of before.publish did not end within {timeout:g} s for {uri}"
            ) from None
        finally:
            # Its own children must not outlive it either.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        _require_success(process.returncode, printed, function, uri)
        answer.seek(0)
        try:
            found: dict[str, str] = json.loads(answer.read())
        except ValueError as error:
            # Its process has ended without a result, or a process that it has forked has given another one.
            raise WorkFailed(
                f"the function {function} of before.publish gave no answer that can be read for {uri}: it "
                "must return, and in one process only"
            ) from error
        return found


def _memory_file() -> IO[bytes]:
    """Open a file for a process to write to; in memory where that is possible, because a disk may be full."""
    if sys.platform == "linux":
        return open(os.memfd_create("before.publish"), "w+b")
    return tempfile.TemporaryFile()


def _require_success(status: int, printed: IO[bytes], function: str, uri: str) -> None:
    """Raise WorkFailed if a call has failed, or its process was killed."""
    if status < 0:
        raise WorkFailed(f"the function {function} of before.publish was killed for {uri}")
    if status:
        text = _end_of(printed).decode(errors="replace").strip()
        last = text.splitlines()[-1] if text else f"exit status {status}"
        raise WorkFailed(f"the function {function} of before.publish failed for {uri}: {last[-_SHOWN:]}")


def _end_of(printed: IO[bytes]) -> bytes:
    size = printed.seek(0, os.SEEK_END)
    printed.seek(max(0, size - 4 * _SHOWN))
    return printed.read()


# --- the process of one call --------------------------------------------------------------------------


def main() -> None:
    """Call the function that the arguments name. Its exception ends the process with a traceback."""
    parent, function, local, uri, answer = sys.argv[1:]
    threading.Thread(target=_end_after, args=(int(parent),), daemon=True).start()
    os.nice(_NICENESS)
    module, _, name = function.partition(":")
    facts = _facts_of(getattr(import_module(module), name)(local, uri))
    with os.fdopen(int(answer), "w", encoding="utf-8") as file:
        file.write(facts)


def _facts_of(found: object) -> str:
    """Return the result of the function as JSON; None: it has no facts. Raises ValueError."""
    facts = {} if found is None else found
    if not isinstance(facts, dict) or not all(
        isinstance(each, str) for pair in facts.items() for each in pair
    ):
        raise ValueError(f"before.publish must return None, or a dict of texts: {found!r:.200}")
    text = json.dumps(facts, ensure_ascii=False)
    size = len(text.encode())
    names = [name for name in facts if not 0 < len(name) <= _LONGEST_NAME]
    if names or len(facts) > _MOST_FACTS or size > _LONGEST_FACTS:
        raise ValueError(
            f"the facts of before.publish have {len(facts)} names and {size} bytes as JSON; at most "
            f"{_MOST_FACTS} names of 1 to {_LONGEST_NAME} characters, and {_LONGEST_FACTS} bytes are possible"
        )
    return text


def _end_after(parent: int) -> None:
    """End this process, with its children, when the caller has ended: the next one calls again."""
    while os.getppid() == parent:
        time.sleep(_POLL)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
