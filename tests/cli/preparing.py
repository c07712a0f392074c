"""States of a deployment that orders need, each made without a coordinator."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.state_records import encode_record
from sluicegate.events.dead_letters import Letter, Place
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType, partition_of
from sluicegate.events.models import StreamCommand
from sluicegate.kafka.clients import started
from sluicegate.lakes.port import CommitRequest, Published
from sluicegate.lakes.registry import adapter
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, IncarnationMarker
from tests.cli.acting import two_regions
from tests.cli.deployment import PARTITIONS, Deployment
from tests.cli.history import STREAM, History
from tests.hooks.locations import completion, finish, plan

OF_STREAM: Final = ("--stream", STREAM)
Prepare = Callable[[Deployment, Path], tuple[str, ...]]
"""Brings a deployment into the state that an order needs; returns the arguments of the order."""


def produce(
    deployment: Deployment, topic: str, key: Any, value: Any, headers: Any, partition: int = 0
) -> None:
    async def send() -> None:
        servers = deployment.settings.kafka.bootstrap_servers
        async with started(AIOKafkaProducer(bootstrap_servers=servers, acks="all")) as producer:
            await producer.send_and_wait(topic, value, key=key, headers=headers, partition=partition)

    asyncio.run(send())


def fresh(*arguments: str) -> Prepare:
    """Prepare a stream with two regions."""

    def prepare(deployment: Deployment, _: Path) -> tuple[str, ...]:
        two_regions(deployment).send()
        return (*OF_STREAM, *arguments)

    return prepare


def empty(*arguments: str) -> Prepare:
    """Prepare a stream that has decided nothing."""

    def prepare(deployment: Deployment, folder: Path) -> tuple[str, ...]:
        History(deployment).begin().send()
        return (*OF_STREAM, *(each.format(folder=folder) for each in arguments))

    return prepare


def with_savepoint(deployment: Deployment, _: Path) -> tuple[str, ...]:
    history = two_regions(deployment)
    history.append(EventType.STREAM_COMMAND, StreamCommand(command="savepoint", name="s1"))
    history.send()
    return (*OF_STREAM, "--name", "s1")


def with_decision(deployment: Deployment, _: Path) -> tuple[str, ...]:
    history = two_regions(deployment)
    history.decide()
    history.send()
    return (*OF_STREAM, "--decision", "2", "--region", "EWR", "--timeout", "10ms")


def with_provisional(deployment: Deployment, _: Path) -> tuple[str, ...]:
    history = two_regions(deployment)
    history.append(EventType.STREAM_COMMAND, StreamCommand(command="close", number=0))
    history.decide()
    history.commit()
    history.register("LGA", "LGA-1", "LGA", number=1, after=2)
    history.send()
    return OF_STREAM


def with_location(deployment: Deployment, folder: Path) -> tuple[str, ...]:
    root = folder / "checkpoint"
    plan(root, 0, 1)
    finish(root, 0, 1)
    marker = IncarnationMarker(query="q7", incarnation="jfk", stream=STREAM, region="JFK")
    CheckpointLocation(str(root)).write_marker(marker)
    history = History(deployment).begin()
    history.register("JFK", "jfk")
    history.append(EventType.CHECKPOINT_COMPLETED, completion(root, marker, 0), "JFK", marker.incarnation, 0)
    history.decide()
    history.commit()
    history.send()
    return (*OF_STREAM, "--region", "JFK", "--checkpoint-location", str(root), "--silence", "10ms")


def with_lost_topics(deployment: Deployment, _: Path) -> tuple[str, ...]:
    """Put a commit without positions into the table, and make topics that have nothing of it."""
    deployment.create_topics()
    own = deployment.settings.streams[STREAM]
    opened = adapter(own.format)
    committer = opened.open_committer(opened.parse_table(own.table, own.adapter_options()), own.commit_user)
    committer.ask(1, "", committer.inspect().identity, None)
    assert isinstance(committer.publish(CommitRequest(1, "digest", None, None, [])), Published)
    committer.close()
    return (*OF_STREAM, "--position", "EWR=EWR-1:0:d0")


def with_damaged_record(deployment: Deployment, _: Path) -> tuple[str, ...]:
    History(deployment).begin().send()
    deployment.write_state((STREAM.encode(), b"\x00no record"))
    return OF_STREAM


def with_forgotten(deployment: Deployment, _: Path) -> tuple[str, ...]:
    deployment.create_topics()
    record = StateRecord(stream="trains", applied=-1, low_water=0, state=LogState())
    deployment.write_state((b"trains", encode_record(record)))
    return ("--stream", "trains", "--yes")


def with_newer(deployment: Deployment, _: Path) -> tuple[str, ...]:
    """Prepare a stream with a record that only a newer release reads, at the end of its log."""
    two_regions(deployment).send()
    offset = len(deployment.events(STREAM))
    headers = [("ce_type", b"sluicegate.region.heartbeat.v9"), ("ce_stream", STREAM.encode())]
    topic = deployment.settings.kafka.topic_names().events
    produce(deployment, topic, b"newer", b"{}", headers, partition_of(STREAM, PARTITIONS))
    return (*OF_STREAM, "--offset", str(offset))


def with_letter(deployment: Deployment, _: Path) -> tuple[str, ...]:
    History(deployment).begin().send()
    made = encode_event(Envelope("late", EventType.STREAM_COMMAND, STREAM), StreamCommand(command="pause"), 1)
    topic = deployment.settings.kafka.topic_names().events
    letter = Letter(
        Place(topic, 0, 0, 1), "wrong-partition", "a test", made.key, made.value, (*made.headers,)
    )
    key, value, headers = letter.message()
    produce(deployment, deployment.settings.kafka.topic_names().dead_letters, key, value, headers)
    return ("--offset", "0")
