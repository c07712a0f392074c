"""A log with records from before the signing: no command takes them for forged without a word."""

import re
from datetime import UTC, datetime

import pytest

from sluicegate.coordinator.core.state_record import StateRecord, decode_record
from sluicegate.events.envelope import EventType
from sluicegate.events.models import StreamCommand
from sluicegate.events.problems import Code
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_ids, read_records
from tests.integration.letters import conditions, stalled
from tests.integration.orders import invoke
from tests.integration.test_limits import die_at
from tests.integration.waiting import until
from tests.security.test_forgery import STREAM, as_variables, forge, log_of, replica_of, signing

pytestmark = pytest.mark.kafka

SINCE = "KAFKA__SIGNING__SINCE"
RECOVER = ("stream", "recover", *STREAM)


def advised(said: str) -> str:
    """Return the time that a message names for `kafka.signing.since`."""
    assert "set kafka.signing.since of" in said
    found = re.search(r"\((\S+Z) is after all that are refused\)", said)
    assert found is not None, said
    return found[1]


async def refused(place: Place, into: str, variables: dict[str, str], count: str) -> str:
    """All commands name the records; nothing is written. Returns the advised time."""
    verified = await invoke(place, "replay", "verify", *STREAM, **variables)
    told = " ".join(verified.output.split())
    assert verified.exit_code == 1, told
    assert f"{count} no signature" in told
    assert "IS NOT VERIFIED" in told
    assert "FOREIGN" not in told
    commands = (
        ("replay", "rebuild", "--into", into),
        ("replay", "repair"),
        ("replay", "repair", "--dry-run"),
    )
    for command in (*commands, ("orphans", "delete")):
        result = await invoke(place, *command, *STREAM, **variables)
        assert result.exit_code == 2, (command, result.output)
        said = " ".join(result.stderr.split())
        assert "cannot be verified: " in said
        assert f"{count} no signature" in said
        assert "repeat with --forged unsigned" in said
        assert advised(said) == advised(told)
    return advised(told)


async def unsigned_log(place: Place, job: Job) -> str:
    """Commit twice without signatures; return a time between the two decisions."""
    async with running(place.settings()):
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        await until(lambda: replica_of(place), lambda found: found.state.pending is None)
        between = datetime.now(UTC).isoformat()
        await job.run_batch([2])
        await job.committed([1, 2])
        await until(lambda: replica_of(place), lambda found: found.state.pending is None)
    return between


async def test_records_from_before_the_signing_are_named(place: Place) -> None:
    """The advised time makes the replay exact. A forgery that comes later blocks until it is declared one."""
    into, variables = str(place.root / "db.db" / "again"), as_variables(place, "required")
    async with place.job() as job:
        between = await unsigned_log(place, job)
        time = await refused(place, into, variables, "records have")
        assert await refused(place, into, variables | {SINCE: between}, "2 records have") == time
        assert not (place.root / "db.db" / "again").exists()
        variables[SINCE] = time
        verified = await invoke(place, "replay", "verify", *STREAM, **variables)
        assert verified.exit_code == 0, verified.output
        offset = await forge(job, EventType.STREAM_COMMAND, StreamCommand(command="pause"))
        await refused(place, into, variables, "1 record has")
        named = await invoke(place, "replay", "rebuild", "--into", into, *STREAM, **variables)
        assert f"offset {offset} to {offset}" in " ".join(named.stderr.split())
    for command in (("verify",), ("repair", "--dry-run"), ("rebuild", "--into", into)):
        done = await invoke(place, "replay", *command, *STREAM, "--forged", "unsigned", **variables)
        assert done.exit_code == 0, done.output
    assert read_ids(into) == [1, 2]


async def applied(place: Place) -> int:
    """Return the offset up to which the newest state record includes the log."""
    records = [
        each for each in await read_records(place.bootstrap, place.topics.state) if each.key == b"flights"
    ]
    record = decode_record("flights", records[-1].value)
    assert isinstance(record, StateRecord)
    return record.applied


async def test_members_with_off_and_required(place: Place) -> None:
    """One with `off` is killed after its commit. The other one stalls, and continues as advised."""
    variables = as_variables(place, "required")
    async with place.job() as job:
        async with running(signing(place, "required")):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
        await job.run_batch([2])
        await die_at(place, "publish.after")
        end = (await log_of(place))[-1].offset
        await job.run_batch([3])
        async with running(signing(place, "required"), ready=False) as service:
            assert await until(lambda: stalled(service)) == Code.TABLE_AHEAD
            told = await until(lambda: [each for each in conditions(service) if each["kind"] == "stall"])
            assert "set kafka.signing.since everywhere to a time after" in str(told)
            await until(lambda: applied(place), lambda found: found > end)
        lacking = await invoke(place, *RECOVER, **variables)
        assert lacking.exit_code == 2, lacking.output
        said = " ".join(lacking.stderr.split())
        assert "no signature, and kafka.signing of this command needs one" in said
        time = advised(said)
        made = await invoke(place, *RECOVER, **variables, **{SINCE: time})
        assert made.exit_code == 0, made.output
        async with running(signing(place, "required", since=datetime.fromisoformat(time))) as service:
            await job.run_batch([4])
            await job.committed([1, 2, 3, 4])
            assert conditions(service) == []
    verified = await invoke(place, "replay", "verify", *STREAM, **variables, **{SINCE: time})
    assert verified.exit_code == 0, verified.output
    assert read_ids(place.table) == [1, 2, 3, 4]
