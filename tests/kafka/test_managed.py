"""A real broker whose policy refuses what managed services refuse; its topics are made all the same."""

import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from click.testing import CliRunner

from sluicegate.cli.local.jars import find_java, kafka_jars
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.cli.main import main
from sluicegate.kafka.clients import started
from sluicegate.kafka.topics import (
    TopicNames,
    TopicsRefused,
    ensure_topics,
    inspect_topics,
    topic_settings,
    topic_specs,
)
from tests.cli.deployment import Deployment, check_page, make_table

pytestmark = pytest.mark.kafka

_POLICY: Final = Path(__file__).with_name("Managed.java")
LEFT: Final = {
    "msk-serverless": {
        "events": ("unclean.leader.election.enable",),
        "commits": ("unclean.leader.election.enable",),
        "state": (
            "min.cleanable.dirty.ratio",
            "segment.bytes",
            "segment.ms",
            "unclean.leader.election.enable",
        ),
        "dead-letters": (),
    },
    "confluent": {
        "events": ("unclean.leader.election.enable",),
        "commits": ("unclean.leader.election.enable",),
        "state": ("min.cleanable.dirty.ratio", "unclean.leader.election.enable"),
        "dead-letters": (),
    },
}
"""Settings that each service does not take, by topic."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy as a jar."""
    folder = tmp_path_factory.mktemp("policy")
    compiler = [str(find_java().executable), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    class_path = ":".join(map(str, kafka_jars()))
    subprocess.run([*compiler, "-d", str(folder), "-cp", class_path, str(_POLICY)], check=True)
    with zipfile.ZipFile(folder / "managed.jar", "w") as jar:
        jar.write(folder / "Managed.class", "Managed.class")
    return folder / "managed.jar"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("msk-serverless", marks=pytest.mark.seam),
        pytest.param("confluent", marks=pytest.mark.matrix),
    ],
)
def managed(policy: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, EmbeddedKafka]]:
    """A broker with the policy of a service."""
    kafka = EmbeddedKafka(settings={"create.topic.policy.class.name": "Managed"})
    kafka.plugins = (policy,)
    kafka.java_options = (f"-Dmanaged.kind={request.param}",)
    with kafka:
        yield request.param, kafka


async def names_at(kafka: EmbeddedKafka) -> set[str]:
    async with started(AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
        return {each["topic"] for each in await admin.describe_topics()}


async def test_topics_are_made_with_what_the_service_takes(
    managed: tuple[str, EmbeddedKafka], unique: str
) -> None:
    kind, kafka = managed
    specs = topic_specs(TopicNames(unique), partitions=2)
    made = await ensure_topics(kafka.bootstrap, specs)
    assert made == {f"{unique}.{name}": left for name, left in LEFT[kind].items()}
    found = await inspect_topics(kafka.bootstrap, specs)
    assert found.problems == []
    assert {each.replicas for each in found.observed.values()} == {1}
    options = {"bootstrap_servers": kafka.bootstrap}
    state = await topic_settings(options, f"{unique}.state")
    assert (state["cleanup.policy"], state["message.timestamp.type"]) == ("compact", "LogAppendTime")
    assert state["segment.bytes"] == ("67108864" if kind == "confluent" else "1073741824")


async def test_no_topic_is_made_if_one_cannot_be(managed: tuple[str, EmbeddedKafka], unique: str) -> None:
    _, kafka = managed
    before = await names_at(kafka)
    reserved = rf"the topic {unique}\.no\.state cannot be created: Topic name is reserved; .* No topic was"
    with pytest.raises(TopicsRefused, match=reserved):
        await ensure_topics(kafka.bootstrap, topic_specs(TopicNames(f"{unique}.no")))
    with pytest.raises(TopicsRefused, match="eplica"):
        await ensure_topics(kafka.bootstrap, topic_specs(TopicNames(unique), replication_factor=2))
    assert await names_at(kafka) == before


def test_the_command_names_what_is_left_to_the_brokers(
    managed: tuple[str, EmbeddedKafka], unique: str, tmp_path: Path, rewrite: bool
) -> None:
    kind, kafka = managed
    config = tmp_path / "sluicegate.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{kafka.bootstrap}"\ntopic_prefix = "{unique}"\n'
        f'[streams.flights]\ntable = "{tmp_path}/demo.db/flights"\n'
    )
    done = CliRunner().invoke(main, ["topics", "create"], env={"SLUICEGATE_CONFIG": str(config)})
    assert done.exit_code == 0, done.output
    assert [line for line in done.output.splitlines() if "left to the brokers" in line] == [
        f"         left to the brokers, which do not take them: {', '.join(left)}"
        for left in LEFT[kind].values()
        if left
    ]
    make_table(tmp_path, "flights")
    stands_for = {kafka.bootstrap: "BROKERS", unique: "PREFIX", str(tmp_path): "/FOLDER"}
    page = check_page(kind, Deployment(config, {}), stands_for, rewrite=rewrite)
    assert "replicas of the topics: 1 replica, where 3 are usual: a broker that is lost takes" in page
