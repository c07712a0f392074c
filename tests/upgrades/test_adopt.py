"""`sluicegate stream adopt`: all topics are lost, and the stream continues from its table, exact."""

import pytest

from sluicegate.failpoints.names import Failpoint
from tests.faults.pythons import STEP, PlainJob, Program
from tests.faults.rolling import Plan
from tests.faults.scenes import Maker
from tests.faults.sparks import Tickets
from tests.integration.waiting import until
from tests.upgrades.moving import ADOPT, command, lose_topics, stalled

pytestmark = pytest.mark.kafka

MOMENTS = (
    Failpoint.PUBLISH_BEFORE,
    Failpoint.PUBLISH_AFTER,
    Failpoint.APPEND_COMMITTED_AFTER,
    Failpoint.ANNOUNCE_AFTER,
)
"""A decision that only the log had; then commits whose outcome, record and announcement are lost."""


@pytest.mark.parametrize(
    ("lake", "moments"), [("paimon", MOMENTS), ("iceberg", MOMENTS[:2]), ("delta", MOMENTS[:2])]
)
async def test_a_stream_continues_from_its_table_after_all_topics_were_deleted(
    make: Maker, lake: str, moments: tuple[Failpoint, ...]
) -> None:
    where = await make(lake=lake)
    job, life = PlainJob(where, Tickets(where), {}), where.start()
    program = Program(job)
    try:
        job.ask_for(3 * STEP)
        await job.await_rows(3 * STEP, program)
        for point in moments:
            life.kill()
            life = where.start(Plan(point).rule)
            job.ask_for(4 * STEP)
            await life.killed()
            # What the driver has completed since then is in the topics alone.
            program.kill()
            await lose_topics(where)
            adopted = await command(where, *ADOPT)
            assert adopted.exit_code == 0, adopted.output
            assert "stream flights continues after decision" in adopted.stdout
            life, program = where.start(), Program(job)
            await job.await_rows(job.target, program)
        job.settings.with_name("done").touch()
        await program_ends(job, program)
    finally:
        program.kill()
        life.kill()
    job.exact()


async def program_ends(job: PlainJob, program: Program) -> None:
    """Wait until a driver has ended in order."""
    status = await until(program.poll, lambda each: each is not None, log=job.log_file)
    assert status == 0, job.tail()


async def test_a_coordinator_that_started_first_is_no_obstacle(make: Maker) -> None:
    where = await make()
    job, life = PlainJob(where, Tickets(where), {}), where.start()
    program = Program(job)
    try:
        job.ask_for(2 * STEP)
        await job.await_rows(2 * STEP, program)
        life.kill()
        program.kill()
        await lose_topics(where)
        life = where.start()
        said = await stalled(life, "table-ahead")
        assert "sluicegate stream adopt --stream flights" in str(said)
        refused = await command(where, *ADOPT)
        assert (refused.exit_code, "Stop them first" in refused.stderr) == (2, True), refused.output
        life.end()
        dry = await command(where, *ADOPT, "--dry-run")
        assert "would continue after decision" in dry.stdout, dry.output
        adopted = await command(where, *ADOPT)
        assert adopted.exit_code == 0, adopted.output
        job.ask_for(2 * STEP)
        life, program = where.start(), Program(job)
        await job.await_rows(job.target, program)
        known = await command(where, *ADOPT)
        assert known.exit_code == 2, known.output
        assert "itself. Start the coordinators" in known.stderr
        verified = await command(where, "replay", "verify", "--stream", "flights")
        assert verified.exit_code == 0, verified.output
    finally:
        program.kill()
        life.kill()
    job.exact()
