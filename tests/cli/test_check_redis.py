"""`sluicegate check` of a Redis server that answers, and takes no writes: the reason, and the way out."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from sluicegate.cli.checks_rest import check_redis
from sluicegate.coordinator.settings.model import RedisSettings
from sluicegate.embedded.ports import free_port
from sluicegate.embedded.valkey import EmbeddedValkey
from tests.integration.waiting import until

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
    "replica": (_replicate, "is a replica, which takes no writes", "Set redis.url to its primary"),
    "full": (_fill, "is full", "Raise its maxmemory, or delete keys of others from it"),
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


async def test_a_server_that_cannot_save_is_told_apart(valkey: EmbeddedValkey, admin: redis.Redis) -> None:
    where = Path(str(admin.config_get("dir")["dir"]), str(admin.config_get("dbfilename")["dbfilename"]))
    kept = str(admin.config_get("save")["save"])
    admin.config_set("save", "3600 1")
    where.mkdir()  # noqa: ASYNC240
    admin.bgsave()
    await until(lambda: admin.info("persistence")["rdb_last_bgsave_status"], "err".__eq__)
    found = await told(valkey)
    assert "takes no writes, as it cannot save to its disk" in found
    assert "Correct what its log names, such as a full disk" in found
    where.rmdir()  # noqa: ASYNC240
    admin.bgsave()
    await until(lambda: admin.info("persistence")["rdb_last_bgsave_status"], "ok".__eq__)
    assert await told(valkey) == ""
    admin.config_set("save", kept)


async def test_another_value_in_place_of_the_names_is_a_problem(
    valkey: EmbeddedValkey, admin: redis.Redis, unique: str
) -> None:
    admin.set(f"{unique}:streams", "something")
    found = await told(valkey, unique)
    assert f"has a value of another type at the key {unique}:streams" in found
    (_, _, advice) = found.partition("Delete it: redis-cli ")
    assert advice.startswith(f"DEL {unique}:streams. ")
    admin.delete(f"{unique}:streams")
    assert await told(valkey, unique) == ""


async def test_another_error_is_no_silence(valkey: EmbeddedValkey) -> None:
    settings = RedisSettings.model_validate({"url": f"{valkey.url.rpartition('/')[0]}/4096"})
    found = await check_redis(settings)
    assert not found.ok
    assert "answers with an error (" in found.detail
    assert "Check redis.url and the settings of the server" in found.detail
    assert await told(valkey) == ""
