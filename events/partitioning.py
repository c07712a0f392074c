"""Message keys and partitions.

The partition depends on the stream alone, so one partition contains all events of a stream.
"""

from zlib import crc32

from sluicegate.events.envelope import NO_CHECKPOINT, Envelope


def message_key(envelope: Envelope) -> bytes:
    """Return the key `stream/region/checkpoint`, without the parts that do not apply."""
    parts = [envelope.stream]
    if envelope.region:
        parts.append(envelope.region)
        if envelope.checkpoint != NO_CHECKPOINT:
            parts.append(str(envelope.checkpoint))
    return "/".join(parts).encode()


def partition_of(stream: str, partitions: int) -> int:
    """Return the partition of a stream in a topic of that many partitions: CRC-32 of its name, modulo."""
    return crc32(stream.encode()) % partitions
