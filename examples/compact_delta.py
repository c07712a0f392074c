"""Compaction of the partitions of a Delta table that have got small files, one after the other.

The stream has a listener of the type `small-files`. Its hints are on the commits topic. For each, this
program compacts one partition with deltalake. A hint may come twice: then there is nothing left to compact.

    python examples/compact_delta.py 127.0.0.1:9092 sluicegate.commits flights
"""

import argparse
import asyncio
import json
from urllib.parse import unquote, urlsplit

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from deltalake import DeltaTable

HINT = b"sluicegate.partition.small_files.v2"


def compact(hint: dict[str, object]) -> str:
    """Compact the partition of a hint; return a line about it."""
    uri, values = str(hint["table"]), hint["values"]
    # deltalake takes a local table by its path.
    table = DeltaTable(unquote(urlsplit(uri).path) if uri.startswith("file:") else uri)
    # An empty text is null in every Delta table.
    filters = [(name, "=", value or "") for name, value in dict(values).items()]  # type: ignore[call-overload]
    made = table.optimize.compact(partition_filters=filters or None)
    return f"{hint['partition'] or uri}: {made['numFilesRemoved']} files became {made['numFilesAdded']}"


def hint_in(record: ConsumerRecord, stream: str) -> dict[str, object] | None:
    """Return the hint in a message; None for every other message."""
    headers = dict(record.headers)
    if headers.get("ce_type") != HINT or headers.get("ce_stream") != stream.encode():
        return None
    found: dict[str, object] = json.loads(record.value)
    return found


async def follow(bootstrap: str, topic: str, stream: str) -> None:
    """Compact as the hints of a stream ask for, until the program is stopped."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"compact-{stream}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        async for record in consumer:
            if (hint := hint_in(record, stream)) is not None:
                print(await asyncio.to_thread(compact, hint), flush=True)
                # After the work: a crash repeats the hint.
                await consumer.commit()
    finally:
        await consumer.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bootstrap")
    parser.add_argument("topic", help="the commits topic, such as sluicegate.commits")
    parser.add_argument("stream")
    given = parser.parse_args()
    asyncio.run(follow(given.bootstrap, given.topic, given.stream))
