"""Keys and partitions: the partition comes from the stream alone, so one partition has all of a stream."""

from zlib import crc32

from sluicegate.events.envelope import NO_CHECKPOINT, Envelope


def message_key(envelope: Envelope) -> bytes:
    """The key `stream/region/checkpoint`, shortened to what applies."""
    parts = [envelope.stream]
    if envelope.region:
        parts.append(envelope.region)
        if envelope.checkpoint != NO_CHECKPOINT:
            parts.append(str(envelope.checkpoint))
    return "/".join(parts).encode()


def partition_of(stream: str, partitions: int) -> int:
    """The partition of a stream's events and records in a topic of that many partitions (CRC-32, modulo)."""
    return crc32(stream.encode()) % partitions
