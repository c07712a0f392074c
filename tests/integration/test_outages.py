"""Redis and Kafka away: commits go on or wait, and nothing is lost or doubled."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey
from sluicegate.coordinator.service import service as shell_service
from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.problems import Code
from sluicegate.state_store import StateStoreError, StreamView
from sluicegate.state_store.redis_store import RedisStateStore
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import create_table, make_topics, read_ids
from tests.integration.letters import conditions
from tests.integration.waiting import finished, until

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.usefixtures("collected")]


@pytest.fixture
async def own_place(own_kafka: EmbeddedKafka, unique: str, tmp_path: Path) -> Place:
    """Topics on a broker of the test's own."""
    topics = await make_topics(own_kafka.bootstrap, unique)
    return Place(own_kafka.bootstrap, unique, topics, tmp_path, create_table(tmp_path))


async def view(settings: Settings) -> StreamView | None:
    """What the state store shows of the stream."""
    assert settings.redis is not None
    store = RedisStateStore(settings.redis.url.get_secret_value(), prefix=settings.redis.key_prefix)
    try:
        return await store.read("flights")
    except StateStoreError:
        return None
    finally:
        await store.close()


async def shows(settings: Settings, decision: int) -> None:
    """Wait until the view shows the decision."""
    await until(lambda: view(settings), lambda seen: seen is not None and seen.committed == decision)


async def get(service: Service, path: str) -> tuple[int, str]:
    """Ask an endpoint."""
    url = f"http://127.0.0.1:{service.http_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


@pytest.mark.seam
async def test_commits_go_on_without_redis_and_the_view_comes_back(
    place: Place, own_valkey: EmbeddedValkey, impatient: None
) -> None:
    """Away before the start, killed, frozen and wiped."""
    url = own_valkey.url
    own_valkey.kill()
    settings = place.settings(redis={"url": url, "key_prefix": place.prefix, "timeout": 0.5})
    with capture_logs() as told:
        await _goes_on(place, own_valkey, settings)
    assert [line["event"] for line in told if line.get("effect") == "view" and "code" in line][:2] == [
        "effect failed, will be tried again",
        "effect succeeded again",
    ]


async def _goes_on(place: Place, own_valkey: EmbeddedValkey, settings: Settings) -> None:
    async with running(settings) as service, place.job() as job:
        await job.begin_with_a_commit()
        _, metrics = await get(service, "/metrics")
        assert 'effect_failures_total{effect="view",stream="flights"}' in metrics
        assert (await get(service, "/readyz"))[0] == 200
        assert _view_fails(service)
        own_valkey.start()
        await shows(settings, 1)
        # Another loop may have written it, before the stream itself tried again.
        await until(lambda: not _view_fails(service))

        own_valkey.suspend()
        await job.commit([2], [1, 2])
        # Redis is frozen until here: no commit waits for it.
        own_valkey.resume()
        await shows(settings, 2)

        own_valkey.restart()
        assert await view(settings) is None
        await shows(settings, 2)
        own_valkey.kill()
        await job.commit([3], [1, 2, 3])
    assert read_ids(place.table) == [1, 2, 3]


def _view_fails(service: Service) -> bool:
    return any(
        each["code"] == Code.RETRYING and each["arguments"]["names"] == ["view"]
        for each in conditions(service)
    )


@pytest.mark.seam
async def test_a_broker_that_is_killed_and_comes_back_loses_and_doubles_nothing(
    own_place: Place, own_kafka: EmbeddedKafka
) -> None:
    async with running(own_place.settings()) as service, own_place.job() as job:
        await job.register()
        for number in range(5):
            await job.run_batch([number])
        await asyncio.to_thread(own_kafka.kill)
        await until(service.unready, lambda found: any("Kafka" in each for each in found))
        assert (await get(service, "/livez"))[0] == 200
        writing = asyncio.create_task(job.run_batch([5]))
        await asyncio.to_thread(own_kafka.start)
        await writing
        await job.commit([6], range(7))
        await until(service.unready, lambda found: not found)


async def test_the_end_is_bounded_while_kafka_is_away(
    own_place: Place, own_kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen, with work under way."""
    monkeypatch.setattr(shell_service, "GRACE", 2.0)
    stop = asyncio.Event()
    service = Service(own_place.settings())
    task = asyncio.create_task(service.run(stop))
    async with own_place.job() as job:
        await until(service.unready, lambda found: not found or task.done())
        await job.register()
        await job.run_batch([1])
        own_kafka.suspend()
        stop.set()
        await finished(task)
        # The broker is frozen until here: the end does not wait for it.
        own_kafka.resume()
        async with running(own_place.settings()):
            await job.commit([2], [1, 2])


@pytest.mark.parametrize("which", ["producer", "consumer"])
async def test_a_client_that_fails_for_good_is_made_anew(place: Place, which: str) -> None:
    async with running(place.settings()) as service, place.job() as job:
        await job.begin_with_a_commit()
        assert service._links is not None
        assert service._consumer is not None
        if which == "producer":
            service._links.producer._sender._maybe_wait_for_pid = _fails
        else:
            service._consumer._client.get_random_node = lambda: None
            service._consumer._coordinator.coordinator_dead()
        old = service._links
        await job.run_batch([2])
        await until(lambda: service._links not in (None, old))
        await job.committed([1, 2])
        await job.commit([3], [1, 2, 3])
        await until(service.unready, lambda found: not found)


async def _fails() -> None:
    raise OSError("made to fail")
