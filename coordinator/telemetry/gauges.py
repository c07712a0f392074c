"""Figures about the pending work of one stream."""

from collections.abc import Iterator

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.log import Checkpoint, Log


def pending_files(log: Log) -> int:
    """Return the number of files that are in no decision."""
    return sum(entry.files for _, entry in _checkpoints(log))


def pending_bytes(log: Log) -> int:
    """Return the size of the files that are in no decision, by the events' own counts."""
    return sum(part.bytes for _, entry in _checkpoints(log) for part in entry.parts.values())


def oldest_unsealed(log: Log) -> int | None:
    """Return the append time of the first event of the oldest checkpoint that is not sealed."""
    sealed = {(name, each.position.checkpoint) for name in log.pending for each in log.sealed(name)}
    times = (
        entry.first_time
        for name, found in log.pending.items()
        for number, entry in found.checkpoints.items()
        if (name, number) not in sealed
    )
    return min(times, default=None)


def oldest_sealed(log: Log) -> int | None:
    """Return the time since when the oldest sealed checkpoint is in no decision."""
    return min((each.time for name in log.pending for each in log.sealed(name)), default=None)


def oldest_completed(log: Log) -> int | None:
    """Return the append time of the newest event of the oldest completed checkpoint in no decision."""
    times = (entry.last_time for _, entry in _checkpoints(log) if entry.body is not None)
    return min(times, default=None)


def is_single_region(log: Log) -> bool:
    """True if all writers of the stream are one failure domain."""
    return cuts.single_region_reason(log) is not None


def _checkpoints(log: Log) -> Iterator[tuple[str, Checkpoint]]:
    for name, found in log.pending.items():
        for entry in found.checkpoints.values():
            yield name, entry
