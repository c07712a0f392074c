"""Differences between the signing keys of members, and the facts that a member publishes in its group."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from sluicegate.coordinator.service.keys import Differences, assignor, differences
from sluicegate.coordinator.settings.model import KafkaSettings, MemberKeys, own_keys
from sluicegate.events.signing import Mode

NONE = Differences()
DAY = 86_400_000


def member(place: str, *keys: str, mode: Mode = "required", since: int = 0, retired: str = "") -> MemberKeys:
    """A member with keys such as `k1` or `k1=other`, for another content."""
    pairs = (each.partition("=") for each in keys)
    told = {name: content or name for name, _, content in pairs}
    return MemberKeys(place=place, mode=mode, keys=told, since=since, retired=(retired,) if retired else ())


@pytest.mark.parametrize(
    "members",
    [
        (),
        (member("a", "k1"),),
        (member("a", mode="off"), member("b", mode="off")),
        (member("a", mode="off"), member("b", "k1", mode="accepted")),
        (member("a", "k1", mode="accepted"), member("b", "k1")),
        (member("a", "k1", "k2"), member("b", "k2", "k1"), member("c", "k1", "k2")),
        (member("a", "k2", "k1", retired="k1"), member("b", "k2", "k1")),
    ],
)
def test_steps_of_an_introduction_and_of_a_change_are_no_differences(members: tuple[MemberKeys, ...]) -> None:
    assert differences(members) == NONE


@pytest.mark.parametrize(
    ("members", "text"),
    [
        (
            (member("a", "k2", "k1"), member("b", "k1")),
            "the signing key k2 signs at a, and is missing at b, where decisions and orders with it are dead "
            "letters. Add its file to the end of kafka.signing.key_files of every member and command, and "
            "restart the members. List it first when all have it",
        ),
        (
            (member("a", "k2", mode="accepted"), member("b", "k1"), member("c", "k2", "k1")),
            "the signing key k2 signs at a and c, and is missing at b, ",
        ),
        (
            (member("a", "k1"), member("b", "k1=another")),
            "the signing key k1 signs at a, and has another content at b, where decisions and orders with it "
            "are dead letters. Give every member the same file, and restart them",
        ),
        (
            (member("a", "k1"), member("b", "k2", "k1", retired="k1"), member("c", "k2", "k1")),
            "the signing key k1 signs at a, and is retired at b, where decisions and orders with it are dead "
            "letters. List another key first in kafka.signing.key_files of every member, and restart them",
        ),
        (
            (member("a", mode="off"), member("b", "k1")),
            "kafka.signing.mode is off at a, and required at b, where decisions and orders without a "
            "signature are dead letters. Give every member and command the same kafka.signing, and restart "
            "the members. Where nothing was signed before, begin with `accepted`",
        ),
    ],
)
def test_records_of_one_member_that_another_refuses(members: tuple[MemberKeys, ...], text: str) -> None:
    refused = differences(members).refused
    assert text in refused[0]
    assert differences(members[::-1]).refused, "the order of the members does not count"


def test_both_of_two_that_refuse_each_other_are_named() -> None:
    found = differences((member("a", "k1"), member("b", "k2")))
    assert [text[:60] for text in found.refused] == [
        "the signing key k1 signs at a, and is missing at b, where de",
        "the signing key k2 signs at b, and is missing at a, where de",
    ]


def test_a_key_that_nobody_signs_with_is_named_before_somebody_does() -> None:
    found = differences((member("a", "k1", "k2"), member("b", "k1"), member("c", mode="off")))
    assert found.coming == (
        "the signing key k2 is at a, and missing at b. Nobody signs with it now, so only older records are "
        "refused there. Add it to kafka.signing.key_files of every member, and restart them, before one "
        "lists it first",
    )


def test_another_time_is_named() -> None:
    found = differences((member("a", "k1", since=DAY), member("b", "k1", since=2 * DAY)))
    assert found == Differences(
        (),
        (
            "kafka.signing.since differs: 1970-01-02T00:00:00Z at a; 1970-01-03T00:00:00Z at b. Unsigned "
            "records from between these times count at some members alone. Give every member the same time, "
            "and restart them",
        ),
    )


def settings_of(folder: Path, content: str = "ab" * 32, **signing: object) -> KafkaSettings:
    file = folder / "2026-11.key"
    file.write_text(content)
    given = {"mode": "required", "key_files": [file], **signing}
    return KafkaSettings.model_validate({"bootstrap_servers": "b:9092", "signing": given})


def test_a_member_publishes_no_key(tmp_path: Path) -> None:
    own = own_keys(settings_of(tmp_path, since=datetime.fromtimestamp(86_400, UTC)))
    assert (own.mode, own.since, [*own.keys]) == ("required", DAY, ["2026-11"])
    assert "abab" not in own.model_dump_json()
    other = own_keys(settings_of(tmp_path, "cd" * 32))
    assert own.keys["2026-11"] != other.keys["2026-11"]
    assert own.keys == own_keys(settings_of(tmp_path)).keys


def test_the_assignor_assigns_as_that_of_the_library() -> None:
    ours, cluster = assignor(member("a", "k1")), ClusterMetadata()
    assert ours.name == RoundRobinPartitionAssignor.name
    members = {name: ours.metadata([]) for name in ("a", "b")}
    assert ours.assign(cluster, members) == RoundRobinPartitionAssignor.assign(cluster, members)
    assert ConsumerProtocolMemberMetadata.decode(ours.metadata(["t"]).encode()).subscription == ["t"]
