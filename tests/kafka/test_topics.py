"""Topics as the brokers of a real Kafka make and describe them."""

import uuid
from collections.abc import Iterable
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from sluicegate.events.encoding import probe_headers
from sluicegate.kafka import topics
from sluicegate.kafka.clients import started
from sluicegate.kafka.topics import (
    TIMESTAMPS,
    TopicNames,
    TopicRole,
    TopicSpec,
    TopicsRefused,
    append_probes,
    ensure_topics,
    topic_specs,
    verify_topics,
)

pytestmark = [pytest.mark.kafka, pytest.mark.seam]


@pytest.fixture
def names() -> TopicNames:
    return TopicNames(f"t{uuid.uuid4().hex[:12]}")


async def create(bootstrap: str, *specs: TopicSpec) -> None:
    """Create topics as an operator would, by hand."""
    async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        await admin.create_topics(
            [
                NewTopic(spec.name, spec.partitions, 1, topic_configs={**spec.besides, **spec.settings})
                for spec in specs
            ]
        )
    # The broker answers before its own metadata shows the topics.
    await ensure_topics(bootstrap, specs)


async def partition_counts(bootstrap: str, names: TopicNames) -> dict[str, int]:
    async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        topics = await admin.describe_topics()
    return {
        topic["topic"].removeprefix(f"{names.prefix}."): len(topic["partitions"])
        for topic in topics
        if topic["topic"].startswith(names.prefix)
    }


async def test_missing_topics_are_created_once_and_are_in_order(
    kafka_bootstrap: str, names: TopicNames
) -> None:
    specs = topic_specs(names, partitions=3)
    assert sorted(await ensure_topics(kafka_bootstrap, specs)) == sorted(spec.name for spec in specs)
    assert await verify_topics(kafka_bootstrap, specs) == []
    assert await ensure_topics(kafka_bootstrap, specs) == {}
    assert await partition_counts(kafka_bootstrap, names) == {
        "events": 3,
        "commits": 3,
        "state": 3,
        "dead-letters": 1,
    }


async def test_the_broker_stamps_the_time_of_appending(kafka_bootstrap: str, names: TopicNames) -> None:
    await ensure_topics(kafka_bootstrap, topic_specs(names, partitions=1))
    async with AIOKafkaProducer(bootstrap_servers=kafka_bootstrap) as producer:
        for topic in (names.events, names.commits, names.state):
            sent = await producer.send_and_wait(topic, b"x", key=b"k", timestamp_ms=1)
            assert sent.timestamp_type == 1
            assert sent.timestamp > 1_000_000_000_000


async def test_new_topics_get_as_many_partitions_as_the_existing_ones(
    kafka_bootstrap: str, names: TopicNames
) -> None:
    events, *_ = topic_specs(names, partitions=5)
    await create(kafka_bootstrap, events)
    specs = topic_specs(names, partitions=2)
    assert len(await ensure_topics(kafka_bootstrap, specs)) == 3
    counts = await partition_counts(kafka_bootstrap, names)
    assert counts == {"events": 5, "commits": 5, "state": 5, "dead-letters": 1}
    assert await verify_topics(kafka_bootstrap, specs) == []


WRONG = [
    (TopicRole.EVENTS, "message.timestamp.type", "CreateTime", "LogAppendTime"),
    (TopicRole.STATE, "message.timestamp.type", "CreateTime", "LogAppendTime"),
    (TopicRole.COMMITS, "message.timestamp.type", "CreateTime", "LogAppendTime"),
    (TopicRole.EVENTS, "cleanup.policy", "compact", "delete"),
    (TopicRole.EVENTS, "cleanup.policy", "compact,delete", "delete"),
    (TopicRole.STATE, "cleanup.policy", "delete", "compact"),
    (TopicRole.STATE, "cleanup.policy", "compact,delete", "compact"),
    (TopicRole.EVENTS, "max.message.bytes", "1000", "1048588"),
    (TopicRole.STATE, "max.message.bytes", "1048588", "4194304"),
    (TopicRole.DEAD_LETTERS, "max.message.bytes", "1048588", "1114124"),
    (TopicRole.EVENTS, "retention.ms", "3600000", "-1"),
    (TopicRole.COMMITS, "retention.ms", "3600000", "604800000"),
    (TopicRole.EVENTS, "retention.bytes", "1000000000", "-1"),
    (TopicRole.STATE, "unclean.leader.election.enable", "true", "false"),
    (TopicRole.EVENTS, "min.insync.replicas", "2", "1"),
]


async def test_every_setting_that_matters_is_checked_against_the_broker(kafka_bootstrap: str) -> None:
    deployments = [
        (TopicNames(f"t{uuid.uuid4().hex[:12]}"), role, setting, value, mended)
        for role, setting, value, mended in WRONG
    ]
    for names, role, setting, value, _ in deployments:
        specs = topic_specs(names, partitions=1)
        await create(
            kafka_bootstrap,
            *(
                replace(spec, settings={**spec.settings, setting: value}) if spec.role is role else spec
                for spec in specs
            ),
        )
    for names, role, setting, value, mended in deployments:
        problems = await verify_topics(kafka_bootstrap, topic_specs(names, partitions=1))
        assert [problem.topic for problem in problems] == [f"{names.prefix}.{role}"], (setting, value)
        (problem,) = problems
        assert problem.wrong.startswith(f"{setting} is {value!r}: ")
        assert problem.warning is ((role, setting) == (TopicRole.EVENTS, "retention.ms"))
        assert problem.remedy == (
            f"Set it: kafka-configs.sh --bootstrap-server {kafka_bootstrap} --alter --entity-type topics "
            f"--entity-name {problem.topic} --add-config {setting}={mended}"
        )


@pytest.mark.parametrize(("state_partitions", "remedy"), [(2, "--alter --topic"), (4, "cannot take")])
async def test_state_and_events_must_have_the_same_partitions(
    kafka_bootstrap: str, names: TopicNames, state_partitions: int, remedy: str
) -> None:
    events, commits, state, dead_letters = specs = topic_specs(names, partitions=3)
    await create(kafka_bootstrap, events, commits, replace(state, partitions=state_partitions), dead_letters)
    (problem,) = await verify_topics(kafka_bootstrap, specs)
    assert problem.topic == names.state
    assert f"it has {state_partitions} partitions and {names.events} has 3" in problem.wrong
    assert remedy in problem.remedy


async def test_topics_that_the_broker_refuses_are_named(kafka_bootstrap: str, names: TopicNames) -> None:
    with pytest.raises(TopicsRefused, match=rf"{names.prefix}\.\S+ cannot be created: .*eplication"):
        await ensure_topics(kafka_bootstrap, topic_specs(names, replication_factor=3))


@pytest.mark.parametrize("prefix", ["", "a/b", "a b", ".", "ä", "x" * 201, "a\n"])
def test_a_prefix_that_no_topic_can_have_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="cannot begin a topic's name"):
        TopicNames(prefix)


async def test_a_message_proves_the_setting_that_a_service_hides(
    kafka_bootstrap: str, names: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = topic_specs(names, partitions=3)
    wrong = replace(specs[0], settings={**specs[0].settings, TIMESTAMPS: "CreateTime"})
    await create(kafka_bootstrap, wrong, *specs[1:])
    shown = topics._settings

    async def hidden(admin: AIOKafkaAdminClient, wanted: Iterable[str]) -> dict[str, dict[str, str]]:
        found = await shown(admin, wanted)
        return {
            name: {key: text for key, text in each.items() if key != TIMESTAMPS}
            for name, each in found.items()
        }

    monkeypatch.setattr(topics, "_settings", hidden)
    before = await verify_topics(kafka_bootstrap, specs)
    assert [(each.topic, each.warning) for each in before] == [
        (spec.name, True) for spec in specs if spec.aligned
    ]
    assert "`sluicegate check --table STREAM` appends a message" in before[0].remedy
    options = {"bootstrap_servers": kafka_bootstrap, "request_timeout_ms": 15_000}
    values = dict.fromkeys((spec.name for spec in specs), b"{}")
    appended = await append_probes(options, values, "flights", probe_headers("p", 0))
    kinds = [each.timestamps for each in appended.values() if not isinstance(each, str)]
    assert kinds == ["CreateTime", "LogAppendTime", "LogAppendTime", "CreateTime"]
    (after,) = await verify_topics(kafka_bootstrap, specs)
    assert (after.topic, after.warning) == (names.events, False)
    assert "message.timestamp.type is 'CreateTime'" in after.wrong
