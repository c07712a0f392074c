"""Keys and partitions: the partition comes from the stream alone, so one partition has all of a stream."""

from zlib import crc32

from sluicegate.events.envelope import NO_CHECKPOINT, Envelope


def message_key(envelope: Envelope) -> bytes:
    """Return the key of an event of version 3."""
    return key_of(envelope.stream, envelope.region, envelope.checkpoint)


def key_of(stream: str, region: str = "", checkpoint: int = NO_CHECKPOINT) -> bytes:
    """Return the key `stream/region/checkpoint`, without the parts that do not apply."""
    parts = [stream]
    if region:
        parts.append(region)
        if checkpoint != NO_CHECKPOINT:
            parts.append(str(checkpoint))
    return "/".join(parts).encode()


def partition_of(stream: str, partitions: int) -> int:
    """The partition of a stream's events and records in a topic of that many partitions (CRC-32, modulo)."""
    return crc32(stream.encode()) % partitions
