"""Each line of the permissions is needed: without it its step fails, and the error names it. All suffice."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
import structlog
from aiokafka.errors import KafkaError

from sluicegate.coordinator.service import service
from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.stream import retention
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.kafka.permissions import PERMISSIONS, Client, Operation, Permission, format_grants, of_client
from sluicegate.kafka.topics import TopicError
from sluicegate.writer_hooks import HookError, RegionDriver
from sluicegate.writer_hooks.publisher import Publisher
from sluicegate.writer_hooks.region import Event
from sluicegate.writer_hooks.region import KafkaSettings as HookSettings
from tests.integration.coordinator import running
from tests.integration.job import SCHEMA, Job, make_topics, read_events, read_ids
from tests.integration.letters import put_raw
from tests.integration.waiting import BACKSTOP, finished, until
from tests.security.guarded import Deployment, Guarded, deployment, guarded_kafka

pytestmark = pytest.mark.kafka

Log = list[Any]
FILES: Final = EventType.FILES_WRITTEN


@pytest.fixture(scope="module")
def broker() -> Iterator[Guarded]:
    """One broker for all lines; each has topics of its own."""
    with guarded_kafka() as found:
        yield found


@pytest.fixture
def log() -> Iterator[Log]:
    """Give the lines that the service logs, as data."""
    with structlog.testing.capture_logs() as found:
        yield found


def named(permission: Permission) -> str:
    return f"{permission.client.name}-{permission.operation.name}-{permission.topic or 'group'}"


def lines(*clients: Client) -> list[Permission]:
    return [each for each in PERMISSIONS if each.client in clients]


def grant_of(permission: Permission, prefix: str) -> str:
    return format_grants([permission], prefix, prefix)


# --- the coordinator ------------------------------------------------------------------------------


@asynccontextmanager
async def at_work(place: Deployment) -> AsyncIterator[list[BaseException]]:
    """Run a coordinator that may fail, beside a job and an unusable message; gives the error of its end."""
    stop, ended = asyncio.Event(), list[BaseException]()
    soon = f'[streams.flights]\ntable = "{place.table}"\n[streams.flights.janitor]\ngrace = "500ms"\n'
    settings = place.settings(replay_window="1s", streams=soon)

    async def serve() -> None:
        try:
            await Service(settings).run(stop)
        except (KafkaError, TopicError) as error:
            ended.append(error)

    task = asyncio.create_task(serve())
    try:
        async with Job(place.broker.open, place.topics, "flights", place.table) as job:
            await put_raw(job, b"no event", {})
            await job.send_registration()
            await job.run_batch([1])
            yield ended
    finally:
        stop.set()
        await finished(task, "the service")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the coordinator delete events soon."""
    monkeypatch.setattr(retention, "INTERVAL", 0.2)
    monkeypatch.setattr(service, "RELEASE_INTERVAL", 0.2)


@pytest.mark.parametrize("line", lines(Client.COORDINATOR), ids=named)
async def test_a_coordinator_needs_each_line(
    broker: Guarded, line: Permission, unique: str, tmp_path: Path, impatient: None, hasty: None, log: Log
) -> None:
    place = deployment(broker, unique, tmp_path, line.client)
    await make_topics(broker.open, unique)
    await place.grant(each for each in of_client(line.client) if each is not line)
    status, output = await place.said("check")
    assert status == 1
    missing = grant_of(line, unique)
    assert missing in output or f"grant READ on the group {unique}" in output
    resource = unique if line.topic is None else f"{unique}.{line.topic}"
    async with at_work(place) as ended:

        def refused() -> list[str]:
            steps = [str(each) for each in log if each["event"] != "permissions are missing"]
            found = [*steps, *map(repr, ended)]
            return [each for each in found if "uthoriz" in each and resource in each]

        await until(refused, what=str(log))
    told = [each for each in log if each["event"] == "permissions are missing"]
    if line.operation is Operation.DESCRIBE_CONFIGS:
        assert f"grant this client {missing}" in str(ended[0])
    else:
        assert told[0]["remedy"] == f"grant {missing}"
        assert told[0]["steps"] == [line.step]


@pytest.mark.seam
async def test_what_a_proof_is_not_allowed_is_named_with_the_way_out(
    broker: Guarded, unique: str, tmp_path: Path
) -> None:
    place = deployment(broker, unique, tmp_path, Client.COORDINATOR)
    await make_topics(broker.open, unique)
    names, lacking = place.topics, {("WRITE", "commits"), ("READ", "state"), ("DELETE", "events")}
    await place.grant(
        each
        for each in of_client(Client.COORDINATOR)
        if (each.operation.name, str(each.topic)) not in lacking
    )
    status, output = await place.said("check", "--table", "flights")
    lines = output.splitlines()
    for line in (
        f"topic {names.commits}, append: a message cannot be appended. Grant this client WRITE on the topic "
        f"{names.commits}",
        f"topic {names.state}, append: a message cannot be read back. Grant this client READ on the topic "
        f"{names.state}",
    ):
        assert f"PROBLEM  {line}" in lines
    (deletion,) = (each for each in lines if f"topic {names.events}, deletion" in each)
    assert f"grant this client DELETE on the topic {names.events}" in deletion
    assert any(each.startswith(f"OK       topic {names.dead_letters}, append") for each in lines)
    assert "# The settings with these problems:" in lines
    assert (status, "# password is set, and may be a secret" in lines) == (1, True)


async def test_the_lines_suffice_for_a_coordinator_and_a_job(
    broker: Guarded, unique: str, tmp_path: Path, hasty: None, log: Log
) -> None:
    place = deployment(broker, unique, tmp_path, Client.COORDINATOR)
    await make_topics(broker.open, unique)
    await place.grant(of_client(Client.COORDINATOR))
    for arguments in ((), ("--table", "flights")):
        status, output = await place.said("check", *arguments)
        assert (status, "PROBLEM" in output) == (0, False), output
    driver = replace(place, client=Client.DRIVER)
    await driver.grant(of_client(Client.DRIVER))
    async with running(place.settings()), Job(broker.open, place.topics, "flights", place.table) as job:
        await put_raw(job, b"no event", {})
        await asyncio.to_thread(commit, driver, 7)
        await until(lambda: read_ids(place.table), lambda ids: ids == [7])
        await until(lambda: [each for each in log if each["event"] == "dead letter"])
    assert [each for each in log if "uthoriz" in str(each)] == []


# --- jobs -----------------------------------------------------------------------------------------


def commit(place: Deployment, number: int) -> None:
    """Write a row as a job does, and wait for its commit."""
    with RegionDriver(place.hook_options()) as driver:
        checkpoint = driver.begin()
        result = checkpoint.write("w1", rows(number))
        driver.complete(checkpoint, [result], source_offsets={"rows": number})
        driver.await_commit(checkpoint)


def rows(number: int) -> pa.Table:
    return pa.table({"id": [number], "origin": ["x"], "at": [0]}).cast(SCHEMA)


@pytest.mark.parametrize("line", lines(Client.DRIVER, Client.TASK), ids=named)
async def test_a_job_needs_each_line(broker: Guarded, line: Permission, unique: str, tmp_path: Path) -> None:
    place = deployment(broker, unique, tmp_path, line.client)
    await make_topics(broker.open, unique)
    await place.grant(each for each in of_client(line.client) if each is not line)

    def work() -> None:
        if line.client is Client.DRIVER:
            RegionDriver(place.hook_options()).start()
        else:
            publish(place)

    with pytest.raises(HookError) as caught:
        await asyncio.to_thread(work)
    assert f"Grant it {grant_of(line, unique)}" in str(caught.value)


async def test_the_line_suffices_for_a_task(broker: Guarded, unique: str, tmp_path: Path) -> None:
    place = deployment(broker, unique, tmp_path, Client.TASK)
    topics = await make_topics(broker.open, unique)
    await place.grant(of_client(Client.TASK))
    await asyncio.to_thread(publish, place)
    assert [each.envelope.type for each in await read_events(broker.open, topics.events)] == [FILES]


def publish(place: Deployment) -> None:
    """Publish an event of files as a task does."""
    job = Job(place.broker.open, place.topics, "flights", place.table)
    body = job.write_files([1])
    envelope = Envelope("e1", FILES, "flights", "r1", "q1", 0, "w1", "a1", 1, 1, body.files[0].size)
    publisher = Publisher(HookSettings.from_options(place.hook_options()))
    try:
        publisher.publish(place.topics.events, [Event(envelope, body)], BACKSTOP)
    finally:
        publisher.close()


# --- commands -------------------------------------------------------------------------------------
