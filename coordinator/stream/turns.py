"""Turns of the streams of a partition: there may be hundreds, and most have no part in a batch of records."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sluicegate.coordinator.stream.runner import StreamRunner

MANY: Final = 50
"""Streams of a partition above which quiet ones have fewer turns."""


def quiet_turns(streams: int) -> int:
    """Return the timer ticks for each turn of a quiet stream, of so many in its partition.

    Reactions to its next record count from its last turn.
    """
    return 2 if streams <= MANY else 4


def is_due(runner: "StreamRunner") -> bool:
    """Return True if records or the position of the partition may have made effects due."""
    return runner.touched or not runner.machine.has_read_all


def is_quiet(runner: "StreamRunner") -> bool:
    """Return True if only slow timers can make effects due: nothing runs, and nothing is to be committed."""
    log = runner.machine.replica.log
    if is_due(runner) or runner.running or log.state.pending is not None or not runner.machine.ready:
        return False
    return not any(each.checkpoints for each in log.pending.values())
