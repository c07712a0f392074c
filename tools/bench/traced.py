"""The command line with a tracer: python traced.py RESULT ARGUMENTS...

Between SIGUSR1 and SIGUSR2, it collects the files of the product whose functions are called, and writes them
to RESULT as JSON.
"""

import json
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final

_PACKAGE: Final = "/sluicegate/"


class Tracer:
    """The files whose functions are called between two signals."""

    def __init__(self, result: Path) -> None:
        self._result = result
        self._files = set[str]()
        self._on = False
        sys.setprofile(self._call)
        threading.setprofile(self._call)
        signal.signal(signal.SIGUSR1, self._begin)
        signal.signal(signal.SIGUSR2, self._end)

    def _call(self, frame: FrameType, event: str, _: Any) -> None:
        if self._on and event == "call":
            self._files.add(frame.f_code.co_filename)

    def _begin(self, *_: object) -> None:
        self._files, self._on = set(), True

    def _end(self, *_: object) -> None:
        self._on = False
        found = sorted(name.rpartition(_PACKAGE)[2] for name in self._files if _PACKAGE in name)
        draft = self._result.with_suffix(".draft")
        draft.write_text(json.dumps(found))
        draft.replace(self._result)


if __name__ == "__main__":
    from sluicegate.cli.main import main

    Tracer(Path(sys.argv[1]))
    sys.argv = ["sluicegate", *sys.argv[2:]]
    main()
