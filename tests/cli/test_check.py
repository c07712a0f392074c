"""`sluicegate check` finds what is missing or wrong, says what to do, and changes nothing unless told to."""

import asyncio
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from sluicegate.coordinator.core.state import LightState, StateRecord
from sluicegate.coordinator.settings.kafka import KafkaSettings
from sluicegate.embedded.ports import free_port
from sluicegate.kafka.topics import verify_topics
from sluicegate.lakes.port import CommitRequest
from sluicegate.lakes.registry import adapter
from tests.cli.deployment import Deployment, as_json, findings, make_table
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
TOPICS = ("events", "commits", "state", "dead-letters")


def _topics(deployment: Deployment) -> list[str]:
    return [f"topic {deployment.settings.kafka.topic_prefix}.{name}" for name in TOPICS]


@pytest.mark.redis
def test_all_is_well(deployment: Deployment, redis_url: str) -> None:
    deployment.create_topics()
    deployment.env["SLUICEGATE_REDIS__URL"] = redis_url
    result = deployment.run("check")
    found = findings(result)
    assert {verdict for verdict, _ in found.values()} == {"OK"}
    group = f"group {deployment.settings.kafka.group_id}"
    expected = [
        "kafka",
        *_topics(deployment),
        group,
        "redis",
        "table of flights",
        "table of flights, writing",
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
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await admin.start()
    try:
        wanted = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
        topic = ConfigResource(ConfigResourceType.TOPIC, kafka.topic_names().events, wanted)
        await admin.alter_configs([topic])
    finally:
        await admin.close()
    # The controller answers before the broker knows of it.
    await until(lambda: verify_topics(kafka.bootstrap_servers, kafka.topic_specs()))


def test_json_has_the_same_findings(deployment: Deployment) -> None:
    result = deployment.run("check", "--json")
    assert result.exit_code == 1
    checks = {each["check"]: each for each in as_json(result)["checks"]}
    assert checks["kafka"]["ok"] is True
    assert checks[_topics(deployment)[0]]["ok"] is False
    assert checks["redis"]["detail"].startswith("not configured")


def test_redis_that_is_away_is_named_without_its_password(deployment: Deployment) -> None:
    port = free_port()
    deployment.env["SLUICEGATE_REDIS__URL"] = f"redis://me:hunter2@127.0.0.1:{port}/0"
    result = deployment.run("check", "--create")
    verdict, detail = findings(result)["redis"]
    assert (result.exit_code, verdict) == (1, "PROBLEM")
    assert f"redis://127.0.0.1:{port}/0 does not answer" in detail
    assert "hunter2" not in result.output


@pytest.mark.redis
def test_redis_that_refuses_is_told_apart(deployment: Deployment, redis_url: str) -> None:
    deployment.env["SLUICEGATE_REDIS__URL"] = redis_url.replace("redis://", "redis://me:hunter2@")
    result = deployment.run("check", "--create")
    verdict, detail = findings(result)["redis"]
    assert (result.exit_code, verdict) == (1, "PROBLEM")
    assert "refuses user or password" in detail


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
        ("odd", "'excel'", "this release knows: paimon. Set `format`"),
    ):
        verdict, detail = found[f"table of {stream}"]
        assert verdict == "PROBLEM"
        assert says in detail
        assert remedy in detail


def test_table_that_cannot_be_written_is_a_problem(deployment: Deployment, table: Path) -> None:
    (table / "manifest").symlink_to("/proc")
    result = deployment.run("check", "--create")
    verdict, detail = findings(result)["table of flights, writing"]
    assert (result.exit_code, verdict) == (1, "PROBLEM")
    assert "let this user write there" in detail


def test_names_that_are_not_compared_are_a_warning(deployment: Deployment) -> None:
    deployment.create_topics()
    deployment.env["SLUICEGATE_STREAMS__FLIGHTS__FILE_NAMES"] = "unchecked"
    result = deployment.run("check")
    verdict, detail = findings(result)["table of flights, file names"]
    assert verdict == "WARNING"
    assert 'set streams.flights.file_names = "checked"' in detail
    assert result.exit_code == 0


def test_check_leaves_no_file_behind(deployment: Deployment, table: Path) -> None:
    before = sorted(table.rglob("*"))
    assert deployment.run("check", "--create").exit_code == 0
    assert sorted(table.rglob("*")) == before


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
    settings = deployment.settings.streams["flights"]
    committer = adapter("paimon").open_committer(settings.table, settings.commit_user, {})
    identity = committer.inspect().identity
    committer.publish(CommitRequest(1, "digest", None, None, ()))
    committer.close()
    state = LightState(table=identity, recorded=None)
    record = StateRecord(stream="flights", applied=0, low_water=0, state=state)
    deployment.write_state((b"flights", record.model_dump_json().encode()))
    result = deployment.run("check")
    verdict, detail = findings(result)["table of flights, history"]
    assert (result.exit_code, verdict) == (1, "PROBLEM")
    assert "it has decision 1 of this stream, and the record ends at 0" in detail
    assert "sluicegate replay --stream flights --verify" in detail
