"""Checkpoints by deltalake, in a process of their own: a checkpoint of a large table takes seconds.

Usage: python -m sluicegate.lakes.delta.checkpointing LOCATION
"""

import logging
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Final

from sluicegate.lakes.delta.features import CHECKPOINT_PROTECTION, supports
from sluicegate.lakes.delta.log import State

INTERVAL: Final = 100
"""Versions between two checkpoints, unless the table has another interval."""
_PROPERTY: Final = "delta.checkpointInterval"
_POLICY: Final = "delta.checkpointPolicy"
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}")

_logger: Final = logging.getLogger(__name__)


class Checkpointing:
    """Starter of checkpoints, one at a time.

    A failure is logged, as it makes reads of the table slower, and nothing else.
    """

    def __init__(self, location: str) -> None:
        self._command = (sys.executable, "-m", __name__, location)
        self._running: threading.Thread | None = None

    def consider(self, state: State) -> None:
        """Start a checkpoint if the version is due for one. Returns at once."""
        if not is_due(state) or (self._running is not None and self._running.is_alive()):
            return
        self._running = threading.Thread(target=_run, args=(self._command,), name="checkpoint", daemon=True)
        self._running.start()

    def wait(self) -> None:
        """Wait for the checkpoint that is under way."""
        if self._running is not None:
            self._running.join()


def is_due(state: State) -> bool:
    """Return True if the version is one to make a checkpoint of.

    The owner of a table makes those of version 2, and those of a table that protects them.
    """
    configuration = state.metadata.configuration
    if configuration.get(_POLICY, "classic") != "classic" or supports(state.protocol, CHECKPOINT_PROTECTION):
        return False
    said = configuration.get(_PROPERTY, "")
    interval = int(said) if _NUMBER.fullmatch(said) else INTERVAL
    return state.version % interval == 0


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        _logger.warning("no checkpoint of %s: %s", command[-1], done.stderr.strip()[-500:])


def main(location: str) -> None:
    """Make a checkpoint of the table's newest version."""
    # The service itself never loads a table.
    from deltalake import DeltaTable

    DeltaTable(location).create_checkpoint()


if __name__ == "__main__":
    main(*sys.argv[1:])
