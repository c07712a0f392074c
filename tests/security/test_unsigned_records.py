"""A log with records from before the signing: no command takes them for forged without a word."""

import re
from datetime import UTC, datetime

import pytest

from sluicegate.events.envelope import EventType
from sluicegate.events.models import StreamCommand
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_ids
from tests.integration.orders import invoke
from tests.integration.waiting import until
from tests.security.test_forgery import STREAM, as_variables, forge, replica_of

pytestmark = pytest.mark.kafka

SINCE = "KAFKA__SIGNING__SINCE"


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
