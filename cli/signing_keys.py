"""Signing key of a command, compared with those of the coordinators before an order is written.

An order with another key is a dead letter for the coordinators, but not for the command that reads it again.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from aiokafka.errors import KafkaError

from sluicegate.cli.errors import UserError
from sluicegate.cli.kafka import read_dated_records
from sluicegate.coordinator.service.keys import GroupKeys, read_keys
from sluicegate.coordinator.settings.model import MemberKeys, Settings, own_keys
from sluicegate.coordinator.stream.other_groups import NEEDS_KEYS

PATIENCE: Final = 10.0
"""Seconds in which a group that changes settles."""
_AGAIN: Final = 0.5
"""Seconds between two looks."""


async def require_accepted_key(settings: Settings, stream: str) -> None:
    """Refuse an order that the coordinators would refuse for its signature. Raises UserError, KafkaError.

    The members of the group give their keys. If none runs, the newest state record of the stream has those of
    its coordinator. Members of older releases publish nothing, and are not compared.
    """
    told = await settled_keys(settings)
    known = () if told is None else told.known
    if not known:
        dated = (await read_dated_records(settings)).get(stream)
        known = () if dated is None or dated.keys is None else (dated.keys,)
    own = own_keys(settings.kafka)
    why = _refusal(own, [each for each in known if each.mode == "required"])
    if why is not None:
        raise UserError(f"the order is not written: {why}")


def _refusal(own: MemberKeys, strict: Sequence[MemberKeys]) -> str | None:
    """Return why members refuse an order of this command, or this command their decisions; None: nobody."""
    for each in strict:
        if own.signs_with is None:
            return NEEDS_KEYS
        if (flaw := _flaw(own.signs_with, each)) is not None:
            name, theirs = own.signs_with[0], ", ".join(dict.fromkeys(_signer(each) for each in strict))
            return (
                f"this command signs with the key {name}, {flaw} {each.place}, where it would be a dead "
                f"letter. They sign with {theirs}: list its file first in kafka.signing.key_files of this "
                "command"
            )
    for each in strict:
        if each.signs_with is not None and own.mode == "required" and _flaw(each.signs_with, own) is not None:
            return (
                f"the coordinators at {each.place} sign with the key {_signer(each)}, which it lacks, has "
                "retired, or has with another content, so it takes their decisions for forged. Add their "
                "file of that key to kafka.signing.key_files of this command"
            )
    return None


def _flaw(key: tuple[str, str], reader: MemberKeys) -> str | None:
    """Return why a reader refuses what is signed with a key, up to the name of the reader; None if not."""
    name, fingerprint = key
    if name not in reader.keys:
        return "which is unknown at"
    if reader.keys[name] != fingerprint:
        return "whose content is another one at"
    return "which is retired at" if name in reader.retired else None


def _signer(member: MemberKeys) -> str:
    return "no key" if member.signs_with is None else member.signs_with[0]


async def settled_keys(settings: Settings) -> GroupKeys | None:
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
