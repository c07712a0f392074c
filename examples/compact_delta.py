"""Compaction of the partitions of a Delta table that have got small files, one after the other.

Each commit of the stream is announced on the commits topic, with the partitions that got files and the sizes
of these files. This program counts the small ones, and compacts a partition with deltalake once it has
enough. A crash repeats a compaction at most: then there is nothing left to compact.

    python examples/compact_delta.py 127.0.0.1:9092 sluicegate.commits flights
"""

import argparse
import asyncio
import json
from typing import Any
from urllib.parse import unquote, urlsplit

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from deltalake import DeltaTable

VISIBLE = (b"sluicegate.commit.visible.v5", b"sluicegate.commit.partially_visible.v5")


class SmallFiles:
    """Small files of each partition since its last compaction."""

    def __init__(self, smaller_than: int, most: int) -> None:
        self._smaller_than = smaller_than
        self._most = most
        self._counts: dict[str, int] = {}
        self._since: dict[str, int] = {}

    def add(self, summary: dict[str, Any], offset: int) -> list[dict[str, str | None]]:
        """Count the files of a commit; return the partitions that have enough of them now."""
        full = []
        # Null: the texts of the partitions were too long, or the coordinator did not see the whole commit.
        touched, sizes = summary.get("touched") or [], summary.get("sizes") or []
        for partition, found in zip(touched, sizes, strict=False):
            small = sum(each["files"] for each in found if each["below"] <= self._smaller_than)
            if not small:
                continue
            key = json.dumps(partition, sort_keys=True)
            self._since.setdefault(key, offset)
            self._counts[key] = self._counts.get(key, 0) + small
            if self._counts[key] >= self._most:
                full.append(partition)
                del self._counts[key], self._since[key]
        return full

    def first_needed(self, offset: int) -> int:
        """Return the offset from which a restart counts the same, after the message at `offset`."""
        return min([*self._since.values(), offset + 1])


def compact(uri: str, partition: dict[str, str | None]) -> str:
    """Compact one partition; return a line about it."""
    # deltalake takes a local table by its path.
    table = DeltaTable(unquote(urlsplit(uri).path) if uri.startswith("file:") else uri)
    # An empty text is null in every Delta table.
    filters = [(name, "=", value or "") for name, value in partition.items()]
    made = table.optimize.compact(partition_filters=filters or None)
    return f"{partition or uri}: {made['numFilesRemoved']} files became {made['numFilesAdded']}"


def summary_in(record: ConsumerRecord, stream: str) -> dict[str, Any] | None:
    """Return the summary of a commit of the stream; None for every other message."""
    headers = dict(record.headers)
    if headers.get("ce_type") not in VISIBLE or headers.get("ce_stream") != stream.encode():
        return None
    summary: dict[str, Any] | None = json.loads(record.value).get("summary")
    return summary


async def follow(bootstrap: str, topic: str, stream: str, counts: SmallFiles) -> None:
    """Compact what the commits of a stream leave, until the program is stopped."""
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
            if (summary := summary_in(record, stream)) is not None:
                for partition in counts.add(summary, record.offset):
                    print(await asyncio.to_thread(compact, summary["table"], partition), flush=True)
                # After the work: a restart counts again from the oldest commit whose files wait for others.
                place = TopicPartition(record.topic, record.partition)
                await consumer.commit({place: counts.first_needed(record.offset)})
    finally:
        await consumer.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bootstrap")
    parser.add_argument("topic", help="the commits topic, such as sluicegate.commits")
    parser.add_argument("stream")
    parser.add_argument(
        "--smaller-than", type=int, default=32 << 20, help="bytes below which a file is small"
    )
    parser.add_argument("--files", type=int, default=20, help="small files that a partition is compacted for")
    given = parser.parse_args()
    small = SmallFiles(given.smaller_than, given.files)
    asyncio.run(follow(given.bootstrap, given.topic, given.stream, small))
