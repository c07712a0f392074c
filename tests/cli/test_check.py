"""`sluicegate check` finds missing and wrong things with their remedies; it changes nothing unless asked."""

import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sluicegate.cli.local.process import free_port
from sluicegate.coordinator.core.state import Before, Decision, LogState
from sluicegate.coordinator.core.state_record import StateRecord, Waiting
from sluicegate.coordinator.stream.state_records import encode_record
from sluicegate.events.models import SnapshotRef
from sluicegate.lakes.delta.maintenance import interval_seconds
from sluicegate.lakes.port import CommitRequest, Committer, Published
from sluicegate.lakes.registry import adapter
from tests.cli.deployment import Deployment, findings, make_table
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.iceberg_lake import IcebergLake

pytestmark = pytest.mark.kafka

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


@pytest.mark.seam
@pytest.mark.redis
def test_all_is_well(deployment: Deployment, redis_url: str) -> None:
    deployment.create_topics()
    deployment.env["SLUICEGATE_REDIS__URL"] = redis_url
    result = deployment.run("check")
    found = findings(result)
    group = f"group {deployment.settings.kafka.group_id}"
    assert {name: verdict for name, (verdict, _) in found.items() if verdict != "OK"} == {
        "replicas of the topics": "WARNING",
        f"{group}, members": "WARNING",
    }
    expected = [
        "kafka",
        *_topics(deployment),
        "replicas of the topics",
        group,
        f"{group}, members",
        "redis",
        "table of flights",
        "table of flights, files",
        "table of flights, writing",
        "table of flights, cleaning",
        "table of flights, orphans",
    ]
    assert found["table of flights, orphans"][1].startswith("the coordinator deletes files")
    assert list(found) == expected
    assert "no snapshot yet, none by sluicegate-flights" in found["table of flights"][1]
    assert result.exit_code == 0


@pytest.mark.seam
def test_missing_topics_are_problems_until_create(deployment: Deployment) -> None:
    before = deployment.run("check")
    assert before.exit_code == 1
    found = findings(before)
    assert all(found[topic][0] == "PROBLEM" for topic in _topics(deployment))
    assert "sluicegate topics create" in found[_topics(deployment)[0]][1]

    assert deployment.run("topics", "create").exit_code == 0
    after = deployment.run("check")
    assert after.exit_code == 0
    assert all(findings(after)[topic] == ("OK", "exists, settings fit") for topic in _topics(deployment))


@pytest.mark.seam
def test_redis_that_is_away_is_named_without_its_password(deployment: Deployment) -> None:
    port = free_port()
    deployment.env["SLUICEGATE_REDIS__URL"] = f"redis://me:hunter2@127.0.0.1:{port}/0"
    deployment.create_topics()
    result = deployment.run("check")
    verdict, detail = findings(result)["redis"]
    assert (result.exit_code, verdict) == (1, "PROBLEM")
    assert f"redis://127.0.0.1:{port}/0 does not answer" in detail
    assert "hunter2" not in result.output


@pytest.mark.seam
def test_each_unusable_table_is_named(deployment: Deployment, tmp_path: Path) -> None:
    keyed = make_table(tmp_path, "keyed", primary_keys=("id",))
    deployment.env |= {
        "SLUICEGATE_STREAMS__KEYED__TABLE": str(keyed),
        "SLUICEGATE_STREAMS__GONE__TABLE": str(tmp_path / "gone"),
        "SLUICEGATE_STREAMS__ODD__TABLE": str(tmp_path / "odd"),
        "SLUICEGATE_STREAMS__ODD__FORMAT": "excel",
    }
    deployment.create_topics()
    result = deployment.run("check")
    found = findings(result)
    assert result.exit_code == 1
    assert found["table of flights"][0] == "OK"
    for stream, says, remedy in (
        ("keyed", "primary key", "Make a table with a fixed number of buckets"),
        ("gone", str(tmp_path / "gone"), "if it is new, create it"),
        ("odd", "'excel'", "this release knows: delta, iceberg, "),
    ):
        verdict, detail = found[f"table of {stream}"]
        assert verdict == "PROBLEM"
        assert says in detail
        assert remedy in detail


@pytest.mark.seam
def test_a_state_record_that_nobody_can_read_is_a_problem(deployment: Deployment) -> None:
    """Its stream stands still, and a job that only looks at the exit status has to see that."""
    deployment.create_topics()
    deployment.write_state((b"flights", b"{garbage"))
    result = deployment.run("check")
    verdict, detail = findings(result)["state of flights"]
    assert (result.exit_code, verdict) == (1, "PROBLEM")
    assert "sluicegate stream recover --stream flights" in detail


@pytest.mark.seam
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


@pytest.mark.seam
def test_a_table_that_is_ahead_of_its_record_is_a_problem(
    deployment: Deployment, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.cli.check.PATIENCE", 0.5)
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
    assert "sluicegate stream adopt --stream flights" in detail
    assert "start one: it reads the rest of the log and continues" in detail


@pytest.mark.seam
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
    write_record(deployment, agreed.model_copy(update={"decided": 2, "unresolved": made}))
    verdict, detail = findings(deployment.run("check"))["table of flights, history"]
    assert (verdict, "decision 2 is not there yet, a coordinator commits it" in detail) == ("OK", True)


@pytest.mark.seam
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


HOUR = 3_600
RETENTION = "delta.deletedFileRetentionDuration"


def cleaning(deployment: Deployment) -> tuple[str, str]:
    """Return verdict and detail of the check."""
    result = deployment.run("check")
    assert result.exit_code == 0, result.output
    return findings(result)["table of flights, cleaning"]


def waits(deployment: Deployment, hours: int | None) -> None:
    """Write a state record with a file that waits for so long, or with none."""
    since = round((time.time() - (hours or 0) * HOUR) * 1000)
    waiting = {} if hours is None else {"r1": Waiting(files=1, rows=1, since=since)}
    record = StateRecord(stream="flights", applied=0, low_water=0, state=LogState(), waiting=waiting)
    deployment.write_state((b"flights", encode_record(record)))


@pytest.fixture(params=["paimon", "iceberg", "delta"])
def lake(request: pytest.FixtureRequest, deployment: Deployment, tmp_path: Path) -> str:
    """Give the format of the stream's table."""
    name, stream = str(request.param), "SLUICEGATE_STREAMS__FLIGHTS__"
    deployment.env[f"{stream}FORMAT"] = name
    if name == "delta":
        deployment.env[f"{stream}TABLE"] = DeltaLake(tmp_path / "delta").location
    if name == "iceberg":
        iceberg = IcebergLake(tmp_path / "iceberg")
        deployment.env[f"{stream}TABLE"] = iceberg.location
        deployment.env[f"{stream}OPTIONS"] = f'{{"uri": "{iceberg.uri}"}}'
    deployment.create_topics()
    return name


AGES = {"paimon": 24, "iceberg": 72, "delta": 168}
"""Hours after which the cleaner of a format deletes."""


def test_a_longer_wait_than_the_cleaner_grants_is_a_warning(lake: str, deployment: Deployment) -> None:
    deployment.env["SLUICEGATE_STREAMS__FLIGHTS__LONGEST_WAIT"] = "14d"
    verdict, detail = cleaning(deployment)
    assert verdict == "WARNING"
    assert "it can delete files of pending checkpoints. To keep them, " in detail
    if lake != "delta":
        assert "give it the argument older_than with a time that is at least 336 hours ago" in detail


def test_files_that_wait_for_long_are_a_warning_until_they_are_committed(
    lake: str, deployment: Deployment
) -> None:
    waits(deployment, AGES[lake] // 2 - 1)
    assert cleaning(deployment)[0] == "OK"
    waits(deployment, AGES[lake] // 2 + 1)
    verdict, detail = cleaning(deployment)
    assert verdict == "WARNING"
    assert "it would delete them. Do not run it before they are committed, or " in detail
    assert "Why they wait: sluicegate status --stream flights" in detail
    waits(deployment, None)
    assert cleaning(deployment)[0] == "OK"


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_property_of_delta_is_followed(lake: str, deployment: Deployment) -> None:
    table = DeltaTable(deployment.settings.streams["flights"].table.removeprefix("file://"))
    table.alter.set_table_properties({RETENTION: "interval 2 hours"})
    verdict, detail = cleaning(deployment)
    assert verdict == "WARNING"
    assert f"VACUUM spares files that are younger than 2.0 h ({RETENTION})" in detail
    said = f"SET TBLPROPERTIES ('{RETENTION}' = 'interval 24 hours')"
    assert (
        f"set the property: ALTER TABLE delta.`{table.table_uri.rstrip('/').removeprefix('file://')}`"
        in detail
    )
    assert said in detail
    table.alter.set_table_properties({RETENTION: "interval 24 hours"})
    assert cleaning(deployment)[0] == "OK"


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_table_of_iceberg_may_forbid_cleaners(lake: str, deployment: Deployment, tmp_path: Path) -> None:
    shared = IcebergLake(tmp_path / "shared", properties={"gc.enabled": "false"})
    deployment.env["SLUICEGATE_STREAMS__FLIGHTS__TABLE"] = shared.location
    deployment.env["SLUICEGATE_STREAMS__FLIGHTS__OPTIONS"] = f'{{"uri": "{shared.uri}"}}'
    waits(deployment, 1_000)
    assert cleaning(deployment) == ("OK", "the table forbids that other products delete files")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("interval 1 week", 604_800),
        ("INTERVAL 168 HOURS", 604_800),
        ("7 days", 604_800),
        ("interval 1 day 2 hours", 93_600),
        ("interval 1 month", 0),
        ("soon", 0),
        ("interval 1 day and more", 0),
    ],
)
def test_intervals_of_delta(text: str, seconds: int) -> None:
    assert interval_seconds(text) == seconds
