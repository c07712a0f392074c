"""`sluicegate audit` and what any client can append: claims beside other events, resets, and copies."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from sluicegate.events.encoding import Message, encode_event
from sluicegate.events.envelope import Envelope, EventType, partition_of
from sluicegate.events.models import Assignment, Body, RegionHeartbeat, RegionRegistered, StreamCommand
from sluicegate.events.orders import Order, order_header
from sluicegate.kafka.clients import started
from tests.cli.acting import two_regions
from tests.cli.deployment import PARTITIONS, Deployment
from tests.cli.history import STREAM
from tests.cli.preparing import OF_STREAM, produce
from tests.cli.test_audit import append, audited

pytestmark = pytest.mark.kafka
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
    return {
        "SLUICEGATE_KAFKA__SIGNING__MODE": "required",
        "SLUICEGATE_KAFKA__SIGNING__KEY_FILES": str(key),
    }


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


def test_a_claim_beside_a_heartbeat_makes_no_order(deployment: Deployment, required: dict[str, str]) -> None:
    two_regions(deployment).send()
    heartbeat = Envelope("h1", EventType.REGION_HEARTBEAT, STREAM, "EWR", "ewr")
    append(deployment, claimed(heartbeat, RegionHeartbeat(run="r1")))
    for variables in ({}, required):
        shown = deployment.run("audit", *OF_STREAM, **variables)
        assert (shown.exit_code, shown.stdout) == (0, f"the log has no order of stream {STREAM}\n")


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
