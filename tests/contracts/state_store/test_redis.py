"""Behaviour that needs a real server: its outages, and the fields that people read."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import pytest
from redis.asyncio import Redis

from sluicegate.cli.checks import check_redis
from sluicegate.cli.local.process import LOOPBACK
from sluicegate.cli.local.servers import EmbeddedServer, EmbeddedValkey, valkey_binary
from sluicegate.coordinator.settings.model import RedisSettings
from sluicegate.events.models import Position
from sluicegate.state_store import (
    RegionView,
    StateStoreUnavailable,
    StreamView,
    UnreadableView,
)
from sluicegate.state_store.redis_store import RedisStateStore
from tests.integration.waiting import until

pytestmark = pytest.mark.redis


def view(revision: int, stream: str = "flights") -> StreamView:
    return StreamView(
        stream=stream,
        revision=revision,
        updated_at=1_700_000_000_000,
        commit_user="sluicegate-flights",
        decided=7,
        committed=7,
        cut={"EWR": Position(incarnation="i1", checkpoint=12, digest="d")},
        regions={"EWR": RegionView()},
    )


async def until_written(store: RedisStateStore, wanted: StreamView) -> None:
    async def written() -> bool:
        try:
            assert await store.write(wanted)
        except StateStoreUnavailable:
            return False
        return True

    await until(written, what="Redis is back, and the store has to notice")


async def test_people_can_read_it(redis_url: str, unique: str) -> None:
    store = RedisStateStore(redis_url, prefix=unique)
    await store.write(view(41))
    async with Redis.from_url(redis_url, decode_responses=True) as redis:
        fields = await redis.hgetall(f"{unique}:stream:flights")
        assert await redis.smembers(f"{unique}:streams") == {"flights"}
        assert await redis.ttl(f"{unique}:stream:flights") == -1
    await store.close()
    assert json.loads(fields.pop("regions"))["EWR"]["phase"] == "waiting"
    assert fields == {
        "stream": "flights",
        "revision": "41",
        "updated_at": "1700000000000",
        "low_water": "0",
        "commit_user": "sluicegate-flights",
        "decided": "7",
        "committed": "7",
        "cut": '{"EWR":{"incarnation":"i1","checkpoint":12,"digest":"d"}}',
        "decided_cut": "{}",
        "forced_by": "[]",
        "absent": "[]",
        "waiting": "{}",
        "savepoints": "[]",
        "silent": "[]",
        "strangers": "{}",
        "listeners": "{}",
        "conditions": "[]",
        "paused": "false",
        "tables": "{}",
    }


@pytest.mark.parametrize(
    ("field", "value"), [("cut", "{"), ("decided", "many"), ("revision", ""), ("cut", '{"EWR": 1}')]
)
async def test_a_malformed_view_is_reported_and_replaced(
    redis_url: str, unique: str, field: str, value: str
) -> None:
    store = RedisStateStore(redis_url, prefix=unique)
    await store.write(view(41))
    async with Redis.from_url(redis_url) as redis:
        await redis.hset(f"{unique}:stream:flights", field, value)
    with pytest.raises(UnreadableView, match=f"{unique}:stream:flights cannot be read"):
        await store.read("flights")
    await store.write(view(1, "other"))
    both = await store.read_all()
    assert "stream:flights cannot be read" in str(both["flights"])
    assert both["other"] == view(1, "other")
    assert await store.write(view(41))
    assert await store.read("flights") == view(41)
    await store.close()


async def test_a_key_of_another_type_is_one_unreadable_view_and_is_replaced(
    redis_url: str, unique: str
) -> None:
    store, key = RedisStateStore(redis_url, prefix=unique), f"{unique}:stream:flights"
    for stream in ("flights", "other"):
        await store.write(view(41, stream))
    async with Redis.from_url(redis_url) as redis:
        await redis.delete(key)
        await redis.lpush(key, "no view")
    with pytest.raises(UnreadableView, match=f"{key} cannot be read .+ holds another kind of value"):
        await store.read("flights")
    both = await store.read_all()
    assert f"{key} cannot be read" in str(both["flights"])
    assert both["other"] == view(41, "other")
    assert await store.write(view(42))
    assert await store.read_all() == {"flights": view(42), "other": view(41, "other")}
    await store.close()


async def test_the_key_of_the_streams_is_named_if_it_has_another_type(redis_url: str, unique: str) -> None:
    store, key = RedisStateStore(redis_url, prefix=unique), f"{unique}:streams"
    async with Redis.from_url(redis_url) as redis:
        await redis.set(key, "no set")
        for call in (store.streams, store.read_all):
            with pytest.raises(StateStoreUnavailable, match=f"the key {key} holds no set .+ Delete it"):
                await call()
        await redis.delete(key)
    assert await store.write(view(41))
    assert await store.streams() == ["flights"]
    await store.close()


async def test_other_fields_are_ignored(redis_url: str, unique: str) -> None:
    store = RedisStateStore(redis_url, prefix=unique)
    await store.write(view(41))
    async with Redis.from_url(redis_url) as redis:
        await redis.hset(f"{unique}:stream:flights", "mood", "good")
    assert await store.read("flights") == view(41)
    await store.close()


async def test_a_kill_and_an_empty_restart(own_valkey: EmbeddedValkey) -> None:
    store = RedisStateStore(own_valkey.url)
    await store.write(view(41))
    own_valkey.kill()
    for _ in range(2):
        with pytest.raises(StateStoreUnavailable):
            await store.write(view(42))
        with pytest.raises(StateStoreUnavailable):
            await store.ping()
    own_valkey.start()
    await until_written(store, view(3, "other"))
    assert await store.read("flights") is None
    assert await store.streams() == ["other"]
    assert await store.write(view(42))
    assert await store.read("flights") == view(42)
    await store.close()


async def test_a_frozen_server_holds_nobody_up_and_answers_are_not_mixed_up(
    own_valkey: EmbeddedValkey,
) -> None:
    store = RedisStateStore(own_valkey.url, timeout=0.3)  # time: the limit that is tested, of a frozen server
    await store.write(view(41))
    await store.write(view(1, "other"))
    own_valkey.suspend()
    try:
        # The server is frozen until all have given up.
        outcomes = await asyncio.gather(
            store.write(view(42)),
            store.read("flights"),
            store.read("other"),
            store.streams(),
            store.remove("nothing"),
            store.ping(),
            return_exceptions=True,
        )
    finally:
        own_valkey.resume()
    assert [type(outcome) for outcome in outcomes] == [StateStoreUnavailable] * 6
    await until_written(store, view(43))
    for _ in range(5):
        assert await store.read("other") == view(1, "other")
        assert await store.read("flights") == view(43)
        assert await store.streams() == ["flights", "other"]
    await store.close()


async def test_errors_of_the_server_are_retriable_ones_without_secrets(own_valkey: EmbeddedValkey) -> None:
    address = own_valkey.url.replace("redis://", "redis://user:secret@")
    store = RedisStateStore(address)
    with pytest.raises(StateStoreUnavailable) as caught:
        await store.ping()
    assert "secret" not in str(caught.value)
    await store.close()


async def test_a_full_server_refuses_as_unavailable(own_valkey: EmbeddedValkey) -> None:
    store = RedisStateStore(own_valkey.url)
    await store.write(view(41))
    async with Redis.from_url(own_valkey.url) as redis:
        await redis.config_set("maxmemory", "1")
        with pytest.raises(StateStoreUnavailable):
            await store.write(view(42))
        await redis.config_set("maxmemory", "0")
    assert await store.read("flights") == view(41)
    await store.close()


class Address:
    """An address that leads each new connection to the server that is the primary now."""

    def __init__(self, port: int) -> None:
        self.target = port
        self._open: list[asyncio.StreamWriter] = []
        self.connections = 0

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._open:
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        back, forth = await asyncio.open_connection("127.0.0.1", self.target)
        self._open += [writer, forth]
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await asyncio.gather(_pipe(reader, forth), _pipe(back, writer))


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(1 << 16):
        target.write(piece)
    target.close()


@pytest.mark.seam
async def test_after_a_failover_the_store_connects_to_the_new_primary(unique: str) -> None:
    """The former primary is a replica now, and keeps its connections: only a new one leads to the primary."""
    with EmbeddedValkey() as former, EmbeddedValkey() as primary:
        address = Address(former.port)
        async with address as url:
            store = RedisStateStore(
                url, prefix=unique, timeout=60.0
            )  # time: a backstop of each call; the answers are awaited
            assert await store.write(view(41))
            async with Redis.from_url(former.url) as demoted:
                await demoted.replicaof("127.0.0.1", primary.port)
            address.target = primary.port
            with pytest.raises(StateStoreUnavailable, match="read only replica"):
                await store.write(view(42))
            assert await store.write(view(42))
            assert address.connections == 2
            await store.close()
        # Its orderly end would wait for the replica.
        primary.kill()


class Sentinel(EmbeddedServer):
    """A Sentinel that watches one primary, whose name is `Views`."""

    name: ClassVar[str] = "Sentinel"
    ready_text: ClassVar[str] = "+monitor"
    start_seconds: ClassVar[float] = 300.0
    stop_seconds: ClassVar[float] = 10.0
    poll_seconds: ClassVar[float] = 0.01

    def __init__(self, primary: EmbeddedValkey) -> None:
        super().__init__()
        self._primary = primary

    def _prepare(self) -> Sequence[str]:
        file = self.data_dir / "sentinel.conf"
        file.write_text(
            f"bind {LOOPBACK}\nport {self.port}\ndir {self.data_dir}\n"
            f"sentinel monitor Views {LOOPBACK} {self._primary.port} 1\n"
            "sentinel down-after-milliseconds Views 500\nsentinel failover-timeout Views 3000\n"
        )
        return [str(valkey_binary()), str(file), "--sentinel"]


async def test_the_store_follows_the_primary_that_sentinels_name(unique: str) -> None:
    with EmbeddedValkey() as first, EmbeddedValkey() as second:
        async with Redis.from_url(second.url, decode_responses=True) as redis:
            await redis.execute_command("REPLICAOF", LOOPBACK, first.port)  # type: ignore[no-untyped-call]
            await until(lambda: redis.info("replication"), lambda told: told["master_link_status"] == "up")
            with Sentinel(first) as sentinel:
                address = f"redis://{LOOPBACK}:{sentinel.port}"
                async with Redis.from_url(address, decode_responses=True) as asked:
                    ask = partial(asked.execute_command, "SENTINEL", "REPLICAS", "Views")
                    await until(ask)
                settings = RedisSettings(url="redis://Views/0", sentinels=[f"{LOOPBACK}:{sentinel.port}"])
                store = RedisStateStore(
                    settings.url.get_secret_value(), prefix=unique, options=settings.client_options()
                )
                await store.write(view(1))
                assert (await check_redis(settings)).detail.startswith("the primary Views of the Sentinels")
                first.kill()
                await until_written(store, view(2))
                await store.close()
        # The failover has ended the connections of its clients.
        async with Redis.from_url(second.url, decode_responses=True) as redis:
            assert await redis.hget(f"{unique}:stream:flights", "revision") == "2"


async def test_a_sentinel_that_hangs_leaves_time_for_the_next_one(unique: str) -> None:
    """Its host may be that of the primary that is gone."""
    with EmbeddedValkey() as primary, Sentinel(primary) as hung, Sentinel(primary) as other:
        hung.suspend()
        asked = [(LOOPBACK, hung.port), (LOOPBACK, other.port)]
        store = RedisStateStore(
            "redis://Views/0", prefix=unique, timeout=3.0, options={"sentinels": asked}
        )  # time: of a whole call, which a Sentinel that hangs must not use up
        assert await store.write(view(1))
        assert await store.read("flights") == view(1)
        await store.close()
        hung.resume()


@pytest.mark.parametrize("slots", [(), ("0", "16383")], ids=["a new cluster", "a whole cluster"])
async def test_a_server_in_cluster_mode_is_refused_by_name(unique: str, slots: tuple[str, ...]) -> None:
    with EmbeddedValkey(settings={"cluster-enabled": "yes"}) as valkey:
        if slots:
            async with Redis.from_url(valkey.url, decode_responses=True) as redis:
                await redis.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)  # type: ignore[no-untyped-call]
                ask = partial(redis.execute_command, "CLUSTER", "INFO")
                await until(ask, lambda told: "cluster_state:ok" in str(told))
        store = RedisStateStore(valkey.url, prefix=unique)
        with pytest.raises(StateStoreUnavailable, match="it runs in cluster mode, which is not supported"):
            await store.write(view(1))
        await store.close()
        found = await check_redis(RedisSettings(url=valkey.url, key_prefix=unique))
    assert not found.ok
    assert "it runs in cluster mode" in found.detail
