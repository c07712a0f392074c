"""`sluicegate check` of a Redis server that answers, and takes no writes: the reason, and the way out."""

from collections.abc import Callable, Iterator

import pytest
import redis

from sluicegate.cli.checks import check_redis
from sluicegate.cli.local.process import free_port
from sluicegate.cli.local.servers import EmbeddedValkey
from sluicegate.coordinator.settings.model import RedisSettings

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def valkey() -> Iterator[EmbeddedValkey]:
    """Give a server of these tests alone, as they change its settings."""
    with EmbeddedValkey() as server:
        yield server


@pytest.fixture
def admin(valkey: EmbeddedValkey) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey.url) as client:
        yield client


async def told(valkey: EmbeddedValkey, prefix: str = "sluicegate") -> str:
    """Return the problem that `check` finds, an empty text if there is none."""
    found = await check_redis(RedisSettings.model_validate({"url": valkey.url, "key_prefix": prefix}))
    assert "does not answer" not in found.detail
    return "" if found.ok else found.detail


def _replicate(admin: redis.Redis) -> Callable[[], object]:
    admin.replicaof("127.0.0.1", free_port())
    return lambda: admin.replicaof("NO", "ONE")


def _fill(admin: redis.Redis) -> Callable[[], object]:
    admin.config_set("maxmemory", 1)
    return lambda: admin.config_set("maxmemory", 0)


WAYS_OUT = {
    "replica": (_replicate, "read only replica", "is no replica"),
    "full": (_fill, "maxmemory", "has room"),
}


@pytest.mark.parametrize("state", WAYS_OUT)
async def test_a_server_that_takes_no_writes_is_told_apart(
    state: str, valkey: EmbeddedValkey, admin: redis.Redis
) -> None:
    assert await told(valkey) == ""
    make, reason, advice = WAYS_OUT[state]
    repair = make(admin)
    found = await told(valkey)
    assert reason in found
    assert advice in found
    repair()
    assert await told(valkey) == ""
