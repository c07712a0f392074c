"""Stops, new owners of a partition, dropped bodies and stuck tables."""

import asyncio
import functools
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest

from sluicegate.coordinator.service import connections
from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream import table as supply
from sluicegate.events.envelope import partition_of
from sluicegate.events.notifications import Committed
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import CommitRequest, Publication
from sluicegate.lakes.threads import CommitThreads
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import coordinator_process, running, settings_for
from tests.integration.job import PARTITIONS, Job, create_table, read_ids
from tests.integration.waiting import BACKSTOP, exit_status, finished, until

pytestmark = [pytest.mark.kafka, pytest.mark.seam]


class Gate:
    """Holds publications of the tables that are named, until it is opened."""

    def __init__(self) -> None:
        self.tables: set[str] = set()
        self.arrived = threading.Event()
        self.opened = threading.Event()
        self.published = 0

    def pass_through(self, root: str) -> None:
        self.published += 1
        if any(root.endswith(name) for name in self.tables):
            self.arrived.set()
            self.opened.wait(BACKSTOP)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate in front of every publication of a Paimon table."""
    gate = Gate()
    publish = PaimonCommitter.publish

    def gated(self: PaimonCommitter, request: CommitRequest) -> Publication:
        gate.pass_through(self._storage.uri)
        return publish(self, request)

    monkeypatch.setattr(PaimonCommitter, "publish", gated)
    yield gate
    gate.opened.set()


STUCK = """
import threading
from sluicegate.coordinator.service import service
from sluicegate.lakes.paimon.committer import PaimonCommitter
service.GRACE = 1.0
def hang(*_):
    print("hangs", flush=True)
    threading.Event().wait()
PaimonCommitter.publish = hang
"""


@contextmanager
def process(place: Place, settings: Settings, before: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """`sluicegate run` in a process of its own; killed at the end if it still runs."""
    streams = "".join(
        f'[streams.{name}]\ntable = "{stream.table}"\n' for name, stream in settings.streams.items()
    )
    config = place.root / "process.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{place.bootstrap}"\ntopic_prefix = "{place.prefix}"\n'
        f'group_id = "{place.prefix}"\nsession_timeout = 6\n[http]\nport = 0\n{streams}'
    )
    with coordinator_process(config, place.root / "process.log", before=before) as running:
        yield running


@pytest.mark.parametrize(
    "at_once", [500, pytest.param(3, marks=pytest.mark.matrix)], ids=["together", "in parts"]
)
async def test_bodies_over_the_budget_are_fetched_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(supply, "MOST", at_once)
    async with running(place.settings(memory={"body_budget": 3_000})) as service, place.job() as job:
        await job.register()
        events = [await job.written(job.write_files([number])) for number in range(20)]
        await job.complete(*events)
        await job.committed(range(20))
        links = service._links
        assert links is not None
        # The table has the commit before the coordinator lets go of its bodies.
        await until(lambda: links.budget.held, lambda held: held == 0)
        refetched = metric(service, "sluicegate_bodies_refetched_total")
        assert 10 < refetched < 60
        await job.commit([20], range(21))


def metric(service: Service, name: str) -> float:
    """The value of a metric without labels."""
    lines = service._metrics.render().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.split()[0] == name)


async def test_a_graceful_stop_ends_the_commit_in_flight_and_the_next_start_reads_little(
    place: Place, gate: Gate
) -> None:
    gate.tables.add("flights")
    async with place.job() as job:
        stop = asyncio.Event()
        service = Service(place.settings())
        task = asyncio.create_task(service.run(stop))
        await until(service.unready, lambda found: not found or task.done())
        await job.register()
        await job.run_batch([1])
        await until(gate.arrived.is_set)
        stop.set()
        await job.run_batch([2])
        assert read_ids(place.table) == []
        gate.opened.set()
        await finished(task)
        assert read_ids(place.table) == [1]
        published = gate.published
        async with running(place.settings()) as successor:
            home = successor.status()["partitions"][str(partition_of("flights", PARTITIONS))]
            # The policy and the registration are before it; the decision has no outcome in the log yet.
            assert home["low_water"] >= 2
            await job.committed([1, 2])
            assert gate.published == published + 1
            found = await until(lambda: commits(job), lambda found: len(found) == 2)
            assert [body.decision for body in found] == [1, 2]


async def commits(job: Job) -> list[Committed]:
    """Return the announced commits, without repetitions. Fails if one id was announced with two contents."""
    found: dict[str, Committed] = {}
    for each in await job.notifications():
        if isinstance(each.body, Committed):
            assert found.setdefault(each.id, each.body) == each.body
    return list(found.values())


@pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=pytest.mark.matrix)])
async def test_another_member_takes_over(place: Place, how: str) -> None:
    names = ("flights", neighbour("flights", same=False), neighbour("flights", same=True))
    tables = {name: place.table if name == "flights" else create_table(place.root, name) for name in names}
    settings = settings_for(place.bootstrap, place.prefix, {name: {"table": tables[name]} for name in names})
    async with AsyncExitStack() as stack:
        first = stack.enter_context(process(place, settings))
        jobs = [
            await stack.enter_async_context(Job(place.bootstrap, place.topics, name, tables[name]))
            for name in names
        ]
        for job in jobs:
            await job.register()
        second = await stack.enter_async_context(running(settings, ready=False))
        await until(lambda: second.status()["partitions"])
        writing = asyncio.gather(*(write(job, 12) for job in jobs))
        await until(lambda: all(len(read_ids(job.location)) > 2 for job in jobs))
        first.send_signal(signal.SIGTERM if how == "stopped" else signal.SIGKILL)
        await writing
        for job in jobs:
            await job.committed(range(12))
            found = await until(functools.partial(commits, job), _up_to_eleven)
            numbers = [body.decision for body in found]
            assert numbers == list(range(1, len(numbers) + 1))
        await until(lambda: len(second.status()["partitions"]) == PARTITIONS)


def _up_to_eleven(found: list[Committed]) -> bool:
    return found[-1].cut["r1"].checkpoint == 11


async def write(job: Job, end: int) -> None:
    """Run batches one after the other, a little apart."""
    for number in range(end):
        await job.run_batch([number])
        await asyncio.sleep(0.1)  # time: the takeover comes between batches; nothing is asserted


@pytest.mark.parametrize("threads", [1, pytest.param(8, marks=pytest.mark.matrix)], ids=["no room", "room"])
async def test_a_stuck_table_holds_no_other_stream_up(
    place: Place, gate: Gate, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    impatient = functools.partial(CommitThreads, patience=0.5)  # time: until a stuck call does not count
    monkeypatch.setattr(connections, "CommitThreads", impatient)
    other = neighbour("flights", same=True)
    table = create_table(place.root, other)
    gate.tables.add("flights")
    streams = {"flights": {"table": place.table}, other: {"table": table}}
    settings = settings_for(place.bootstrap, place.prefix, streams, commit_threads=threads)
    async with (
        running(settings),
        place.job() as stuck,
        Job(place.bootstrap, place.topics, other, table) as job,
    ):
        await stuck.register()
        await job.register()
        await stuck.run_batch([1])
        await until(gate.arrived.is_set)
        for number in range(3):
            await job.run_batch([number])
        await job.committed(range(3))
        assert read_ids(place.table) == []
        gate.opened.set()
        await stuck.committed([1])


async def test_a_table_that_hangs_does_not_keep_the_process_alive(place: Place) -> None:
    settings = place.settings()
    async with place.job() as job:
        with process(place, settings, STUCK) as first:
            await job.register()
            await job.run_batch([1])
            await until(lambda: "hangs" in (place.root / "process.log").read_text(), by=first)
            first.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(exit_status, first, place.root / "process.log") == 0
        async with running(settings):
            await job.committed([1])
