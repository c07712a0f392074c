"""Keys and partitions: the partition comes from the stream alone, so one partition has all of a stream."""

from zlib import crc32

from sluicegate.events.envelope import NO_CHECKPOINT


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
