"""Check of `sluicegate check` that compares the signing keys of the members, and of this command."""

import asyncio
import time
from typing import Final

from aiokafka.errors import KafkaError

from sluicegate.cli.finding import Finding, fine, problem, warning
from sluicegate.coordinator.membership.keys import GroupKeys, differences, own_keys, read_keys
from sluicegate.coordinator.settings.model import Settings

PATIENCE: Final = 10.0
"""Seconds in which a group that changes settles."""
_AGAIN: Final = 0.5
"""Seconds between two looks."""


async def check_keys(settings: Settings) -> list[Finding]:
    """Compare the signing keys of the members with each other, and with those of this command.

    Other checks report problems of Kafka and of the group.
    """
    told = await _settled(settings)
    if told is None or not told.known:
        return []
    name = f"group {settings.kafka.group_id}, signing keys"
    everybody = (*told.known, own_keys(settings.kafka, "the settings of this command"))
    found = differences(everybody)
    if found.refused or found.coming:
        return [
            *(problem(name, each) for each in found.refused),
            *(warning(name, each) for each in found.coming),
        ]
    if all(each.mode == "off" for each in everybody):
        return []
    return [fine(name, f"{len(told.known)} of {told.members} members publish their keys, and all fit")]


async def _settled(settings: Settings) -> GroupKeys | None:
    """Return the facts of the members; None if they cannot be read, or the group does not settle."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            told = await read_keys(settings.kafka.client_options(), settings.kafka.group_id)
        except (KafkaError, TimeoutError, OSError):
            return None
        if told is not None or time.monotonic() > deadline:
            return told
        await asyncio.sleep(_AGAIN)
