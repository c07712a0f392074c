"""Ownership of a stream by one group of coordinators, from the signatures of records and decisions.

Two groups on one stream commit nothing twice, because both make the same decisions. But each would answer
registrations, write records and send notifications. So the second group waits.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupAuthorizationFailedError, GroupIdNotFound, for_code

from sluicegate.kafka.clients import patiently, started

GROUP_HEADER: Final = "sluicegate-group"
SIGNING_HEADER: Final = "sluicegate-signing"
"""Mode of the signatures with which a coordinator wrote a state record; absent: off."""
NEEDS_KEYS: Final = (
    "the coordinators take no decision or order without a signature. Give this command their settings, with "
    "kafka.signing.mode and kafka.signing.key_files"
)
"""Reason for which a command without keys does not read a log: it cannot see which records are forged."""


def must_sign(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """True if the coordinator that wrote a state record refuses decisions and orders without a signature."""
    return dict(headers).get(SIGNING_HEADER) == b"required"


class OwnedElsewhere(Exception):
    """Another group serves the stream; the text has the remedy."""


def group_named(headers: Iterable[tuple[str, bytes | None]]) -> str | None:
    """Return the group that wrote a record or a decision; None for unsigned ones."""
    named = dict(headers).get(GROUP_HEADER)
    return named.decode(errors="replace") if named else None


async def group_members(options: Mapping[str, Any], group: str) -> int | None:
    """Return the number of coordinators in a group; None without permission to describe it.

    A killed coordinator counts until its session times out. Raises KafkaError.
    """
    async with started(AIOKafkaAdminClient(**options)) as admin:
        try:
            return await patiently(lambda: _members(admin, group))
        except GroupIdNotFound:
            return 0
        except GroupAuthorizationFailedError:
            return None


async def _members(admin: AIOKafkaAdminClient, group: str) -> int:
    """Return the number of members of a group. Raises KafkaError."""
    (answer,) = await admin.describe_consumer_groups([group])
    (found,) = answer.groups
    if found[0]:
        raise for_code(found[0])(f"the group {group} cannot be described")
    return len(found[5])


async def refuse_other_groups(options: Mapping[str, Any], own: str, wrote: Mapping[str, str | None]) -> None:
    """Refuse streams whose newest state record was written by another group that still has members.

    `wrote` is the group that wrote the record, by stream. Raises OwnedElsewhere, KafkaError.
    """
    for stream, other in sorted(wrote.items()):
        if other is None or other == own:
            continue
        members = await group_members(options, other)
        if members == 0:
            continue
        alive = "whose members cannot be seen from here" if members is None else f"of {members} now"
        raise OwnedElsewhere(
            f"stream {stream} is served by the coordinators of the group {other} ({alive}), and this one is "
            f"of the group {own}; one stream has one group. Give both the same kafka.group_id, or stop those "
            f"of {other}: then this one continues by itself. To see them, this group needs the permission to "
            f"describe the group {other}"
        )
