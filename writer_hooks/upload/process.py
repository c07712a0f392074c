"""Process of an uploader: `python -m ... folder`. It ends when its spool was empty for a while."""

import contextlib
import logging
import os
import sys
import time
from typing import Final

from sluicegate.failpoints.points import arm_from
from sluicegate.kafka.outages import quiet_clients
from sluicegate.writer_hooks.upload.spool import Spool
from sluicegate.writer_hooks.upload.starting import STARTS
from sluicegate.writer_hooks.upload.uploader import Uploader

_LOOK: Final = 0.2
"""Seconds between two looks at a lock that another process holds."""
IDLE: Final = 60.0
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


def work(spool: Spool, idle: float = IDLE) -> None:
    """Upload until the spool was empty for `idle` seconds, unless another process uploads.

    An entry that was put while this process gave its lock back has a task that found the lock held. So the
    spool is read once more after that.
    """
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
                time.sleep(_LOOK)


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
