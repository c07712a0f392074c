"""Permissions that this client lacks, as the brokers report them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import IncompatibleBrokerVersion

from sluicegate.kafka.authorized import allowed_group, allowed_topics
from sluicegate.kafka.clients import started
from sluicegate.kafka.patience import patiently
from sluicegate.kafka.permissions import Client, Permission, of_client


class _Allowed(NamedTuple):
    """Bits of the allowed operations: bit N is the operation with the number N. None: not known."""

    topics: Mapping[str, int | None]
    group: int | None


async def lacking(options: Mapping[str, Any], client: Client, prefix: str, group: str) -> list[Permission]:
    """Return the permissions that this client lacks, as the brokers report them.

    Empty with brokers before 2.3. Topics that do not exist count as permitted. Raises KafkaError.
    """
    wanted = of_client(client)
    names = {f"{prefix}.{each.topic}" for each in wanted if each.topic is not None}
    async with started(AIOKafkaAdminClient(**options)) as admin:
        try:
            topics = await patiently(lambda: allowed_topics(admin, names))
            asks_group = any(each.topic is None for each in wanted)
            of_group = await patiently(lambda: allowed_group(admin, group)) if asks_group else None
        except (IncompatibleBrokerVersion, NotImplementedError):
            return []
    found = _Allowed(topics, of_group)
    return [each for each in wanted if not _is_allowed(each, found, prefix)]


def _is_allowed(wanted: Permission, found: _Allowed, prefix: str) -> bool:
    bits = found.group if wanted.topic is None else found.topics.get(f"{prefix}.{wanted.topic}")
    return bits is None or bool(bits >> wanted.operation & 1)
