"""Detection of consumer groups that read a partition; a coordinator is a member of such a group."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from sluicegate.kafka.pauses import spread
from sluicegate.kafka.starting import start_client

_PAUSE: Final = 0.2
_KIND: Final = "consumer"


async def is_read(arguments: Mapping[str, Any], topic: str, partition: int, seconds: float) -> bool:
    """Return True as soon as a member of any consumer group has the partition, else False after `seconds`.

    The function polls, because a group assigns no partitions during a rebalance. Raises KafkaError, also if
    this client lacks the permission to list groups.
    """
    admin = AIOKafkaAdminClient(**arguments)
    deadline = time.monotonic() + seconds
    try:
        await start_client(admin)
        while True:
            if await _has_reader(admin, topic, partition):
                return True
            if time.monotonic() + _PAUSE > deadline:
                return False
            await asyncio.sleep(spread(_PAUSE))
    finally:
        await admin.close()


async def _has_reader(admin: AIOKafkaAdminClient, topic: str, partition: int) -> bool:
    names = [name for name, kind in await admin.list_consumer_groups() if kind == _KIND]
    # A coordinator's group probably has this word in its name. A shared cluster may have many other groups.
    for name in sorted(names, key=lambda name: ("sluicegate" not in name, name)):
        # One group per request: the client cannot decode a response that describes several.
        (answer,) = await admin.describe_consumer_groups([name])
        for group in answer.groups:
            if any(_has(member[4], topic, partition) for member in group[5]):
                return True
    return False


def _has(assignment: bytes, topic: str, partition: int) -> bool:
    # A member has an empty assignment during a rebalance.
    if not assignment:
        return False
    assigned = ConsumerProtocolMemberAssignment.decode(assignment).assignment
    return any(name == topic and partition in numbers for name, numbers in assigned)
