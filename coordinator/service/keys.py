"""Signing keys of the members of a group, compared by fingerprints that each member publishes.

A member without the key that another one signs with takes the decisions of that one for forged. The facts are
in the metadata with which a member joins the group, so the group has those of exactly the members it has now.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import GroupIdNotFound, for_code
from pydantic import ValidationError

from sluicegate.coordinator.observe.messages import iso_time
from sluicegate.coordinator.settings.model import MemberKeys
from sluicegate.kafka.clients import patiently, started

_SETTLED: Final = ("Stable", "Empty", "Dead")
"""States of a group whose members are known. In others, brokers leave their metadata out."""
_FORGED: Final = "where decisions and orders with it are dead letters"


class GroupKeys(NamedTuple):
    """Facts of the members of a group."""

    known: tuple[MemberKeys, ...]
    members: int
    """Number of members, also of those that publish nothing."""


class Differences(NamedTuple):
    """Differences between members, as sentences with the way out."""

    refused: tuple[str, ...] = ()
    """Members take records of others for forged now."""
    coming: tuple[str, ...] = ()
    """The next change of a key would lead to that."""


def assignor(keys: MemberKeys) -> type[RoundRobinPartitionAssignor]:
    """Return the assignor of a member that publishes its keys. It assigns as aiokafka's own one does."""
    told = keys.model_dump_json().encode()

    class PublishesKeys(RoundRobinPartitionAssignor):  # type: ignore[misc]
        @classmethod
        def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
            return ConsumerProtocolMemberMetadata(cls.version, list(topics), told)

    return PublishesKeys


async def read_keys(options: Mapping[str, Any], group: str) -> GroupKeys | None:
    """Return the facts of the members of a group; None while it rebalances. Raises KafkaError."""
    async with started(AIOKafkaAdminClient(**options)) as admin:
        (answer,) = await patiently(lambda: admin.describe_consumer_groups([group]))
    (found,) = answer.groups
    code, _, state, _, _, members, *_ = found
    if for_code(code) is GroupIdNotFound:
        return GroupKeys((), 0)
    if code:
        raise for_code(code)(f"the group {group} cannot be described")
    if state not in _SETTLED:
        return None
    read = [_read(metadata) for _, _, _, metadata, *_ in members]
    return GroupKeys(tuple(each for each in read if each is not None), len(members))


def differences(members: Sequence[MemberKeys]) -> Differences:
    """Compare the members with each other."""
    strict = [each for each in members if each.mode == "required"]
    return Differences(
        (*_unsigned(members, strict), *_refused(members, strict)),
        (*_missing(members), *_other_since(strict)),
    )


def _unsigned(members: Sequence[MemberKeys], strict: Sequence[MemberKeys]) -> Iterable[str]:
    silent = [each for each in members if each.mode == "off"]
    if silent and strict:
        yield (
            f"kafka.signing.mode is off at {_places(silent)}, and required at {_places(strict)}, where "
            "decisions and orders without a signature are dead letters. Give every member and command the "
            "same kafka.signing, and restart the members. Where nothing was signed before, begin with "
            "`accepted`"
        )


def _refused(members: Sequence[MemberKeys], strict: Sequence[MemberKeys]) -> Iterable[str]:
    signers: dict[tuple[str, str], list[MemberKeys]] = {}
    for each in members:
        if (key := each.signs_with) is not None:
            signers.setdefault(key, []).append(each)
    for (name, print_), signing in signers.items():
        lack = [each for each in strict if name not in each.keys]
        other = [each for each in strict if each.keys.get(name, print_) != print_]
        retired = [each for each in strict if name in each.retired]
        signs = f"the signing key {name} signs at {_places(signing)}, and"
        if lack:
            yield (
                f"{signs} is missing at {_places(lack)}, {_FORGED}. Add its file to the end of "
                "kafka.signing.key_files of every member and command, and restart the members. List it "
                "first when all have it"
            )
        if other:
            yield (
                f"{signs} has another content at {_places(other)}, {_FORGED}. Give every member the same "
                "file, and restart them"
            )
        if retired:
            yield (
                f"{signs} is retired at {_places(retired)}, {_FORGED}. List another key first in "
                "kafka.signing.key_files of every member, and restart them"
            )


def _missing(members: Sequence[MemberKeys]) -> Iterable[str]:
    """Yield the keys that nobody signs with yet, and that some members lack."""
    with_keys = [each for each in members if each.mode != "off"]
    used = {key[0] for each in with_keys if (key := each.signs_with) is not None}
    for name in dict.fromkeys(name for each in with_keys for name in each.keys if name not in used):
        have = [each for each in with_keys if name in each.keys]
        lack = [each for each in with_keys if name not in each.keys]
        if lack:
            yield (
                f"the signing key {name} is at {_places(have)}, and missing at {_places(lack)}. Nobody signs "
                "with it now, so only older records are refused there. Add it to kafka.signing.key_files of "
                "every member, and restart them, before one lists it first"
            )


def _other_since(strict: Sequence[MemberKeys]) -> Iterable[str]:
    if len({each.since for each in strict}) > 1:
        shown = "; ".join(f"{iso_time(each.since) or each.since} at {each.place}" for each in strict)
        yield (
            f"kafka.signing.since differs: {shown}. Unsigned records from between these times count at some "
            "members alone. Give every member the same time, and restart them"
        )


def _places(members: Sequence[MemberKeys]) -> str:
    return " and ".join(each.place for each in members)


def _read(metadata: bytes) -> MemberKeys | None:
    """Return the facts in the metadata of a member; None if it has none."""
    try:
        told = ConsumerProtocolMemberMetadata.decode(metadata).user_data
        return MemberKeys.model_validate_json(told or b"")
    except (ValidationError, ValueError):
        return None
