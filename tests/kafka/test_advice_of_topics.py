"""What is advised about topics and events is done, with the printed commands where there are any."""

import argparse
import asyncio
import os
import shlex
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from sluicegate.embedded.jars import kafka_jars
from sluicegate.embedded.java import find_java
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType, with_counts
from sluicegate.events.files import FileTooLarge, split_files
from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.kafka.clients import started
from sluicegate.kafka.topics import (
    MAX_MESSAGE_BYTES,
    BrokersUnavailable,
    TopicNames,
    TopicsRefused,
    ensure_topics,
    topic_specs,
    verify_topics,
)
from tests.kafka.test_topics import create


@pytest.fixture
def names() -> TopicNames:
    return TopicNames(f"t{uuid.uuid4().hex[:12]}")


async def follow(remedy: str) -> None:
    """Do what a printed command of Kafka's does.

    The embedded broker has no class behind `kafka-topics.sh`, so its options go to an admin client.
    """
    command, *options = shlex.split(remedy.partition(": ")[2])
    if command == "kafka-configs.sh":
        java = find_java()
        path = os.pathsep.join(str(jar) for jar in kafka_jars(java))
        run = [str(java.executable), "-XX:TieredStopAtLevel=1", "-cp", path, "kafka.admin.ConfigCommand"]
        await asyncio.to_thread(subprocess.run, [*run, *options], check=True, capture_output=True)
        return
    assert command == "kafka-topics.sh"
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--create", action="store_true")
    parser.add_argument("--alter", action="store_true")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--replication-factor", type=int)
    parser.add_argument("--config", action="append", default=[])
    given = parser.parse_args(options)
    assert given.create != given.alter
    settings = dict(each.split("=", 1) for each in given.config)
    async with started(AIOKafkaAdminClient(bootstrap_servers=given.bootstrap_server)) as admin:
        if given.create:
            topic = NewTopic(given.topic, given.partitions, given.replication_factor, topic_configs=settings)
            await admin.create_topics([topic])
        else:
            await admin.create_partitions({given.topic: NewPartitions(given.partitions)})


async def delete(bootstrap: str, *topics: str) -> None:
    async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        await admin.delete_topics(list(topics))
        while set(topics) & set(await admin.list_topics()):
            pass


@pytest.mark.kafka
@pytest.mark.parametrize("wrong", ["missing", "short", "setting"])
async def test_topics_are_in_order_after_the_printed_commands(
    kafka_bootstrap: str, names: TopicNames, wrong: str
) -> None:
    events, commits, state, dead_letters = specs = topic_specs(names, partitions=3)
    advice = {
        "missing": "Create it: kafka-topics.sh --bootstrap-server",
        "short": "Add the partitions that are missing: kafka-topics.sh",
        "setting": "Set it: kafka-configs.sh --bootstrap-server",
    }[wrong]
    if wrong == "short":
        await create(kafka_bootstrap, events, commits, replace(state, partitions=2), dead_letters)
    if wrong == "setting":
        other = replace(state, settings={**state.settings, "cleanup.policy": "delete"})
        await create(kafka_bootstrap, events, commits, other, dead_letters)
    problems = await verify_topics(kafka_bootstrap, specs)
    assert len(problems) == (4 if wrong == "missing" else 1)
    for problem in problems:
        assert problem.remedy.startswith(advice)
        await follow(problem.remedy)
    # The broker answers before its own metadata shows the topics.
    await ensure_topics(kafka_bootstrap, specs)
    while remaining := await verify_topics(kafka_bootstrap, specs):
        assert set(remaining) <= set(problems), "nothing but what its metadata does not show yet"


@pytest.mark.kafka
@pytest.mark.parametrize("way", ["create it again", "use another topic prefix"])
async def test_too_many_partitions_end_with_a_new_topic(
    kafka_bootstrap: str, names: TopicNames, way: str
) -> None:
    events, commits, state, dead_letters = specs = topic_specs(names, partitions=3)
    await create(kafka_bootstrap, events, commits, replace(state, partitions=4), dead_letters)
    (problem,) = await verify_topics(kafka_bootstrap, specs)
    assert "delete it and create it again; otherwise use another topic prefix, or another" in problem.remedy
    assert way in problem.remedy
    if way == "create it again":
        await delete(kafka_bootstrap, problem.topic)
    else:
        specs = topic_specs(TopicNames(f"{names.prefix}-new"), partitions=3)
    await ensure_topics(kafka_bootstrap, specs)
    assert await verify_topics(kafka_bootstrap, specs) == []


@pytest.mark.kafka
@pytest.mark.parametrize("way", ["change the setting", "create the topic yourself"])
async def test_a_topic_that_the_broker_refuses_is_asked_for_otherwise(
    kafka_bootstrap: str, names: TopicNames, way: str
) -> None:
    specs = topic_specs(names, replication_factor=3, partitions=1)
    with pytest.raises(TopicsRefused) as raised:
        await ensure_topics(kafka_bootstrap, specs)
    assert str(raised.value).endswith("change the setting, or create the topic yourself")
    possible = topic_specs(names, replication_factor=1, partitions=1)
    if way == "change the setting":
        specs = possible
    else:
        await create(kafka_bootstrap, *possible)
    await ensure_topics(kafka_bootstrap, specs)
    assert await verify_topics(kafka_bootstrap, specs) == []


@pytest.mark.kafka
async def test_an_address_that_is_checked_and_corrected_is_answered(
    kafka_bootstrap: str, names: TopicNames, unused_tcp_port: int
) -> None:
    specs = topic_specs(names, partitions=1)
    with pytest.raises(BrokersUnavailable, match="check the address and the security settings"):
        await ensure_topics(f"127.0.0.1:{unused_tcp_port}", specs, seconds=5)  # time: nobody listens
    assert len(await ensure_topics(kafka_bootstrap, specs)) == 4


@pytest.mark.parametrize("prefix", ["a/b", "-a", "ä"])
def test_a_prefix_of_the_advised_characters_is_taken(prefix: str) -> None:
    with pytest.raises(ValueError, match="cannot begin a topic's name: use letters") as raised:
        TopicNames(prefix)
    assert "digits, '.', '_', '-'" in str(raised.value)
    assert TopicNames("Our_topics-2.x").events == "Our_topics-2.x.events"


def with_statistics(columns: int) -> FilesWritten:
    file = FileInfo(path="a.parquet", size=1, rows=1, metadata=b"x" * (10_000 * columns))
    return FilesWritten(format="paimon", format_version=1, location="file:/t", schema_id=0, files=(file,))


@pytest.mark.kafka
@pytest.mark.parametrize("way", ["raise max.message.bytes", "collect statistics on fewer columns"])
async def test_a_large_file_is_announced_after_a_larger_limit_or_with_fewer_statistics(
    kafka_bootstrap: str, names: TopicNames, way: str
) -> None:
    body, allowed = with_statistics(26), 100_000
    await ensure_topics(kafka_bootstrap, topic_specs(names, partitions=1, max_message_bytes=allowed))
    with pytest.raises(FileTooLarge) as raised:
        split_files(body, allowed)
    assert "raise max.message.bytes of the events topic, or collect statistics on fewer" in str(raised.value)
    assert way in str(raised.value)
    if way == "raise max.message.bytes":
        allowed = MAX_MESSAGE_BYTES
        (short, *_) = await verify_topics(kafka_bootstrap, topic_specs(names, partitions=1))
        assert short.topic == names.events
        await follow(short.remedy)
    else:
        body = with_statistics(5)
    await announce(kafka_bootstrap, names.events, split_files(body, allowed), allowed)


async def announce(bootstrap: str, topic: str, parts: Sequence[FilesWritten], allowed: int) -> None:
    place = ("flights", "r1", "i1", 1, "w1", "a1")
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, max_request_size=allowed) as producer:
        for part in parts:
            envelope = with_counts(Envelope(uuid.uuid4().hex, EventType.FILES_WRITTEN, *place), part)
            message = encode_event(envelope, part, 0)
            await producer.send_and_wait(topic, message.value, key=message.key, headers=list(message.headers))
