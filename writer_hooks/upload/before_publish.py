"""Process of one call of `before.publish`: `python -m ... parent module:function file uri`."""

import os
import signal
import sys
import threading
import time
from importlib import import_module
from typing import Final

_NICENESS: Final = 10
"""Tasks and the uploader come first."""


_POLL: Final = 1.0
"""Seconds between two checks of the uploader."""


def main() -> None:
    """Call the function that the arguments name. Its exception ends the process with a traceback."""
    parent, function, local, uri = sys.argv[1:]
    threading.Thread(target=_end_after, args=(int(parent),), daemon=True).start()
    os.nice(_NICENESS)
    module, _, name = function.partition(":")
    getattr(import_module(module), name)(local, uri)


def _end_after(parent: int) -> None:
    """End this process, with its children, when the uploader has ended: the next one calls again."""
    while os.getppid() == parent:
        time.sleep(_POLL)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
