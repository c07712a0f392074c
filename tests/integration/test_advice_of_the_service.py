"""What the service and the orders advise is followed here, and the stream's commits are exact then."""

import socket
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest

from sluicegate.coordinator.core import state_record
from sluicegate.coordinator.core.state_record import RECORD_VERSION, StateRecord, encode_record
from sluicegate.coordinator.stream.records import read_held
from sluicegate.embedded import EmbeddedKafka
from sluicegate.embedded.ports import free_port
from sluicegate.events.notifications import SavepointTaken
from sluicegate.events.problems import Code
from sluicegate.kafka.clients import started
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import CommitRequest, NotPublished, Publication, Refused
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, Job, create_table, make_topics, read_ids
from tests.integration.letters import home_of, stalls
from tests.integration.orders import Spoken, invoke, invoke_here, sluicegate
from tests.integration.test_replay import REPAIR, forget, three_commits
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
FLIGHTS = ("--stream", "flights")
SAVEPOINT = ("stream", "savepoint", *FLIGHTS, "--name", "before-upgrade")


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


async def done(job: Job) -> list[str]:
    """Wait for a savepoint, and return the names of those that were taken."""

    async def taken() -> list[str]:
        bodies = [each.body for each in await job.notifications()]
        return [each.name for each in bodies if isinstance(each, SavepointTaken)]

    return await until(taken)


async def test_an_order_says_why_its_effect_does_not_come(
    place: Place, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = PaimonCommitter.publish

    def away(self: PaimonCommitter, request: CommitRequest) -> Publication:
        return NotPublished("the store is away") if request.decision == 2 else publish(self, request)

    monkeypatch.setattr(PaimonCommitter, "publish", away)
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        await job.run_batch([2])
        await until(lambda: sluicegate(place, "status"), lambda shown: "the store is away" in shown)
        said = await invoke(place, *SAVEPOINT, "--timeout", "1s")
        assert said.exit_code == 1
        assert "The order stays in force" in said.stderr
        assert "the store is away" in said.stderr
        assert "It continues by itself when the cause is gone" in said.stderr
        monkeypatch.undo()
        await job.committed([1, 2])
        await job.run_batch([3])
        await job.committed([1, 2, 3])
        assert await done(job) == ["before-upgrade"]


async def test_an_order_is_carried_out_once_a_coordinator_runs(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
        await job.run_batch([2])
        said = await invoke_here(place, *SAVEPOINT, "--timeout", "100ms")
        assert said.exit_code == 1
        assert "no coordinator runs" in said.stderr
        assert "Start one: sluicegate run" in said.stderr
        assert "no coordinator is running" in (await invoke_here(place, "status")).stdout
        assert "no coordinator runs, so nothing is committed" in (await invoke_here(place, "check")).stdout
        async with running(place.settings()):
            assert "members: 1 coordinator runs" in (await invoke(place, "check")).stdout
            await job.committed([1, 2])
            assert await done(job) == ["before-upgrade"]


async def test_only_the_decision_that_waits_is_reverted(
    place: Place, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = PaimonCommitter.publish

    def refusing(self: PaimonCommitter, request: CommitRequest) -> Publication:
        return Refused("not this one") if request.files and request.decision == 2 else publish(self, request)

    def order(decision: int) -> tuple[str, ...]:
        return ("commit", "revert", *FLIGHTS, "--decision", str(decision), "--region", "r1")

    monkeypatch.setattr(PaimonCommitter, "publish", refusing)
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        await job.run_batch([2])
        problem = (await until(lambda: stalls(job)))[0]
        assert (problem.code, problem.number) == (Code.COMMIT_REFUSED, 2)
        done = await invoke(place, *order(1))
        assert done.exit_code == 2
        assert "only a decision without an outcome can. That is decision 2" in done.stderr
        assert "sluicegate commit revert --stream flights --decision 2" in await sluicegate(place, "status")
        await sluicegate(place, *order(2))
        assert (await job.begin("q2")).accepted
        await job.run_batch([3])
        await job.committed([1, 3])


async def test_a_coordinator_is_restarted_on_a_log_that_is_whole_again(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings()) as service:
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            # As if the broker had answered that this offset is out of its range.
            await service._runners[home_of("flights")].refuse()
            (problem,) = await until(lambda: stalls(job))
            assert problem.code is Code.LOG_DISCONTINUOUS
            advice = "Restore the topic, then restart the coordinators"
            assert advice in await sluicegate(place, "status")
            await job.run_batch([2])
        async with running(place.settings()):
            await job.committed([1, 2])


async def test_an_upgraded_coordinator_continues_from_a_newer_record(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
        options = place.settings().kafka.client_options()
        record = (await read_held(place.topics.state, PARTITIONS, options, ["flights"], 20.0))[
            "flights"
        ].record
        assert isinstance(record, StateRecord)
        newer = record.model_copy(update={"version": RECORD_VERSION + 1})
        await job.producer.send_and_wait(
            place.topics.state, encode_record(newer), b"flights", home_of("flights")
        )
        async with running(place.settings()):
            problem = (await until(lambda: stalls(job)))[-1]
            assert (problem.code, problem.number) == (Code.STATE_RECORD_NEWER, RECORD_VERSION + 1)
            assert "Upgrade all coordinators" in await sluicegate(place, "status")
            await job.run_batch([2])
        monkeypatch.setattr(state_record, "RECORD_VERSION", RECORD_VERSION + 1)
        async with running(place.settings()):
            await job.committed([1, 2])


async def allow(place: Place, kind: int, name: str, operation: int, principal: str = "ANONYMOUS") -> None:
    """Let a principal do something; whom nothing is said of may do it no more then."""
    async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
        request = CreateAclsRequest(kind, name, 3, f"User:{principal}", "*", operation, 3)
        answer = await admin._send_request(request)
        assert [each[0] for each in answer.creation_responses] == [0], answer


TOPIC, GROUP = 2, 3
READ, DESCRIBE = 3, 8


AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Settings of a broker with access rules, where everybody may use what no rule names."""


async def test_a_client_does_what_it_was_granted(unique: str, tmp_path: Path) -> None:
    with EmbeddedKafka(settings=AUTHORIZED) as broker:
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
            await said(*REPAIR, advice="Grant it DESCRIBE on the group", status=2)
            await allow(place, GROUP, unique, DESCRIBE)
            await said(*REPAIR, advice="decision 3", status=0)
            assert read_ids(place.table) == [1, 2, 3]
            await allow(place, GROUP, unique, READ)
            await said("check", advice="may be joined", status=0)
            async with running(place.settings()):
                await job.run_batch([4])
                await job.committed([1, 2, 3, 4])
        await said("check", advice="may be joined", status=0)

        await allow(place, TOPIC, topics.state, READ, "somebody")
        await allow(place, TOPIC, topics.state, DESCRIBE)
        await said("status", advice=f"Grant this client READ on the topic {topics.state}", status=2)
        await allow(place, TOPIC, topics.state, READ)
        await said("status", advice="flights", status=0)
