"""Retention: the records of a partition that may be deleted, and the record that a stream recovers from.

Before records are deleted, each stream of the partition gets a *base record*: a copy of its state record
under a key of its own. A zombie may replace the newest record by an older one, whose low-water mark was
deleted. The base record is still there then.
"""

from collections.abc import Iterable, Mapping

from sluicegate.coordinator.core.state_record import StateRecord

_SEPARATOR = "/"
"""No name of a stream contains it."""


def base_key(stream: str, start: int) -> str:
    """Return the key of a stream's base record for a log that begins at this offset."""
    return f"{stream}{_SEPARATOR}{start}"


def read_key(key: str) -> tuple[str, int | None]:
    """Return the stream of a record's key, and the offset if it is the key of a base record."""
    stream, separator, start = key.partition(_SEPARATOR)
    return stream, int(start) if separator and start.isascii() and start.isdigit() else None


def listener_key(stream: str, listener: str, owner: str) -> str:
    """Return the key of a listener's record. No name of a stream is empty, so it is no key of a stream."""
    return _SEPARATOR.join(("", "listener", stream, listener, owner))


def read_listener_key(key: str) -> tuple[str, str] | None:
    """Return the stream and the name of the listener of a record's key; None for other keys."""
    parts = key.split(_SEPARATOR)
    return (parts[2], parts[3]) if parts[:2] == ["", "listener"] and len(parts) == 5 else None


def deletion_start(needed: Iterable[int], kept_from: int, begin: int) -> int | None:
    """Return the offset before which records may be deleted; None if there are none.

    `needed` are the low-water marks of everybody, `kept_from` is the first offset in the replay window, and
    `begin` is the first offset of the log.
    """
    start = min([kept_from, *needed])
    return start if start > begin else None


def recovery_record(
    newest: StateRecord | None, bases: Mapping[int, StateRecord], begin: int
) -> StateRecord | None:
    """Return the record from which a stream recovers, in a log that begins at `begin`.

    None: no coordinator has written a record of the stream. Without a usable one it is one from which the log
    does not continue, so the caller sees that the stream has a past.
    """
    if newest is not None and newest.low_water >= begin:
        return newest
    # A zombie may have written an older record under the key.
    usable = [start for start, base in bases.items() if base.low_water >= max(start, begin)]
    if usable:
        return bases[max(usable)]
    return newest or max(bases.values(), key=lambda base: base.low_water, default=None)


def is_endangered(low_water: int, half_expired: int) -> bool:
    """True if a stream needs records that have passed half of the topic's retention.

    `half_expired` is the first offset that has not.
    """
    return low_water < half_expired
