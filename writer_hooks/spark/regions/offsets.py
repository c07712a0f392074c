"""Offsets of Kafka sources: the union over all regions, in the notation of Spark, as pure data."""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from sluicegate.writer_hooks.errors import BadOption
from sluicegate.writer_hooks.spark.regions.errors import DivisionRefused

Offsets = dict[str, dict[int, int]]
"""By topic and partition, the next offset to read; -2: the earliest one."""

EARLIEST: Final = -2
LATEST: Final = -1


def parse_offsets(text: str) -> Offsets:
    """Parse offsets in Spark's notation, `{"topic": {"0": 23}}`. Raises BadOption."""
    try:
        found = json.loads(text)
        return {
            str(topic): {int(partition): int(offset) for partition, offset in own.items()}
            for topic, own in found.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise BadOption(
            f"offsets of a Kafka source are no JSON of topics and partitions: {text[:200]}; write them as "
            '{"topic": {"0": 23}}, or earliest or latest'
        ) from error


def to_text(offsets: Mapping[str, Mapping[int, int]]) -> str:
    """Return offsets in Spark's notation."""
    return json.dumps(
        {topic: {str(each): own[each] for each in sorted(own)} for topic, own in sorted(offsets.items())}
    )


def union(regions: Iterable[tuple[str, Offsets]]) -> Offsets:
    """Return the offsets of all regions together; each partition must have one offset.

    Raises DivisionRefused if two regions are at different offsets of one partition: rows between them are
    written in one region, and not in the other.
    """
    found: Offsets = {}
    holders: dict[tuple[str, int], str] = {}
    for region, offsets in regions:
        for topic, own in offsets.items():
            for partition, offset in own.items():
                known = found.setdefault(topic, {}).setdefault(partition, offset)
                holder = holders.setdefault((topic, partition), region)
                if known != offset:
                    raise DivisionRefused(
                        f"the regions {holder} and {region} have read the partition {partition} of the topic "
                        f"{topic} up to different offsets ({known} and {offset}), so no other division "
                        "continues them. Run the old division with the trigger availableNow while nothing "
                        "is produced, and repeat the change"
                    )
    return found


def starts(known: Offsets, assigned: Mapping[str, Iterable[int]]) -> Offsets:
    """Return where the partitions of a region start. An unknown partition is new: it is read whole."""
    return {
        topic: {each: known.get(topic, {}).get(each, EARLIEST) for each in partitions}
        for topic, partitions in assigned.items()
    }
