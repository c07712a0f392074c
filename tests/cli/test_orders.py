"""Orders go into the log, for the right stream, and only those that have an effect there."""

import asyncio
from typing import Final

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from sluicegate.cli import coordinators
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.state_records import encode_record
from sluicegate.events.envelope import EventType, partition_of
from sluicegate.events.models import SnapshotRef, StreamCommand
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.clients import started
from sluicegate.lakes.port import CommitRequest, Published
from sluicegate.lakes.registry import adapter
from tests.cli.acting import after_the_order, commands, coordinator_in_the_group, two_regions
from tests.cli.deployment import PARTITIONS, Deployment, as_json, findings
from tests.cli.history import History

pytestmark = [pytest.mark.kafka, pytest.mark.seam]

STREAM = ("--stream", "flights")


@pytest.fixture
def history(deployment: Deployment) -> History:
    """Give a stream with two regions, both with one committed and one completed checkpoint."""
    return two_regions(deployment)


def test_a_stream_is_paused_and_resumed(history: History) -> None:
    paused = history.run("stream", "pause", *STREAM)
    assert paused.exit_code == 0, paused.output
    assert "sluicegate stream resume --stream flights" in paused.stdout
    group = history.deployment.settings.kafka.group_id
    assert paused.stderr == (
        f"note: no coordinator runs: the group {group} has no members. Start one: sluicegate run. The order "
        "is in the log, and takes effect when one runs\n"
    )
    assert history.state.paused
    resumed = history.run("stream", "resume", *STREAM)
    assert "stream flights is resumed (partition" in resumed.stdout
    assert not history.state.paused
    again = history.run("stream", "resume", *STREAM)
    assert (again.exit_code, "was not paused, so this changes nothing" in again.stdout) == (0, True)
    orders = [each for each in history.deployment.events("flights") if isinstance(each.body, StreamCommand)]
    assert len({each.envelope.id for each in orders}) == 3
    assert {each.envelope.type for each in orders} == {EventType.STREAM_COMMAND}


def commit_first(history: History, newest: int = 1) -> None:
    """Put the commit of decision 1 into the table, as the log has it, and later ones up to the newest."""
    own = history.deployment.settings.streams["flights"]
    opened = adapter(own.format)
    committer = opened.open_committer(opened.parse_table(own.table, own.adapter_options()), own.commit_user)
    committer.ask(1, "", committer.inspect().identity, None)
    head = None
    for decision in range(1, newest + 1):
        digest = history.state.outcome if decision == 1 else f"digest{decision}"
        published = committer.publish(CommitRequest(decision, digest, head, None, []))
        assert isinstance(published, Published)
        head = published.snapshot
    committer.close()


@pytest.mark.parametrize(("decided", "asked"), [(False, 2), (True, 2)])
def test_a_proof_names_the_decision_that_is_asked(history: History, decided: bool, asked: int) -> None:
    commit_first(history)
    if decided:
        history.decide()
    result = history.run("stream", "resume", *STREAM, "--head", "7:a:b")
    assert result.exit_code == 0, result.output
    assert f"decision {asked} is not in the table at or before snapshot 7" in result.stdout
    proof = history.state.proof
    assert proof is not None
    assert (proof.decision, proof.head) == (asked, SnapshotRef(id=7, identity="a:b"))


@pytest.mark.parametrize(
    ("decided", "newest", "why"),
    [
        (False, 3, "the table has decision 3 of its commit user, and the log ends with 1"),
        (True, 3, "the table has decision 3 of its commit user, and the log ends with 2"),
        (True, 2, "has decision 2 of its commit user. A coordinator compares that with the log by itself"),
    ],
)
def test_no_statement_is_made_that_the_table_disproves(
    history: History, decided: bool, newest: int, why: str
) -> None:
    """The log is an older copy, or the commit is there: a commit on top of it would have the rows twice."""
    commit_first(history, newest)
    if decided:
        history.decide()
    result = history.run("stream", "resume", *STREAM, "--head", "7:a:b")
    assert result.exit_code == 2, result.output
    told = " ".join(result.stderr.split())
    assert "no statement was made" in told
    assert why in told
    assert history.state.proof is None


def test_a_removed_region_ends_at_its_last_completed_checkpoint(history: History) -> None:
    result = history.run("region", "remove", *STREAM, "--region", "EWR")
    assert result.exit_code == 0, result.output
    assert "ends at checkpoint 1 of incarnation EWR-1, which is still to be committed" in result.stdout
    assert (history.state.regions["EWR"].phase, history.state.regions["EWR"].final) == ("removed", 1)
    again = history.run("region", "remove", *STREAM, "--region", "EWR")
    assert again.exit_code == 2
    discard = "sluicegate region remove --stream flights --region EWR --discard"
    assert discard in again.stderr.replace("\n", " ")
    assert history.run(*discard.split()[1:]).exit_code == 0
    assert history.state.regions["EWR"].final is None
    for order in (("--region", "EWR"), ("--region", "EWR", "--discard")):
        result = history.run("region", "remove", *STREAM, *order)
        assert (result.exit_code, "nothing of it waits for a commit" in result.stderr) == (2, True)
        assert "--discard" not in result.stderr
    assert [each.command for each in commands(history.deployment)] == ["remove", "discard"]


async def delete_before(deployment: Deployment, offset: int) -> None:
    """Delete the records of the stream's partition before an offset."""
    kafka = deployment.settings.kafka
    async with started(AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        source = TopicPartition(kafka.topic_names().events, partition_of("flights", PARTITIONS))
        await admin.delete_records({source: RecordsToDelete(before_offset=offset)})


def test_an_order_after_an_older_record_starts_from_a_base_record(history: History) -> None:
    """The first record of the stream has come back, and the beginning of the log is deleted."""
    history.send()
    begin = history.replica.log.low_water(history.replica.applied + 1)
    assert begin > 0
    base = encode_record(
        StateRecord(stream="flights", applied=history.replica.applied, low_water=begin, state=history.state)
    )
    history.deployment.write_state((f"flights/{begin}".encode(), base))
    asyncio.run(delete_before(history.deployment, begin))
    result = history.deployment.run("region", "remove", *STREAM, "--region", "EWR")
    assert result.exit_code == 0, result.output
    assert "ends at checkpoint 1 of incarnation EWR-1, which is still to be committed" in result.stdout


def test_a_decision_is_reverted(history: History) -> None:
    history.decide()
    order = ("commit", "revert", *STREAM, "--decision", "2", "--region", "EWR")
    with after_the_order(history, history.revert):
        result = history.deployment.run(*order, "--json")
    assert result.exit_code == 0, result.output
    assert as_json(result)["outcome"] == "reverted"
    assert history.state.regions["EWR"].fault == Problem(code=Code.REVERTED, region="EWR", number=2)


def test_a_decision_that_is_in_the_table_after_all_is_not_reverted(history: History) -> None:
    history.decide()
    order = ("commit", "revert", *STREAM, "--decision", "2", "--region", "EWR")
    with after_the_order(history, history.commit):
        result = history.deployment.run(*order)
    assert (result.exit_code, "is in the table after all" in result.stdout) == (1, True), result.output


def test_a_closed_assignment_names_the_cut_that_the_next_one_follows(history: History) -> None:
    closed = history.run("assignment", "close", *STREAM)
    assert closed.exit_code == 0, closed.output
    assert "sluicegate assignment close --stream flights --wait" in closed.stdout
    history.decide()
    history.commit()
    result = history.run("assignment", "close", *STREAM, "--wait")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "assignment 0 of stream flights has ended with decision 2",
        "drivers of the next assignment name decision 2 as `after`, and begin here. With Spark, that is the "
        "option assignment.after",
        '  EWR  checkpoint 1 of EWR-1; source offsets: {"at": 1}',
        '  JFK  checkpoint 1 of JFK-1; source offsets: {"at": 1}',
    ]
    history.register("EWR", "EWR-2", "EWR", "LGA", number=1, after=2)
    assert history.state.assignment is not None
    assert history.state.assignment.number == 1


def test_closing_waits_for_the_final_cut(history: History) -> None:
    def coordinate() -> None:
        history.decide()
        history.commit()

    with after_the_order(history, coordinate):
        result = history.deployment.run("assignment", "close", *STREAM, "--number", "0", "--wait", "--json")
    assert result.exit_code == 0, result.output
    shown = as_json(result)
    assert (shown["decision"], shown["effective"]) == (2, True)
    assert shown["regions"]["JFK"]["position"]["checkpoint"] == 1
    assert shown["regions"]["JFK"]["source_offsets"] == '{"at": 1}'


NO_EFFECT: Final = (
    (("stream", "pause", "--stream", "flihgts"), "configured are: flights"),
    (("stream", "resume", "--stream", "flihgts"), "configured are: flights"),
    (("stream", "resume", *STREAM, "--head", "seven"), "is not SNAPSHOT:IDENTITY"),
    (("stream", "resume", *STREAM, "--head", "7:"), "is not SNAPSHOT:IDENTITY"),
    (("stream", "savepoint", *STREAM, "--name", "a/b"), "name 'a/b' cannot be ordered"),
    (("stream", "drain", *STREAM, "--timeout", "soon"), "must be a duration"),
    (("stream", "cancel", *STREAM, "--name", "s9"), "waits for: none"),
    (("region", "remove", *STREAM, "--region", "EWX"), "has no region EWX; it has: EWR, JFK"),
    (
        ("commit", "revert", *STREAM, "--decision", "1", "--region", "EWR"),
        "The newest decision is 1, and it has its outcome",
    ),
    (("commit", "revert", *STREAM, "--decision", "0", "--region", "EWR"), "is not in the range"),
    (("assignment", "close", *STREAM, "--number", "3"), "that is assignment 0"),
    (("assignment", "withdraw", *STREAM), "has decided a commit"),
)
"""Orders without an effect, each with a part of its refusal."""


def test_orders_that_have_no_effect_are_not_appended(history: History) -> None:
    for arguments, says in NO_EFFECT:
        result = history.run(*arguments)
        assert result.exit_code == 2, arguments
        assert says in " ".join(result.stderr.split()), arguments
    assert commands(history.deployment) == []


def test_nothing_can_be_ordered_of_a_stream_without_a_record(deployment: Deployment) -> None:
    deployment.create_topics()
    result = deployment.run("stream", "resume", *STREAM)
    assert result.exit_code == 2
    assert "no driver has registered a region yet" in " ".join(result.stderr.split())
    assert deployment.events("flights") == []


def test_a_savepoint_is_taken_with_the_commit_of_everything_completed(history: History) -> None:
    def coordinate() -> None:
        history.decide()
        history.commit()

    with after_the_order(history, coordinate):
        result = history.deployment.run("stream", "savepoint", *STREAM, "--name", "s1", "--json")
    assert result.exit_code == 0, result.output
    shown = as_json(result)
    assert (shown["order"], shown["decision"]) == ({"command": "savepoint", "name": "s1"}, 2)
    assert {name: at["checkpoint"] for name, at in shown["cut"].items()} == {"EWR": 1, "JFK": 1}
    assert shown["snapshot"] == {"id": 2, "identity": "i2"}


def test_a_savepoint_that_waits_is_cancelled(history: History) -> None:
    order = ("stream", "savepoint", *STREAM, "--name", "s1", "--timeout", "300ms")
    waits = history.run(*order)
    assert (waits.exit_code, "The order stays in force" in waits.stderr) == (1, True), waits.output
    again = history.run(*order)
    cancel = "sluicegate stream cancel --stream flights --name s1"
    assert (again.exit_code, cancel in again.stderr) == (2, True), again.output
    cancelled = history.run(*cancel.split()[1:])
    assert (cancelled.exit_code, "s1 of stream flights is cancelled" in cancelled.stdout) == (0, True)
    assert history.state.savepoints == []


def test_a_drain_waits_for_the_end_of_all_regions(history: History) -> None:
    waits = history.run("stream", "drain", *STREAM, "--timeout", "0.3", "--json")
    assert waits.exit_code == 1
    shown = as_json(waits)
    assert shown["effective"] is False
    assert shown["order"]["name"].startswith("drain-20")
    history.decide()
    history.commit()
    history.close("EWR", 1)
    history.close("JFK", 1)
    done = history.run("stream", "drain", *STREAM)
    assert "all its regions had ended before this order" in done.stdout
    assert (done.exit_code, "stream flights is drained of assignment 0: commit 2" in done.stdout) == (
        0,
        True,
    ), done.output


def test_coordinators_that_never_served_the_stream(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "PATIENCE", 0.0)
    deployment.env["SLUICEGATE_HTTP__PORT"] = "0"
    deployment.create_topics()
    group = deployment.settings.kafka.group_id
    text = f"coordinators run in group {group}, but none of them serves stream flights. Give all members"
    assert "stream flights" not in findings(deployment.run("check")), "nobody runs, which is another warning"
    with coordinator_in_the_group(deployment):
        result = deployment.run("check")
        verdict, detail = findings(result)["stream flights"]
        assert (result.exit_code, verdict, text in detail) == (0, "WARNING", True)
        (shown,) = as_json(deployment.run("status", "--json"))["streams"]
        assert shown["unserved"] == detail
        first, second = deployment.run("status").stdout.splitlines()
        assert first.startswith("flights  no coordinator has served it yet  partition ")
        assert second == f"  NOT SERVED: {detail}"
        record = StateRecord(stream="flights", applied=-1, low_water=0, state=LogState())
        deployment.write_state((b"flights", encode_record(record)))
        assert "stream flights" not in findings(deployment.run("check"))
        assert "NOT SERVED" not in deployment.run("status").stdout
