"""Tracer of `tools.mutants`: it notes which tests call which functions, in all processes of a run.

As `sitecustomize.py` on the path, each interpreter runs it. pytest names the test under way in the
environment, which its child processes inherit. The file CALLED_TARGETS has a line `path:first line` for each
function of interest. Calls are lines `path:first line<TAB>test` of files in the folder CALLED_NOTES, one for
each process.
"""

import contextlib
import os
import sys
import threading
from typing import Any, TextIO


class Tracer:
    """Notes each pair of function and test once."""

    def __init__(self, targets: str, notes: str) -> None:
        with open(targets, encoding="utf-8") as lines:
            self._targets = {line.strip() for line in lines}
        self._names = {target.rpartition(":")[0] for target in self._targets}
        self._known: dict[Any, str | None] = {}
        """By code object, the function of interest that it is."""
        self._seen: set[tuple[str, str]] = set()
        self._notes = notes
        self._file: TextIO | None = None
        self._process = 0
        self._waiting = ""

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if code not in self._known:
            self._known[code] = self._target_of(code)
        if (target := self._known[code]) is not None:
            self._note(target, os.environ.get("PYTEST_CURRENT_TEST", ""))

    def _target_of(self, code: Any) -> str | None:
        path = os.path.realpath(code.co_filename)
        if path not in self._names:
            return None
        target = f"{path}:{code.co_firstlineno}"
        return target if target in self._targets else None

    def _note(self, target: str, test: str) -> None:
        if self._process != os.getpid():
            # A fork has a file of its own.
            self._process, self._seen, self._waiting = os.getpid(), set(), ""
            self._file = open(f"{self._notes}/{self._process}", "a", encoding="utf-8")  # noqa: SIM115
        if (target, test) not in self._seen and self._file is not None:
            self._seen.add((target, test))
            self._waiting += f"{target}\t{test}\n"
            # A test may have made the storage full: then the line is written with the next one.
            with contextlib.suppress(OSError):
                os.write(self._file.fileno(), self._waiting.encode())
                self._waiting = ""


if "CALLED_TARGETS" in os.environ:
    tracer = Tracer(os.environ["CALLED_TARGETS"], os.environ["CALLED_NOTES"])
    threading.settrace(tracer)
    sys.settrace(tracer)
