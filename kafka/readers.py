"""Consumer groups that read a partition: a coordinator is a member of one."""

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
    """Whether a member of a consumer group has the partition, at the latest after so many seconds.

    It waits, since groups assign nothing while they are being put together. Raises KafkaError, also where
    this client may not see groups.
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
    # A coordinator's group is probably named so; others on a shared cluster may be many.
    for name in sorted(names, key=lambda name: ("sluicegate" not in name, name)):
        # One at a time: the client cannot decode an answer that describes several.
        (answer,) = await admin.describe_consumer_groups([name])
        for group in answer.groups:
            if any(_has(member[4], topic, partition) for member in group[5]):
                return True
    return False


def _has(assignment: bytes, topic: str, partition: int) -> bool:
    if not assignment:
        return False
    assigned = ConsumerProtocolMemberAssignment.decode(assignment).assignment
    return any(name == topic and partition in numbers for name, numbers in assigned)
