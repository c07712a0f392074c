"""The recipes of docs/moving.md: another Kafka cluster, and another name of the stream."""

import json
import re
import signal
from collections.abc import Mapping

import pytest
from aiokafka import AIOKafkaProducer

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.events.envelope import partition_of
from tests.faults.lives import Deployment, Life
from tests.faults.pythons import STEP, PlainJob, Program
from tests.faults.scenes import Maker
from tests.faults.sparks import Tickets
from tests.integration.job import PARTITIONS
from tests.integration.waiting import until
from tests.upgrades.moving import command, stalled

pytestmark = pytest.mark.kafka


async def done(where: Deployment, *arguments: str) -> str:
    """Run a command that has to succeed; return its output."""
    result = await command(where, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def changed(job: PlainJob, options: Mapping[str, str]) -> None:
    """Change options of a job, as its owner does."""
    before = json.loads(job.settings.read_text())
    job.settings.write_text(json.dumps({**before, **options}))


async def test_a_stream_moves_to_another_cluster(make: Maker, own_kafka: EmbeddedKafka) -> None:
    where = await make()
    job, life = PlainJob(where, Tickets(where), {}), where.start()
    program = Program(job)
    try:
        job.ask_for(2 * STEP)
        await job.await_rows(job.target, program)
        await done(where, "stream", "savepoint", "--stream", "flights")
        life.end()
        # Completed, and committed nowhere: the new cluster does not have it.
        job.ask_for(STEP)
        program.kill()
        where.bootstrap = own_kafka.bootstrap
        await done(where, "topics", "create")
        adopted = await done(where, "stream", "adopt", "--stream", "flights")
        assert "stream flights continues after decision" in adopted
        changed(job, {"kafka.bootstrap.servers": where.bootstrap})
        job.ask_for(STEP)
        life, program = where.start(), Program(job)
        await job.await_rows(job.target, program)
        await done(where, "replay", "verify", "--stream", "flights")
    finally:
        program.kill()
        life.kill()
    job.exact()


@pytest.mark.parametrize("unreadable", [False, True], ids=["works", "stalled"])
async def test_a_stream_gets_another_name(make: Maker, unreadable: bool) -> None:
    """Also a stream that waited for a newer release, because a program wrote what no release reads."""
    where = await make(streams=("flights", "others"))
    job, life = PlainJob(where, Tickets(where), {}), where.start()
    program = Program(job)
    try:
        job.ask_for(2 * STEP)
        await job.await_rows(job.target, program)
        if unreadable:
            await write_unreadable(where, "flights")
            await stalled(life, "record-unreadable", "flights")
            told = (await done(where, "status", "--stream", "flights")).replace("\n", " ")
            (look,) = re.findall(r"`sluicegate (stream skip [^`]*)` shows it", " ".join(told.split()))
            shown = await command(where, *look.split())
            (skip,) = re.findall(r"by mistake: sluicegate (stream skip .*)", shown.stdout)
            await done(where, *skip.split())
            job.ask_for(STEP)
            await job.await_rows(job.target, program)
        await done(where, "stream", "savepoint", "--stream", "flights")
        program.kill()
        where.streams = ("others",)
        await reloaded(where, life, {"others"})
        where.streams, where.policy = ("departures",), {"commit_user": "sluicegate-flights"}
        where.tables["departures"] = where.tables["flights"]
        adopt = ("stream", "adopt", "--stream", "departures")
        refused = await command(where, *adopt)
        assert (refused.exit_code, "add --from-stream flights" in refused.stderr) == (2, True), refused.output
        adopted = await done(where, *adopt, "--from-stream", "flights")
        assert "stream departures continues after decision" in adopted
        await reloaded(where, life, {"departures"})
        changed(job, {"stream": "departures"})
        job.ask_for(2 * STEP)
        program = Program(job)
        await job.await_rows(job.target, program)
        forgotten = await done(where, "stream", "forget", "--stream", "flights", "--yes")
        assert "stream flights is forgotten" in forgotten
        assert "decision" in await done(where, "replay", "verify", "--stream", "departures")
    finally:
        program.kill()
        life.kill()
    job.exact()


async def write_unreadable(where: Deployment, stream: str) -> None:
    """Append an event of a version that does not exist."""
    headers = {
        "ce_specversion": "1.0",
        "ce_id": "e",
        "ce_type": "sluicegate.region.heartbeat.v9",
        "ce_stream": stream,
    }
    async with AIOKafkaProducer(bootstrap_servers=where.bootstrap) as producer:
        await producer.send_and_wait(
            f"{where.prefix}.events",
            b"{}",
            partition=partition_of(stream, PARTITIONS),
            headers=[(name, value.encode()) for name, value in headers.items()],
        )


async def reloaded(where: Deployment, life: Life, streams: set[str]) -> None:
    """Give a coordinator the settings of now, and wait until it has exactly these streams."""
    where.write_settings(where.lives, life.port)
    life.send(signal.SIGHUP)

    async def served() -> set[str]:
        status = await life.get("/status")
        return set() if status is None else {*status["streams"]}

    await until(served, lambda found: found == streams, by=life, log=life.log_file, what=str(streams))
