"""Process of an uploader: `python -m ... folder`. It ends when its spool was empty for a while."""

import contextlib
import logging
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final

from sluicegate.failpoints.points import arm_from
from sluicegate.kafka.outages import quiet_clients
from sluicegate.writer_hooks.upload.spool import Spool

# --- the start, by a task -----------------------------------------------------------------------------

_log = logging.getLogger(__name__)

_PROCESS: Final = "sluicegate.writer_hooks.upload.process"
_LARGEST_LOG: Final = 4 << 20
STARTS: Final = 5.0
"""Seconds in which an uploader that was started may not hold its lock yet. It ends much later."""
_children: Final[dict[float, tuple[str, subprocess.Popen[bytes]]]] = {}
"""Spool folders and uploaders that this process has started, by the times of that in monotonic seconds."""
_starting: Final = threading.Lock()


def ensure_uploader(spool: Spool) -> None:
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
            _start_process(spool)


def _start_process(spool: Spool) -> None:
    path = os.pathsep.join(part or os.getcwd() for part in sys.path)
    try:
        with _log_file(spool) as log:
            child = subprocess.Popen(
                [sys.executable, "-m", _PROCESS, spool.folder],
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
def _log_file(spool: Spool) -> Iterator[int]:
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


# --- the process --------------------------------------------------------------------------------------

_POLL: Final = 0.2
"""Seconds between two attempts to get a lock that another process holds."""
IDLE_SECONDS: Final = 60.0
"""Seconds for which the spool is empty before the process ends."""


class Idle:
    """Measure of the time for which a spool has been empty."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None

    def __call__(self, empty: bool) -> bool:
        """Return True after the spool was empty for these seconds."""
        now = time.monotonic()
        self._since = (now if self._since is None else self._since) if empty else None
        return self._since is not None and now - self._since >= self._seconds


def work(spool: Spool, idle: float = IDLE_SECONDS) -> None:
    """Upload until the spool was empty for `idle` seconds, unless another process uploads.

    An entry that was put while this process gave its lock back has a task that found the lock held. So the
    spool is read once more after that.
    """
    # A task only starts this process, and does not load what the uploads need.
    from sluicegate.writer_hooks.upload.uploader import Uploader

    began = time.monotonic()
    with contextlib.suppress(FileNotFoundError):  # the spool was removed, with all that waited
        while True:
            with spool.uploading() as mine:
                if mine:
                    Uploader(spool).run(Idle(idle))
            if mine and not spool.names():
                return
            # The tasks that rely on this process look again after some seconds.
            if not mine and time.monotonic() - began > STARTS:
                return
            if not mine:
                time.sleep(_POLL)


def main() -> None:
    """Run the uploader of the folder that the argument names."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
    )
    quiet_clients()
    arm_from(os.environ)
    work(Spool(sys.argv[1]))


if __name__ == "__main__":
    main()
