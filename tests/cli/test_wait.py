"""`sluicegate wait` ends when the watermark of the commits has reached a time, or says why it has not."""

import asyncio
import subprocess
import sys

import pytest

from sluicegate import state_store
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord, encode_record
from sluicegate.events.envelope import partition_of
from sluicegate.state_store import StreamView
from tests.cli.deployment import PARTITIONS, Deployment, as_json
from tests.cli.test_servers import PROGRAM
from tests.integration.waiting import BACKSTOP

pytestmark = pytest.mark.seam

NOON = 1_356_998_400_000
AT_NOON = "2013-01-01T00:00:00Z"
LATER = "2013-01-01T00:00:00.001Z"


def _write(deployment: Deployment, watermark: int | None) -> None:
    """Write a state record with the watermark of a commit."""
    state = LogState(partition=partition_of("flights", PARTITIONS), decided=1, watermark=watermark)
    record = StateRecord(stream="flights", applied=9, low_water=9, state=state)
    deployment.write_state((b"flights", encode_record(record)))


@pytest.mark.kafka
def test_a_watermark_that_was_reached_is_told(deployment: Deployment) -> None:
    deployment.create_topics()
    _write(deployment, NOON)
    for time in (AT_NOON, "2013-01-01", "2013-01-01T01:00:00+01:00"):
        result = deployment.run("wait", "--stream", "flights", "--watermark", time)
        said = "the watermark of stream flights is 2013-01-01T00:00:00Z\n"
        assert (result.exit_code, result.stdout) == (0, said), result.output
    result = deployment.run("wait", "--stream", "flights", "--watermark", AT_NOON, "--json")
    assert as_json(result) == {"stream": "flights", "watermark": NOON, "reached": True}


@pytest.mark.kafka
@pytest.mark.parametrize(("watermark", "shown"), [(NOON, AT_NOON), (None, "not known yet")])
def test_after_the_timeout_the_reason_is_told(
    deployment: Deployment, watermark: int | None, shown: str
) -> None:
    deployment.create_topics()
    _write(deployment, watermark)
    command = ("wait", "--stream", "flights", "--watermark", LATER, "--timeout", "0.01")
    result = deployment.run(*command)
    assert result.exit_code == 1
    assert f"the watermark of stream flights is {shown}, and has not reached" in result.stderr
    assert "Start one: sluicegate run" in result.stderr
    found = as_json(deployment.run(*command, "--json"))
    assert (found["watermark"], found["reached"]) == (watermark, False)
    assert "sluicegate run" in found["waits_for"]


@pytest.mark.kafka
def test_it_waits_and_says_why(deployment: Deployment) -> None:
    deployment.create_topics()
    command = [sys.executable, "-c", PROGRAM, "wait", "--config", str(deployment.config)]
    command += ["--stream", "flights", "--watermark", AT_NOON]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "no coordinator runs" in process.stderr.readline()
            _write(deployment, NOON)
            said, _ = process.communicate(timeout=BACKSTOP)
        finally:
            process.kill()
    assert (process.returncode, said) == (0, "the watermark of stream flights is 2013-01-01T00:00:00Z\n")


@pytest.mark.redis
def test_redis_alone_is_enough(nobody: Deployment, redis_url: str, unique: str) -> None:
    async def fill() -> None:
        async with state_store.open(redis_url, prefix=unique) as store:
            view = StreamView(stream="flights", revision=1, updated_at=1, commit_user="u", watermark=NOON)
            assert await store.write(view)

    asyncio.run(fill())
    redis = {"SLUICEGATE_REDIS__URL": redis_url, "SLUICEGATE_REDIS__KEY_PREFIX": unique}
    result = nobody.run("wait", "--stream", "flights", "--watermark", AT_NOON, **redis)
    assert result.exit_code == 0, result.output
    result = nobody.run("wait", "--stream", "flights", "--watermark", LATER, "--timeout", "0.01", **redis)
    assert (result.exit_code, "does not answer" in result.stderr) == (1, True), result.output


@pytest.mark.slow
def test_a_wrong_time_is_refused(nobody: Deployment) -> None:
    result = nobody.run("wait", "--stream", "flights", "--watermark", "noon")
    assert (result.exit_code, "write it as 2013-02-01T00:00:00Z" in result.stderr) == (2, True), result.output
    result = nobody.run("wait", "--stream", "flights", "--watermark", "2013-02-01T00:00:00Z")
    assert (result.exit_code, "does not answer" in result.stderr) == (2, True), result.output
