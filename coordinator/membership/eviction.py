"""Evicts members of dead local processes from the consumer group, so that no session timeout is needed.

Every member of the host does that: those that run, and those that start again.
"""

import asyncio
from typing import Any, Final, NamedTuple

import structlog
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import GroupIdNotFound, KafkaError, UnknownMemberIdError, for_code
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.group import LeaveGroupRequest

from sluicegate.coordinator.membership.local import LocalMembership
from sluicegate.coordinator.settings.kafka import KafkaSettings
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import reach

log = structlog.get_logger(__name__)

_POLL: Final = 0.05
WATCH: Final = 0.5
"""Seconds between two searches of this host for dead members."""


class _Member(NamedTuple):
    member_id: str
    client_id: str


async def watch_members(kafka: KafkaSettings, membership: LocalMembership) -> None:
    """Evict each member of this host that dies, without end, so that its partitions move at once.

    A failed eviction is tried again after a session: until then the session timeout does the same.
    """
    while True:
        membership.find_dead()
        evicted = not membership.dead or await evict_dead_members(kafka, membership)
        await asyncio.sleep(WATCH if evicted else kafka.session_timeout)


async def evict_dead_members(kafka: KafkaSettings, membership: LocalMembership) -> bool:
    """Evict the dead members of this host from the group. Return False if that failed.

    Eviction starts only after this process is in the group. Otherwise the group would be empty in between,
    and the broker delays the first rebalance of an empty group (`group.initial.rebalance.delay.ms`). If it
    fails, the session timeout does the same later.
    """
    try:
        async with asyncio.timeout(kafka.session_timeout + kafka.request_timeout):
            if await _evict(kafka, membership):
                membership.forget_dead()
    except (KafkaError, TimeoutError, OSError) as error:
        log.warning(
            "the group was not searched for killed members; the session of each ends by itself",
            error=repr(error),
        )
        return False
    return True


async def _evict(kafka: KafkaSettings, membership: LocalMembership) -> bool:
    """Return True once the group has none of the dead members.

    The loop has no limit of its own; the caller's timeout ends it.
    """
    client = AIOKafkaClient(**kafka.client_options())
    try:
        await client.bootstrap()
        while True:
            try:
                if await _evict_once(client, kafka.group_id, membership):
                    return True
            except KafkaError as error:
                # A new cluster has no coordinator of the group yet, and a restarted one looks for it.
                if not error.retriable:
                    raise
            await asyncio.sleep(_POLL)
    finally:
        await client.close()


async def _evict_once(client: AIOKafkaClient, group: str, membership: LocalMembership) -> bool:
    """Evict the dead members that the group has; True if this process is in it, and none of them is."""
    node = await _coordinator(client, group)
    members = await _members(client, node, group)
    if not any(member.client_id == membership.client_id for member in members):
        return False
    dead = [member for member in members if member.client_id in membership.dead]
    if not dead:
        return True
    await reach(Failpoint.EVICT_BEFORE)
    for member in dead:
        await _leave(client, node, group, member)
    await reach(Failpoint.EVICT_AFTER)
    return False


async def _coordinator(client: AIOKafkaClient, group: str) -> int:
    answer = await client.send(client.get_random_node(), FindCoordinatorRequest(group, 0))
    _check(answer.error_code)
    node: int = answer.coordinator_id
    return node


async def _members(client: AIOKafkaClient, node: int, group: str) -> list[_Member]:
    answer: Any = await client.send(node, DescribeGroupsRequest([group]))
    found: list[_Member] = []
    for error_code, _, _, _, _, members, *_ in answer.groups:
        # A new group may not exist yet: it has no members.
        if for_code(error_code) is not GroupIdNotFound:
            _check(error_code)
        found += [_Member(member_id, client_id) for member_id, client_id, *_ in members]
    return found


async def _leave(client: AIOKafkaClient, node: int, group: str, member: _Member) -> None:
    answer = await client.send(node, LeaveGroupRequest(group, member.member_id))
    # The member may have left or timed out in the meantime.
    if for_code(answer.error_code) is not UnknownMemberIdError:
        _check(answer.error_code)
    log.info("took a killed member out of the group", member=member.member_id)


def _check(error_code: int) -> None:
    if error_code:
        raise for_code(error_code)()
