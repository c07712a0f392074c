"""Listeners: each outcome under one key, after it is visible, whatever becomes of coordinators."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from sluicegate.coordinator.core.state_record import listener_key
from sluicegate.coordinator.listeners import host, worker
from sluicegate.coordinator.listeners.records import ListenerRecord, encode
from sluicegate.coordinator.listeners.worker import ListenerCode
from sluicegate.events.envelope import partition_of
from sluicegate.events.notifications import NotificationType
from sluicegate.kafka.clients import started
from sluicegate.state_store.redis_store import RedisStateStore
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, Job, delete_records, make_topics, read_ids
from tests.integration.waiting import until
from tests.integration.webhooks import code, config_with, hook, receiving, shown, with_hook

pytestmark = pytest.mark.kafka

_RUN = (sys.executable, "-c", "from sluicegate.cli.main import main; main()", "run")


async def announced(job: Job) -> dict[str, int]:
    """Ids of the outcomes on the commits topic, with their decisions."""
    kinds = {NotificationType.COMMITTED, NotificationType.PARTIALLY_COMMITTED, NotificationType.REVERTED}
    return {each.id: each.body.decision for each in await job.notifications() if each.type in kinds}  # type: ignore[attr-defined]


@pytest.mark.seam
async def test_each_commit_is_sent_after_it_is_visible_with_its_partitions(place: Place) -> None:
    async with (
        receiving(place.table) as receiver,
        place.job() as job,
        running(with_hook(place, receiver)) as service,
    ):
        await job.register()
        for number in (1, 2, 3):
            await job.run_batch([number])
            await job.committed(range(1, number + 1))
        await until(receiver.decisions, lambda found: len(found) >= 3)
        await until(lambda: shown(service)["backlog"], lambda backlog: backlog == 0)
        assert shown(service)["problem"] is None
        assert {each["id"] for each in receiver.got} == set(await announced(job))
    assert receiver.decisions() == [1, 2, 3]
    assert receiver.hidden == []
    event = receiver.got[0]
    assert (event["type"], event["stream"]) == ("sluicegate.commit.visible.v2", "flights")
    assert event["data"]["summary"]["touched"] == [{}]


@pytest.mark.seam
async def test_a_commits_topic_that_is_made_again_under_a_coordinator_loses_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets begin at 0 again. The listener stands at a higher one, and looks for losses at once."""
    monkeypatch.setattr(worker, "IDLE", 0.1)
    monkeypatch.setattr(host, "COMPARE", 0.2)
    async with (
        receiving(place.table) as receiver,
        place.job() as job,
        running(with_hook(place, receiver)) as service,
    ):
        await job.register()
        for number in (1, 2, 3):
            await job.run_batch([number])
            await job.committed(range(1, number + 1))
        await until(receiver.decisions, lambda found: found == [1, 2, 3])
        await made_again(place)
        await job.run_batch([4])
        await job.committed(range(1, 5))
        await until(receiver.decisions, lambda found: found == [1, 2, 3, 4])
        assert shown(service)["problem"] is None


async def made_again(place: Place) -> None:
    """Delete the commits topic, and make it again."""
    admin = AIOKafkaAdminClient(**place.settings().kafka.client_options())
    await admin.start()
    try:
        await admin.delete_topics([place.topics.commits])
        await until(admin.list_topics, lambda found: place.topics.commits not in found)
    finally:
        await admin.close()
    await make_topics(place.bootstrap, place.prefix)


@pytest.mark.seam
async def test_lost_outcomes_stop_the_listener_until_they_are_skipped(place: Place) -> None:
    async with receiving(place.table) as receiver, place.job() as job:
        async with running(with_hook(place, receiver)):
            await job.register()
            await job.run_batch([1])
            await until(receiver.decisions, lambda found: found == [1])
        async with running(place.settings()):
            for number in (2, 3):
                await job.run_batch([number])
                await job.committed(range(1, number + 1))
            await until(lambda: announced(job), lambda found: 3 in found.values())
        await delete_records(place.bootstrap, place.topics.commits, "flights")
        async with running(with_hook(place, receiver)) as service:
            await until(lambda: code(service), lambda found: found == ListenerCode.OUTCOMES_LOST)
            message = shown(service)["problem"]["message"]
            assert "decisions 2 to 3" in message
            assert "skip_through = 3" in message
        async with running(with_hook(place, receiver, skip_through=3)):
            await job.run_batch([4])
            await until(receiver.decisions, lambda found: found == [1, 4])


async def test_a_former_owner_cannot_move_a_listener_back(place: Place) -> None:
    async with receiving(place.table) as receiver, place.job() as job:
        async with running(with_hook(place, receiver)) as service:
            await until(lambda: shown(service))
            await job.register()
            await job.run_batch([1])
            await until(receiver.decisions, lambda found: found == [1])
            await job.run_batch([2])
            await until(lambda: shown(service)["decision"], lambda found: found == 2)
        home = partition_of("flights", PARTITIONS)
        late = ListenerRecord(
            stream="flights",
            listener="hook",
            type="webhook",
            owner="zombie",
            partition=home,
            offset=0,
            decision=0,
        )
        async with started(AIOKafkaProducer(bootstrap_servers=place.bootstrap)) as producer:
            key = listener_key("flights", "hook", "zombie").encode()
            await producer.send_and_wait(place.topics.state, encode(late), key=key, partition=home)
        async with running(with_hook(place, receiver)):
            await job.run_batch([3])
            await until(receiver.decisions, lambda found: found[-1:] == [3])
    assert receiver.decisions() == [1, 2, 3]


@pytest.mark.redis
async def test_a_wiped_redis_changes_nothing_and_gets_the_state_again(
    place: Place, redis_url: str, impatient: None
) -> None:
    store = RedisStateStore(redis_url, prefix=place.prefix)

    async def recorded() -> int | None:
        view = await store.read("flights")
        found = view.listeners.get("hook") if view is not None else None
        return found.decision if found is not None else None

    async with (
        receiving(place.table) as receiver,
        place.job() as job,
        running(with_hook(place, receiver, redis_url)),
    ):
        await job.register()
        await job.run_batch([1])
        await until(recorded, lambda found: found == 1)
        await store.remove("flights")
        await until(recorded, lambda found: found == 1)
        await job.run_batch([2])
        await until(recorded, lambda found: found == 2)
    await store.close()
    assert receiver.decisions() == [1, 2]


@contextmanager
def coordinator(place: Place, config: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A coordinator in a process of its own, killed at the end."""
    with log.open("ab") as stderr:
        env = {**os.environ, "SLUICEGATE_CONFIG": str(config), "SLUICEGATE_HTTP__PORT": "0"}
        process = subprocess.Popen(_RUN, stderr=stderr, env=env)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


async def reached(place: Place, rows: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the table has so many rows."""

    def enough(found: list[int]) -> bool:
        return len(found) >= rows

    await until(lambda: read_ids(place.table), enough, by=process, log=log)


@pytest.mark.seam
async def test_every_outcome_is_covered_through_kills(place: Place) -> None:
    async with receiving(place.table) as receiver, place.job() as job:
        config, log = config_with(place, hook(place, receiver, start="earliest")), place.root / "log"
        for life in range(4):
            with coordinator(place, config, log) as process:
                if life == 0:
                    await job.register()
                for number in range(3):
                    await job.run_batch([3 * life + number + 1])
                # The kill comes between the table, the feed and the listener, at another place in each life.
                await reached(place, 3 * life + 1, process, log)
        with coordinator(place, config, log) as process:
            await reached(place, 12, process, log)

            async def covered() -> bool:
                ids = await announced(job)
                return bool(ids) and set(ids) == {each["id"] for each in receiver.got}

            await until(covered, by=process, log=log)
    keys = {each["id"]: each["data"]["decision"] for each in receiver.got}
    assert sorted(keys.values()) == list(range(1, max(keys.values()) + 1)), "each decision has one key"
    assert receiver.hidden == []
