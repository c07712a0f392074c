"""A bare consumer in a process of its own, which imports nothing but aiokafka: what a read costs at least.

    python -m tools.bench.raw BOOTSTRAP TOPIC PARTITION BEGIN END

Reads the records from BEGIN to before END and prints how many, and the seconds since it was connected.
"""

import asyncio
import sys
import time
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition

MOST_RECORDS: Final = 5_000
PARTITION_BYTES: Final = 8 << 20
"""As the coordinator fetches."""


def raw_consumer(bootstrap: str) -> AIOKafkaConsumer:
    """A consumer without a group that fetches as the coordinator does."""
    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        fetch_max_bytes=8 * PARTITION_BYTES,
        max_partition_fetch_bytes=PARTITION_BYTES,
    )


async def read(bootstrap: str, source: TopicPartition, begin: int, end: int) -> tuple[int, float]:
    """Read the range, and add up lengths; records and seconds."""
    consumer = raw_consumer(bootstrap)
    await consumer.start()
    try:
        consumer.assign([source])
        consumer.seek(source, begin)
        begun = time.monotonic()
        seen = size = 0
        position = begin
        while position < end:
            for records in (await consumer.getmany(timeout_ms=200, max_records=MOST_RECORDS)).values():
                seen += len(records)
                size += sum(len(record.value or b"") for record in records)
            position = await consumer.position(source)
        return seen, time.monotonic() - begun
    finally:
        await consumer.stop()


def main() -> None:
    bootstrap, topic, partition, begin, end = sys.argv[1:]
    source = TopicPartition(topic, int(partition))
    print(*asyncio.run(read(bootstrap, source, int(begin), int(end))), flush=True)


if __name__ == "__main__":
    main()
