"""What the service and the orders advise is followed here, and the stream's commits are exact then."""

import json
import socket
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest

from sluicegate.cli import pending
from sluicegate.coordinator import records
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.embedded import EmbeddedKafka
from sluicegate.embedded.ports import free_port
from sluicegate.events.models import Parent
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import CommitRequest, NotPublished, Publication, Refused
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import create_table, make_topics, read_ids
from tests.integration.letters import home_of, stalls
from tests.integration.orders import Spoken, invoke, invoke_here, sluicegate
from tests.integration.test_groups import of_group
from tests.integration.test_replay import forget, three_commits
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
FLIGHTS = ("--stream", "flights")
COMMIT_MISSING = ("replay", *FLIGHTS, "--commit-missing")


async def test_a_service_listens_on_another_port(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]
        said = await invoke(place, "run", HTTP__HOST="127.0.0.1", HTTP__PORT=str(taken))
        assert said.exit_code == 2, said.output
        assert "change http.host or http.port" in said.stderr
        other = {"host": "127.0.0.1", "port": free_port()}
        async with running(place.settings(http=other)), place.job() as job:
            await job.register()
            await job.run_batch([1])
            await job.committed([1])


async def test_status_says_why_the_commit_of_an_order_does_not_come(
    place: Place, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = PaimonCommitter.publish

    def away(self: PaimonCommitter, request: CommitRequest) -> Publication:
        return NotPublished("the store is away") if request.decision == 2 else publish(self, request)

    monkeypatch.setattr(PaimonCommitter, "publish", away)
    order = ("savepoint", *FLIGHTS, "--name", "before-upgrade")
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        await job.run_batch([2])
        said = await until(
            lambda: invoke(place, *order, "--timeout", "1s"),
            lambda found: "its commit, see `sluicegate status`" in found.stderr,
        )
        assert said.exit_code == 1
        assert "the store is away" in await sluicegate(place, "status")
        monkeypatch.undo()
        await sluicegate(place, *order)
        assert read_ids(place.table) == [1, 2]


async def test_an_order_is_carried_out_once_a_coordinator_runs(place: Place) -> None:
    order = ("savepoint", *FLIGHTS, "--name", "before-upgrade")
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
        await job.run_batch([2])
        said = await invoke_here(place, *order, "--timeout", "100ms")
        assert said.exit_code == 1
        assert "see `sluicegate status`, and whether a coordinator runs" in said.stderr
        assert "no coordinator" in (await invoke_here(place, "status")).stdout
        async with running(place.settings()):
            await sluicegate(place, *order)
            assert read_ids(place.table) == [1, 2]


async def test_what_a_new_lineage_drops_is_seen_in_the_status(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.job() as job, place.job(incarnation="q2") as anew:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            assert not (await anew.register()).accepted
        await job.written(job.write_files([99]))
        monkeypatch.setattr(pending, "PATIENCE", 0.0)
        said = await invoke_here(place, "accept", *FLIGHTS, "--region", "r1", "--lineage", "q2.0")
        assert said.exit_code == 0, said.output
        assert "see how far that is: sluicegate status" in said.stdout
        shown = json.loads((await invoke_here(place, "status", "--json")).stdout)
        assert shown["streams"][0]["regions"]["r1"]["cut"]["checkpoint"] == 0
        async with running(place.settings()):
            assert (await anew.register()).accepted
            await anew.run_batch([2])
            await anew.committed([1, 2])


async def test_a_group_whose_stream_was_taken_over_is_stopped(place: Place) -> None:
    other = f"{place.prefix}-other"
    async with place.job() as job:
        async with running(of_group(place, other)):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            said = await sluicegate(place, "takeover", *FLIGHTS)
            assert f"the group {other} has 1 members: stop its coordinators" in said
        async with running(place.settings()):
            await job.run_batch([2])
            await job.committed([1, 2])


async def test_only_the_decision_that_waits_is_voided(
    place: Place, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = PaimonCommitter.publish

    def refusing(self: PaimonCommitter, request: CommitRequest) -> Publication:
        return Refused("not this one") if request.files and request.decision == 2 else publish(self, request)

    def order(decision: int) -> tuple[str, ...]:
        return ("void", *FLIGHTS, "--decision", str(decision), "--region", "r1", "--checkpoint", "1")

    monkeypatch.setattr(PaimonCommitter, "publish", refusing)
    async with running(place.settings()), place.job() as job, place.job(incarnation="q2") as again:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        await job.run_batch([2])
        await until(lambda: stalls(job))
        assert "decisions count from 1, checkpoints from 0" in (await invoke(place, *order(0))).stderr
        done = await invoke(place, *order(1))
        assert done.exit_code == 2
        assert "has its outcome already" in done.stderr
        assert "only a decision that waits for the table can be voided" in done.stderr
        assert "decision 2" in await sluicegate(place, "status")
        await sluicegate(place, *order(2))
        assert (await again.register(Parent(region="r1", incarnation="q1", checkpoint=0))).accepted
        await again.run_batch([3])
        await again.committed([1, 3])


async def test_a_coordinator_is_restarted_on_a_log_that_is_whole(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings()) as service:
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            # As if the broker had answered that this offset is out of its range.
            await service._runners[home_of("flights")].refuse()
            told = await until(lambda: stalls(job))
            assert "Put it back, or restart the coordinator if it is whole" in told[-1]
            await job.run_batch([2])
        async with running(place.settings()):
            await job.committed([1, 2])


async def test_an_upgraded_coordinator_goes_on_from_a_newer_record(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
        held = await records.read_held(
            place.topics.state, 3, place.settings().kafka.client_options(), ["flights"], 20.0
        )
        record = held["flights"].record
        assert isinstance(record, StateRecord)
        newer = record.model_copy(update={"version": 2})
        await job.producer.send_and_wait(
            place.topics.state, newer.model_dump_json().encode(), b"flights", home_of("flights")
        )
        async with running(place.settings()):
            told = await until(lambda: stalls(job))
            assert "is of version 2, this release reads 1; upgrade the coordinator" in told[-1]
            await job.run_batch([2])
        monkeypatch.setattr(records, "RECORD_VERSION", 2)
        async with running(place.settings()):
            await job.committed([1, 2])


async def allow(place: Place, kind: int, name: str, operation: int, principal: str = "ANONYMOUS") -> None:
    """Let a principal do something; whom nothing is said of may do it no more then."""
    admin = AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)
    await admin.start()
    try:
        request = CreateAclsRequest(kind, name, 3, f"User:{principal}", "*", operation, 3)
        answer = await admin._send_request(request)
        assert [each[0] for each in answer.creation_responses] == [0], answer
    finally:
        await admin.close()


TOPIC, GROUP = 2, 3
READ, DESCRIBE = 3, 8


async def test_a_client_does_what_it_was_granted(unique: str, tmp_path: Path) -> None:
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with EmbeddedKafka(settings=rules) as broker:
        topics = await make_topics(broker.bootstrap, unique)
        place = Place(broker.bootstrap, unique, topics, tmp_path, create_table(tmp_path))

        async def said(*arguments: str, advice: str, status: int) -> Spoken:
            """What a command says once the broker has heard of the rules."""
            return await until(
                lambda: invoke_here(place, *arguments),
                lambda found: found.exit_code == status and advice in found.output,
            )

        async with place.job() as job:
            await three_commits(place, job)
        forget(Path(place.table), 3)
        await allow(place, GROUP, unique, READ, "somebody")
        advice = (
            f"this client may not join it; grant READ on the group {unique}, or set kafka.group_id to one"
        )
        await said("check", advice=advice, status=1)
        await said(*COMMIT_MISSING, advice="grant it DESCRIBE on the group", status=2)
        await allow(place, GROUP, unique, DESCRIBE)
        await said(*COMMIT_MISSING, advice="was committed: decision 3", status=0)
        assert read_ids(place.table) == [1, 2, 3]
        await allow(place, GROUP, unique, READ)
        await said("check", advice="may be joined", status=0)

        await allow(place, TOPIC, topics.state, READ, "somebody")
        await allow(place, TOPIC, topics.state, DESCRIBE)
        await said("status", advice="check kafka.security and the permissions", status=2)
        await allow(place, TOPIC, topics.state, READ)
        await said("status", advice="flights", status=0)
