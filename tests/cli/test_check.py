"""`sluicegate check` finds missing and wrong things with their remedies; it changes nothing unless asked."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from sluicegate.cli.local.process import free_port
from sluicegate.coordinator.core.state import Before, Decision, LogState
from sluicegate.coordinator.core.state_record import StateRecord, encode_record
from sluicegate.coordinator.settings.model import KafkaSettings
from sluicegate.events.models import SnapshotRef
from sluicegate.kafka.clients import started
from sluicegate.kafka.topics import verify_topics
from sluicegate.lakes.port import CommitRequest, Committer, Published
from sluicegate.lakes.registry import adapter
from tests.cli.deployment import Deployment, findings, make_table
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.seam]
TOPICS = ("events", "commits", "state", "dead-letters")


def committer_of(deployment: Deployment) -> Committer:
    """Return the committer of the stream's table, as its coordinator has it."""
    settings, paimon = deployment.settings.streams["flights"], adapter("paimon")
    return paimon.open_committer(paimon.parse_table(settings.table), settings.commit_user)


def write_record(deployment: Deployment, state: LogState, **more: Any) -> None:
    """Write the state record of the stream of the settings."""
    record = StateRecord(stream="flights", applied=0, low_water=0, state=state, **more)
    deployment.write_state((b"flights", encode_record(record)))


def _topics(deployment: Deployment) -> list[str]:
    return [f"topic {deployment.settings.kafka.topic_prefix}.{name}" for name in TOPICS]


@pytest.mark.redis
def test_all_is_well(deployment: Deployment, redis_url: str) -> None:
    deployment.create_topics()
    deployment.env["SLUICEGATE_REDIS__URL"] = redis_url
    result = deployment.run("check")
    found = findings(result)
    group = f"group {deployment.settings.kafka.group_id}"
    assert {name: verdict for name, (verdict, _) in found.items() if verdict != "OK"} == {
        f"{group}, members": "WARNING"
    }
    expected = [
        "kafka",
        *_topics(deployment),
        group,
        f"{group}, members",
        "redis",
        "table of flights",
        "table of flights, files",
        "table of flights, writing",
        "table of flights, cleaning",
    ]
    assert list(found) == expected
    assert "no snapshot yet, none by sluicegate-flights" in found["table of flights"][1]
    assert result.exit_code == 0


def test_missing_topics_are_problems_until_create(deployment: Deployment) -> None:
    before = deployment.run("check")
    assert before.exit_code == 1
    found = findings(before)
    assert all(found[topic][0] == "PROBLEM" for topic in _topics(deployment))
    assert "sluicegate topics create" in found[_topics(deployment)[0]][1]

    created = deployment.run("check", "--create")
    assert created.exit_code == 0
    assert all(findings(created)[topic] == ("OK", "created") for topic in _topics(deployment))

    after = deployment.run("check")
    assert after.exit_code == 0
    assert all(findings(after)[topic] == ("OK", "exists, settings fit") for topic in _topics(deployment))


def test_topic_that_endangers_the_protocol_is_a_problem(deployment: Deployment) -> None:
    deployment.create_topics()
    asyncio.run(_compact(deployment.settings.kafka))
    result = deployment.run("check")
    assert result.exit_code == 1
    verdict, detail = findings(result)[_topics(deployment)[0]]
    assert verdict == "PROBLEM"
    assert "compaction drops events" in detail
    assert "kafka-configs.sh" in detail


async def _compact(kafka: KafkaSettings) -> None:
    async with started(AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        # The request replaces all settings of the topic.
        kept = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}
        wanted = {**kept, "cleanup.policy": "compact"}
        topic = ConfigResource(ConfigResourceType.TOPIC, kafka.topic_names().events, wanted)
        await admin.alter_configs([topic])
    # The controller answers before the broker knows of it.
    await until(lambda: verify_topics(kafka.bootstrap_servers, kafka.topic_specs()))


def test_redis_that_is_away_is_named_without_its_password(deployment: Deployment) -> None:
    port = free_port()
    deployment.env["SLUICEGATE_REDIS__URL"] = f"redis://me:hunter2@127.0.0.1:{port}/0"
    result = deployment.run("check", "--create")
    verdict, detail = findings(result)["redis"]
    assert (result.exit_code, verdict) == (1, "PROBLEM")
    assert f"redis://127.0.0.1:{port}/0 does not answer" in detail
    assert "hunter2" not in result.output


def test_each_unusable_table_is_named(deployment: Deployment, tmp_path: Path) -> None:
    keyed = make_table(tmp_path, "keyed", primary_keys=("id",))
    deployment.env |= {
        "SLUICEGATE_STREAMS__KEYED__TABLE": str(keyed),
        "SLUICEGATE_STREAMS__GONE__TABLE": str(tmp_path / "gone"),
        "SLUICEGATE_STREAMS__ODD__TABLE": str(tmp_path / "odd"),
        "SLUICEGATE_STREAMS__ODD__FORMAT": "excel",
    }
    result = deployment.run("check", "--create")
    found = findings(result)
    assert result.exit_code == 1
    assert found["table of flights"][0] == "OK"
    for stream, says, remedy in (
        ("keyed", "primary key", "Give the stream an append table"),
        ("gone", str(tmp_path / "gone"), "create the table there"),
        ("odd", "'excel'", "this release knows: delta, iceberg, paimon. Set `format`"),
    ):
        verdict, detail = found[f"table of {stream}"]
        assert verdict == "PROBLEM"
        assert says in detail
        assert remedy in detail


def test_a_state_record_that_nobody_can_read_is_a_problem(deployment: Deployment) -> None:
    """Its stream stands still, and a job that only looks at the exit status has to see that."""
    deployment.create_topics()
    deployment.write_state((b"flights", b"{garbage"))
    result = deployment.run("check")
    verdict, detail = findings(result)["state of flights"]
    assert (result.exit_code, verdict) == (1, "PROBLEM")
    assert "sluicegate stream recover --stream flights" in detail


def test_kafka_that_is_away_does_not_hide_the_rest(nobody: Deployment, table: Path) -> None:
    nobody.env["SLUICEGATE_STREAMS__FLIGHTS__TABLE"] = str(table)
    result = nobody.run("check")
    found = findings(result)
    verdict, detail = found["kafka"]
    assert (result.exit_code, verdict) == (1, "PROBLEM")
    assert f"Kafka at {nobody.settings.kafka.bootstrap_servers} does not answer" in detail
    assert "kafka.bootstrap_servers" in detail
    assert found["table of flights"][0] == "OK"
    assert not any(name.startswith("topic") for name in found)


def test_a_table_that_is_ahead_of_its_record_is_a_problem(deployment: Deployment, table: Path) -> None:
    deployment.create_topics()
    committer = committer_of(deployment)
    identity = committer.inspect().identity
    committer.publish(CommitRequest(1, "digest", None, None, ()))
    committer.close()
    write_record(deployment, LogState(table=identity))
    result = deployment.run("check")
    verdict, detail = findings(result)["table of flights, history"]
    assert (result.exit_code, verdict) == (1, "PROBLEM")
    assert "the table has decision 1 of its commit user, and the log ends with 0" in detail
    assert "sluicegate stream adopt --stream flights --from-table" in detail
    assert "start one: it reads the rest of the log and continues" in detail


def test_a_table_that_agrees_with_its_record(deployment: Deployment) -> None:
    deployment.create_topics()
    committer = committer_of(deployment)
    identity = committer.inspect().identity
    published = committer.publish(CommitRequest(1, "digest", None, None, ()))
    committer.close()
    assert isinstance(published, Published)
    head = SnapshotRef(id=published.snapshot.id, identity=published.snapshot.identity)
    agreed = LogState(table=identity, decided=1, snapshot=head)
    write_record(deployment, agreed)
    verdict, detail = findings(deployment.run("check"))["table of flights, history"]
    assert (verdict, detail) == ("OK", "agrees with the record, up to decision 1")
    shown = findings(deployment.run("check"))["table of flights"][1]
    assert f"; snapshot {head.id}:{head.identity}, last commit by sluicegate-flights: 1" in shown
    before = Before(regions={}, watermark=None, provisional=False, former=None)
    made = Decision(
        id=2,
        digest="d",
        offset=0,
        cut={},
        fallbacks={},
        parts=[],
        files=0,
        first_offset=0,
        head=head,
        before=before,
    )
    write_record(deployment, agreed.model_copy(update={"decided": 2, "pending": made}))
    verdict, detail = findings(deployment.run("check"))["table of flights, history"]
    assert (verdict, "decision 2 is not there yet, a coordinator commits it" in detail) == ("OK", True)


def test_a_table_that_was_replaced_or_rolled_back_is_a_problem(deployment: Deployment) -> None:
    deployment.create_topics()
    committer = committer_of(deployment)
    identity = committer.inspect().identity
    committer.close()
    write_record(deployment, LogState(table="another table"))
    result = deployment.run("check")
    verdict, detail = findings(result)["table of flights, history"]
    assert (result.exit_code, verdict) == (1, "PROBLEM")
    assert f"the table is another one ({identity}) than that with which the stream began" in detail
    lost = SnapshotRef(id=3, identity="lost")
    write_record(deployment, LogState(table=identity, decided=3, snapshot=lost))
    verdict, detail = findings(deployment.run("check"))["table of flights, history"]
    assert verdict == "PROBLEM"
    assert "the table contradicts decision 3 of the log" in detail
