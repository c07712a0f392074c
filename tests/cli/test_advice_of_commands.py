"""What `check`, `status`, `servers` and others advise is followed here; then the same command succeeds."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.coordinator.core import state_record
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import RECORD_VERSION, StateRecord, encode_record
from sluicegate.embedded import EmbeddedKafka, EmbeddedValkey
from sluicegate.embedded.ports import free_port
from sluicegate.kafka import clients
from sluicegate.lakes.port import CommitRequest
from sluicegate.lakes.registry import adapter
from tests.cli.deployment import Deployment, findings
from tests.integration.waiting import BACKSTOP

pytestmark = pytest.mark.kafka
PROGRAM = "from sluicegate.cli import main; main(prog_name='sluicegate')"


def told(deployment: Deployment, check: str, verdict: str = "PROBLEM") -> str:
    """What a check says that is not well."""
    result = deployment.run("check", "--create")
    assert result.exit_code == (1 if verdict == "PROBLEM" else 0), result.output
    found = findings(result)[check]
    assert found[0] == verdict
    return found[1]


def all_is_well(deployment: Deployment) -> None:
    result = deployment.run("check")
    assert result.exit_code == 0, result.output
    members = f"group {deployment.settings.kafka.group_id}, members"
    assert {verdict for name, (verdict, _) in findings(result).items() if name != members} == {"OK"}


def test_names_of_files_are_compared_once_it_is_set(deployment: Deployment) -> None:
    deployment.env["SLUICEGATE_STREAMS__FLIGHTS__FILE_NAMES"] = "unchecked"
    said = told(deployment, "table of flights, file names", "WARNING")
    assert "the names of data files are not compared with the attempts that wrote" in said
    assert 'set streams.flights.file_names = "checked"' in said
    deployment.env["SLUICEGATE_STREAMS__FLIGHTS__FILE_NAMES"] = "checked"
    all_is_well(deployment)


def test_a_table_is_read_again_once_its_storage_is_mended(deployment: Deployment, table: Path) -> None:
    (table / "snapshot").symlink_to("snapshot")
    assert "check the storage, try again" in told(deployment, "table of flights")
    (table / "snapshot").unlink()
    all_is_well(deployment)


def test_a_table_is_written_once_this_user_may(deployment: Deployment, table: Path) -> None:
    (table / "manifest").symlink_to("/proc")
    said = told(deployment, "table of flights, writing")
    assert "let this user write there, on a file system that has hard links" in said
    (table / "manifest").unlink()
    all_is_well(deployment)


@pytest.mark.redis
def test_redis_answers_once_it_runs(deployment: Deployment) -> None:
    valkey = EmbeddedValkey(port=free_port())
    deployment.env["SLUICEGATE_REDIS__URL"] = f"redis://127.0.0.1:{valkey.port}/0"
    assert "check redis.url, redis.ca_file and that it runs" in told(deployment, "redis")
    with valkey:
        all_is_well(deployment)


@pytest.mark.redis
def test_redis_lets_in_whom_it_knows(deployment: Deployment, redis_url: str) -> None:
    deployment.env["SLUICEGATE_REDIS__URL"] = redis_url.replace("redis://", "redis://me:hunter2@")
    assert "check redis.username, redis.password and redis.url" in told(deployment, "redis")
    deployment.env["SLUICEGATE_REDIS__URL"] = redis_url
    all_is_well(deployment)


def test_kafka_answers_at_the_right_address(nobody: Deployment, table: Path, kafka_bootstrap: str) -> None:
    nobody.env["SLUICEGATE_STREAMS__FLIGHTS__TABLE"] = str(table)
    assert "and that the brokers run and can be reached from here" in told(nobody, "kafka")
    assert "check kafka.bootstrap_servers" in nobody.run("topics", "create").stderr.replace("\n", " ")
    nobody.env["SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS"] = kafka_bootstrap
    nobody.env["SLUICEGATE_KAFKA__REQUEST_TIMEOUT"] = "20s"
    nobody.env["SLUICEGATE_KAFKA__TOPIC_PREFIX"] = nobody.env["SLUICEGATE_KAFKA__GROUP_ID"] = table.parts[-3]
    assert nobody.run("topics", "create").exit_code == 0
    all_is_well(nobody)


def test_the_brokers_logs_say_why_groups_have_no_coordinator(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "REQUEST_PATIENCE", 1.0)
    wrong = {"offsets.topic.replication.factor": "3"}
    with EmbeddedKafka(tmp_path / "kafka", settings=wrong) as broker:
        port, log = broker.port, broker.log_file
        deployment.env["SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS"] = broker.bootstrap
        group = f"group {deployment.settings.kafka.group_id}"
        assert "look at the brokers' logs" in told(deployment, group)
        assert "replication" in log.read_text(encoding="utf-8", errors="replace")
    monkeypatch.undo()
    with EmbeddedKafka(tmp_path / "kafka", port):
        all_is_well(deployment)


def test_a_table_that_is_ahead_is_verified_and_goes_with_its_record_again(
    deployment: Deployment, table: Path
) -> None:
    deployment.create_topics()
    settings = deployment.settings.streams["flights"]
    committer = adapter("paimon").open_committer(
        adapter("paimon").parse_table(settings.table), settings.commit_user
    )
    identity = committer.inspect().identity
    committer.publish(CommitRequest(1, "digest", None, None, ()))
    committer.close()
    record = StateRecord(stream="flights", applied=-1, low_water=0, state=LogState(table=identity))
    deployment.write_state((b"flights", encode_record(record)))
    said = told(deployment, "table of flights, history")
    assert "the table has decision 1 of its commit user" in said
    assert "If a coordinator has just stopped, start one" in said
    verified = deployment.run("replay", "verify", "--stream", "flights")
    assert (verified.exit_code, "FOREIGN" in verified.stdout) == (1, True), verified.output
    (table / "snapshot" / "snapshot-1").unlink()
    (table / "snapshot" / "LATEST").unlink(missing_ok=True)
    assert deployment.run("replay", "verify", "--stream", "flights").exit_code == 0
    all_is_well(deployment)


def test_an_upgraded_release_reads_the_record_of_a_newer_one(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.create_topics()
    newer = RECORD_VERSION + 1
    record = StateRecord(stream="flights", applied=-1, low_water=0, state=LogState(), version=newer)
    deployment.write_state((b"flights", encode_record(record)))
    advice = "Upgrade all coordinators, drivers and commands"
    assert advice in deployment.run("status").stdout
    refused = deployment.run("stream", "pause", "--stream", "flights")
    assert (refused.exit_code, advice in refused.stderr) == (2, True), refused.output
    monkeypatch.setattr(state_record, "RECORD_VERSION", newer)
    assert advice not in deployment.run("status").stdout
    assert deployment.run("stream", "pause", "--stream", "flights").exit_code == 0


@pytest.mark.redis
def test_servers_say_whose_log_to_read_and_start_again(tmp_path: Path) -> None:
    ports = ["--kafka-port", str(free_port()), "--valkey-port", str(free_port())]
    command = [sys.executable, "-c", PROGRAM, "servers", "--dir", str(tmp_path / "servers"), *ports]

    def run(end: str) -> tuple[int, str]:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert "[kafka]" in process.stdout.readline()
                os.kill(valkey_of(process.pid) if end == "valkey" else process.pid, signal.SIGTERM)
                _, said = process.communicate(timeout=BACKSTOP)
            finally:
                process.kill()
        return process.returncode, said

    status, said = run("valkey")
    line = said.splitlines()[-1]
    assert status == 2
    assert "has ended by itself; see " in line
    log = Path(line.partition("see ")[2])
    assert "SIGTERM" in log.read_text(encoding="utf-8")
    status, said = run("both")
    assert (status, said.splitlines()[-1]) == (0, "both have ended")


def valkey_of(parent: int) -> int:
    """The process of Valkey among the descendants of one."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            line = (folder / "cmdline").read_bytes()
            above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if above == parent and b"valkey-server" in line:
            return int(folder.name)
    raise AssertionError("no Valkey below the command")
