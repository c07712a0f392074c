"""Start of the uploader of a spool, as a process that outlives the task."""

import contextlib
import logging
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sluicegate.writer_hooks.upload.spool import Spool

_log = logging.getLogger(__name__)

_MODULE: Final = "sluicegate.writer_hooks.upload.process"
_LARGEST_LOG: Final = 4 << 20
STARTS: Final = 5.0
"""Seconds in which an uploader that was started may not hold its lock yet. It ends much later."""
_children: Final[dict[float, tuple[str, subprocess.Popen[bytes]]]] = {}
"""Spool folders and uploaders that this process has started, by the times of that in monotonic seconds."""
_starting: Final = threading.Lock()


def ensure_uploader(spool: "Spool") -> None:
    """Start the uploader of a spool, if none runs. Called after an entry was put, or while a task waits.

    An uploader that ends looks for entries once more after it has released its lock. So each entry is seen by
    one that runs, or by the task that looks for one here.
    """
    # Tasks and the heartbeats of a driver may be threads of one process.
    with _starting:
        for started, (_, child) in list(_children.items()):
            if child.poll() is not None:
                del _children[started]
        own = (started for started, (folder, _) in _children.items() if folder == spool.folder)
        if max(own, default=-math.inf) <= time.monotonic() - STARTS and not spool.has_uploader():
            _start(spool)


def _start(spool: "Spool") -> None:
    path = os.pathsep.join(part or os.getcwd() for part in sys.path)
    try:
        with _log_file(spool) as log:
            child = subprocess.Popen(
                [sys.executable, "-m", _MODULE, spool.folder],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
    except OSError as error:
        _log.error(
            "the uploader of the spool %s cannot be started (%s). Files wait there. Upload them with: "
            "sluicegate uploads drain --spool %s",
            *(spool.folder, error, spool.folder),
        )
        return
    _children[time.monotonic()] = spool.folder, child


@contextlib.contextmanager
def _log_file(spool: "Spool") -> Iterator[int]:
    """Open the log file of uploaders, made if it is missing, and empty if it has become large.

    Without room for a new file, the uploader has no log: its uploads are what frees the room.
    """
    path = f"{spool.folder}/uploader.log"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        _log.warning("an uploader starts without its log %s: %s", path, error)
        yield subprocess.DEVNULL
        return
    try:
        if os.fstat(descriptor).st_size > _LARGEST_LOG:
            os.ftruncate(descriptor, 0)
        yield descriptor
    finally:
        os.close(descriptor)
