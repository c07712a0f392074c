"""`sluicegate audit`: each order leaves an entry with its sender, its reason and its effect."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, get_args

import click
import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from sluicegate.cli.history import COMMANDS
from sluicegate.cli.main import main
from sluicegate.events.encoding import Message, encode_event
from sluicegate.events.envelope import Envelope, EventType, partition_of
from sluicegate.events.models import (
    Assignment,
    Body,
    Command,
    RegionHeartbeat,
    RegionRegistered,
    StreamCommand,
)
from sluicegate.events.orders import ORDER, Order, order_header
from sluicegate.kafka.clients import started
from tests.cli.acting import two_regions
from tests.cli.deployment import PARTITIONS, Deployment, as_json
from tests.cli.history import STREAM
from tests.cli.preparing import (
    OF_STREAM,
    Prepare,
    empty,
    fresh,
    produce,
    with_damaged_record,
    with_decision,
    with_forgotten,
    with_letter,
    with_location,
    with_lost_topics,
    with_newer,
    with_provisional,
    with_savepoint,
)
from tests.cli.test_command_tree import tree

SENDER: Final = ("--by", "alice", "--reason", "a test, café")

ORDERS: Final[dict[str, tuple[Prepare, int]]] = {
    "assignment close": (fresh(), 0),
    "assignment withdraw": (with_provisional, 0),
    "commit revert": (with_decision, 1),
    "dead-letters drop": (with_letter, 0),
    "dead-letters retry": (with_letter, 0),
    "orphans delete": (empty(), 0),
    "region remove": (fresh("--region", "EWR"), 0),
    "region reset": (with_location, 0),
    "replay rebuild": (empty("--into", "{folder}/again"), 0),
    "replay repair": (empty(), 0),
    "stream adopt": (with_lost_topics, 0),
    "stream cancel": (with_savepoint, 0),
    "stream drain": (fresh("--name", "d1", "--timeout", "10ms"), 1),
    "stream forget": (with_forgotten, 0),
    "stream pause": (fresh(), 0),
    "stream recover": (with_damaged_record, 0),
    "stream resume": (fresh(), 0),
    "stream skip": (with_newer, 0),
    "stream savepoint": (fresh("--name", "s1", "--timeout", "10ms"), 1),
}
"""Orders, with what each one needs, and its exit status where no coordinator runs."""

FIRST_AND_OTHERS: Final = [
    each
    if each in ("orphans delete", "stream forget", "stream savepoint", "region reset")
    else pytest.param(each, marks=pytest.mark.matrix)
    for each in ORDERS
]
"""For `make test`, one of each kind: a note, one of no configured stream, one that waits, a reset."""

NOTES: Final = {
    *("dead-letters drop", "dead-letters retry", "orphans delete", "replay rebuild", "replay repair"),
    *("stream adopt", "stream forget", "stream recover"),
}
"""Orders whose work is outside of the log."""

NO_ORDERS: Final = {
    *("audit", "check", "conformance", "demo", "history", "init", "run", "servers"),
    *("status", "up", "wait", "dead-letters list", "dead-letters show", "orphans list", "replay verify"),
    *("topics create", "uploads discard", "uploads drain", "uploads list"),
}
"""Commands that change nothing of a stream, that set a deployment up, or that are about one machine."""


def append(deployment: Deployment, message: Message) -> None:
    """Append to the log of the stream, as any client may."""
    topic = deployment.settings.kafka.topic_names().events
    produce(deployment, topic, *message, partition=partition_of(STREAM, PARTITIONS))


def command(body: StreamCommand, *headers: tuple[str, bytes]) -> Message:
    made = encode_event(Envelope("forged", EventType.STREAM_COMMAND, STREAM), body, 1)
    return made._replace(headers=[*made.headers, *headers])


def audited(deployment: Deployment, *more: str, stream: str = STREAM, **env: str) -> list[dict[str, Any]]:
    result = deployment.run("audit", "--stream", stream, "--json", *more, **env)
    assert result.exit_code == 0, result.output
    orders: list[dict[str, Any]] = as_json(result)["orders"]
    return orders


def commands() -> dict[str, click.Command]:
    """Return every command by its words."""
    found: dict[str, click.Command] = {}
    for name, each in tree(main):
        if isinstance(each, click.Group):
            found |= {f"{name} {verb}": member for verb, member in tree(each)}
        else:
            found[name] = each
    return found


@pytest.mark.seam
def test_every_command_is_an_order_or_none() -> None:
    found = commands()
    assert {*found} == {*ORDERS} | NO_ORDERS
    by = {name for name, each in found.items() if {"by", "reason"} <= {option.name for option in each.params}}
    assert by == {*ORDERS}


@pytest.mark.seam
def test_every_order_of_the_log_has_a_name_and_commands_that_write_it() -> None:
    assert {*COMMANDS} == {*get_args(Command)}
    assert {writer for _, writers in COMMANDS.values() for writer in writers} <= {*ORDERS}


@pytest.mark.seam
@pytest.mark.kafka
@pytest.mark.parametrize("words", FIRST_AND_OTHERS)
def test_every_order_leaves_an_entry(words: str, deployment: Deployment, tmp_path: Path) -> None:
    prepare, status = ORDERS[words]
    arguments = prepare(deployment, tmp_path)
    result = deployment.run(*words.split(), *arguments, *SENDER)
    assert result.exit_code == status, result.output
    stream = "trains" if words == "stream forget" else STREAM
    found = [each for each in audited(deployment, stream=stream) if each["claim"] is not None]
    (claim,) = {json.dumps(each["claim"]) for each in found if each["claim"]["order"] == words}
    assert json.loads(claim).items() >= {"by": "alice", "reason": "a test, café"}.items()
    assert json.loads(claim)["host"]
    effects = {each["effect"] for each in found}
    assert effects == ({"noted"} if words in NOTES else {"accepted"})
    shown = deployment.run("audit", "--stream", stream)
    assert shown.exit_code == 0, shown.output
    assert any(
        f"  {words}" in line and " by alice on " in line and '"a test, café"' in line
        for line in shown.stdout.splitlines()
    ), shown.output
    assert "not signed: the sender is only a claim" in shown.stdout


HOSTILE: Final = {
    "escape": "\x1b[2Jgone",
    "line": "one\ntwo",
    "return": "one\rtwo",
    "null": "one\x00two",
    "bidirectional": "one\u202etwo",
    "c1": "one\x9b2J",
    "long": "x" * (1 << 20),
}


@pytest.mark.seam
@pytest.mark.parametrize("option", ["--by", "--reason"])
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("words", ORDERS)
def test_hostile_text_is_refused_before_anything_is_done(
    words: str, kind: str, option: str, nobody: Deployment
) -> None:
    result = nobody.run(*words.split(), option, HOSTILE[kind])
    assert result.exit_code == 2
    assert option in result.stderr
    assert len(result.output) < 2_000
    assert not any(each in result.output for each in "\x1b\x00\r\u202e\x9b")
    assert "Kafka" not in result.output


@pytest.mark.seam
@pytest.mark.kafka
def test_what_any_client_may_append_is_escaped(deployment: Deployment) -> None:
    two_regions(deployment).send()
    claim = Order(order="stream pause", by="a", host="h", at=1, release="1").model_dump()
    for text in HOSTILE.values():
        raw = json.dumps(claim | {"by": text}).encode()[: 1 << 19]
        append(deployment, command(StreamCommand(command="pause"), (ORDER, raw)))
    append(deployment, command(StreamCommand(command="remove", region="EWR", number=9)))
    made = command(StreamCommand(command="pause"))
    append(deployment, made._replace(value=b'{"command": "\\u001b[2J"}'))
    found = audited(deployment)
    assert [each["claim_malformed"] for each in found] == [True] * len(HOSTILE) + [False] * 2
    assert all(each["claim"] is None for each in found)
    assert [each["code"] for each in found[-2:]] == ["not-applicable", "malformed-body"]
    shown = deployment.run("audit", *OF_STREAM)
    assert len(shown.stdout.splitlines()) == len(HOSTILE) + 2
    assert all(line.isprintable() for line in shown.stdout.splitlines())
    assert shown.stdout.count("by a sender whose claim is malformed") == len(HOSTILE)
    assert "remove (region EWR, number 9) by an unnamed sender: refused: " in shown.stdout


@pytest.mark.seam
@pytest.mark.kafka
def test_later_outcomes_are_part_of_an_entry(deployment: Deployment) -> None:
    history = two_regions(deployment)
    for name in ("s1", "s2"):
        history.append(EventType.STREAM_COMMAND, StreamCommand(command="savepoint", name=name))
    history.append(EventType.STREAM_COMMAND, StreamCommand(command="cancel", name="s2"))
    history.decide()
    history.commit()
    for region in ("EWR", "JFK"):
        history.complete(region, 2)
    history.decide()
    history.append(EventType.STREAM_COMMAND, StreamCommand(command="revert", decision=3, region="EWR"))
    history.revert()
    history.send()
    found = [
        (each["command"]["command"], each["outcome"], each["outcome_decision"])
        for each in audited(deployment)
    ]
    assert found == [
        ("savepoint", "reached", 2),
        ("savepoint", "cancelled", None),
        ("cancel", None, None),
        ("revert", "reverted", 3),
    ]
    text = deployment.run("audit", *OF_STREAM).stdout
    for part in ("reached with decision 2", "cancelled later", "decision 3 is reverted"):
        assert part in text


@pytest.mark.seam
@pytest.mark.kafka
def test_a_signed_order_is_told_from_a_forged_one(deployment: Deployment, tmp_path: Path) -> None:
    key = tmp_path / "k1.key"
    key.write_text("11" * 32 + "\n")
    signing = {
        "SLUICEGATE_KAFKA__SIGNING__MODE": "accepted",
        "SLUICEGATE_KAFKA__SIGNING__KEY_FILES": str(key),
    }
    two_regions(deployment).send()
    ordered = deployment.run("stream", "pause", *OF_STREAM, "--by", "alice", **signing)
    assert ordered.exit_code == 0, ordered.output
    claim = order_header(Order(order="stream resume", by="alice", host="h", at=1, release="1"))
    append(deployment, command(StreamCommand(command="resume"), claim))
    found = audited(deployment, **signing)
    assert [(each["claim"]["by"], each["signature"]) for each in found] == [
        ("alice", "valid"),
        ("alice", "unsigned"),
    ]
    since = {**signing, "SLUICEGATE_KAFKA__SIGNING__MODE": "required"}
    assert [(each["effect"], each["code"]) for each in audited(deployment, **since)] == [
        ("accepted", None),
        ("refused", "signature"),
    ]
    assert [each["signature"] for each in audited(deployment)] == ["unchecked", "unsigned"]
    # It is checked also if it is from before the time from which on one is needed.
    later = {**since, "SLUICEGATE_KAFKA__SIGNING__SINCE": "2100-01-01T00:00:00Z"}
    assert [each["signature"] for each in audited(deployment, **later)] == ["valid", "unsigned"]
    lines = deployment.run("audit", *OF_STREAM, **since).stdout
    assert "; signed" in lines
    assert ".;" not in lines


RESUME: Final = StreamCommand(command="resume")
CLAIM: Final = order_header(Order(order="stream pause", by="alice", host="hq", at=1, release="1"))


def claimed(envelope: Envelope, body: Body) -> Message:
    """Return an event of a writer, with the claim to be an order."""
    made = encode_event(envelope, body, 1)
    return made._replace(headers=[*made.headers, CLAIM])


@pytest.fixture
def required(tmp_path: Path) -> dict[str, str]:
    """Variables of a deployment that signs."""
    key = tmp_path / "k1.key"
    key.write_text("11" * 32 + "\n")
    return {"SLUICEGATE_KAFKA__SIGNING__MODE": "required", "SLUICEGATE_KAFKA__SIGNING__KEY_FILES": str(key)}


def newest(deployment: Deployment) -> ConsumerRecord:
    """Return the last record of the stream's partition, as it is in the log."""
    topic = deployment.settings.kafka.topic_names().events
    place = TopicPartition(topic, partition_of(STREAM, PARTITIONS))

    async def read() -> Any:
        consumer = AIOKafkaConsumer(bootstrap_servers=deployment.settings.kafka.bootstrap_servers)
        async with started(consumer):
            consumer.assign([place])
            consumer.seek(place, (await consumer.end_offsets([place]))[place] - 1)
            return await consumer.getone(place)

    return asyncio.run(read())


def append_again(deployment: Deployment, record: ConsumerRecord) -> None:
    """Append a copy, as any client can. A trace of its own is no change."""
    headers = [*record.headers, ("traceparent", b"00-1-1-00")]
    topic = deployment.settings.kafka.topic_names().events
    produce(deployment, topic, record.key, record.value, headers, partition=partition_of(STREAM, PARTITIONS))


@pytest.mark.kafka
def test_a_claim_beside_a_heartbeat_makes_no_order(deployment: Deployment, required: dict[str, str]) -> None:
    two_regions(deployment).send()
    heartbeat = Envelope("h1", EventType.REGION_HEARTBEAT, STREAM, "EWR", "ewr")
    append(deployment, claimed(heartbeat, RegionHeartbeat(run="r1")))
    for variables in ({}, required):
        shown = deployment.run("audit", *OF_STREAM, **variables)
        assert (shown.exit_code, shown.stdout) == (0, f"the log has no order of stream {STREAM}\n")


@pytest.mark.kafka
def test_a_reset_without_a_signature_is_only_a_claim(
    deployment: Deployment, required: dict[str, str]
) -> None:
    two_regions(deployment).send()
    reset = Envelope("r1", EventType.REGION_REGISTERED, STREAM, "EWR", "again")
    body = RegionRegistered(replaces="ewr", assignment=Assignment(number=0, regions=("EWR", "JFK")))
    append(deployment, claimed(reset, body))
    (line,) = deployment.run("audit", *OF_STREAM, **required).stdout.splitlines()
    assert 'region reset (region EWR), CLAIMED AS "stream pause", by alice on hq: ' in line
    assert line.endswith("; not signed: the sender is only a claim")
    assert [(each["signature"], each["region"]) for each in audited(deployment, **required)] == [
        ("unsigned", "EWR")
    ]


@pytest.mark.kafka
def test_a_copy_of_a_signed_order_is_no_second_order(
    deployment: Deployment, required: dict[str, str]
) -> None:
    two_regions(deployment).send()
    for _ in range(2):
        # Two orders of the same words are two: each has an id of its own.
        assert deployment.run("stream", "pause", *OF_STREAM, "--by", "alice", **required).exit_code == 0
    order = newest(deployment)
    append(deployment, encode_event(Envelope("c1", EventType.STREAM_COMMAND, STREAM), RESUME, 1))
    append_again(deployment, order)
    found = audited(deployment, **required)
    assert [each["copy_of"] for each in found] == [None, None, None, order.offset]
    assert [each["signature"] for each in found] == ["valid", "valid", "unsigned", "valid"]
    *_, second, _, copy = deployment.run("audit", *OF_STREAM, **required).stdout.splitlines()
    assert second.endswith("; signed")
    told = f"; signed; A COPY of the order at offset {order.offset}, with the same id: anybody can append one"
    assert copy.endswith(told)
    # Also if the order itself is from before the time that is asked for, or is not among the newest.
    later = datetime.fromtimestamp((order.timestamp + 1) / 1000, UTC).isoformat()
    for chosen in (("--last", "1"), ("--since", later)):
        assert audited(deployment, *chosen, **required)[-1]["copy_of"] == order.offset
    # Without the keys, a copy is told as well.
    assert audited(deployment)[-1]["copy_of"] == order.offset
