"""A Redis server with TLS of its own: private authorities, client certificates, users, renewals."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest

from sluicegate.cli.checks import check_redis
from sluicegate.coordinator.service.startup import make_store
from sluicegate.coordinator.settings.model import RedisSettings, Settings
from sluicegate.state_store import StateStoreUnavailable, StreamView
from sluicegate.state_store.redis_store import RedisStateStore
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.waiting import until
from tests.redis_tls import SECRET, TlsRedis
from tests.tls import KEY_WORD, Certificates, make_certificates

pytestmark = pytest.mark.redis


@pytest.fixture
def files(tmp_path: Path) -> Certificates:
    """An authority, and certificates of a server and a client, which the test may change."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    return make_certificates(folder)


@pytest.fixture
def others(tmp_path: Path) -> Certificates:
    """Certificates of another authority."""
    folder = tmp_path / "others"
    folder.mkdir()
    return make_certificates(folder)


@pytest.fixture
def server(files: Certificates, unique: str) -> Iterator[TlsRedis]:
    """A server that demands certificates of its clients."""
    with TlsRedis(files, unique) as redis:
        yield redis


def values(server: TlsRedis, files: Certificates, prefix: str) -> dict[str, Any]:
    """Settings that fit."""
    return {
        "url": server.url,
        "username": "keeper",
        "password": SECRET,
        "ca_file": files.ca,
        "certificate_file": files.client,
        "key_file": files.client_key,
        "key_password": KEY_WORD,
        "key_prefix": prefix,
    }


async def told(values: dict[str, Any]) -> str:
    """Return the problem that `check` finds, an empty text if there is none."""
    found = await check_redis(RedisSettings.model_validate(values))
    assert SECRET not in found.detail
    assert KEY_WORD not in found.detail
    return "" if found.ok else found.detail


WAYS_OUT: dict[str, tuple[Callable[[dict[str, Any], Certificates], dict[str, Any]], str]] = {
    "no authority": (
        lambda given, _: given | {"ca_file": None},
        "rediss:// if it has TLS at this port",
    ),
    "another authority": (
        lambda given, others: given | {"ca_file": others.ca},
        "rediss:// if it has TLS at this port",
    ),
    "another host": (
        lambda given, _: given | {"url": given["url"].replace("127.0.0.1", "localhost")},
        "a host of its certificate",
    ),
    "no certificate": (
        lambda given, _: given | {"certificate_file": None, "key_file": None, "key_password": None},
        "rediss:// if it has TLS at this port",
    ),
    "a certificate of another authority": (
        lambda given, others: given | {"certificate_file": others.client, "key_file": others.client_key},
        "rediss:// if it has TLS at this port",
    ),
    "no TLS": (
        lambda given, _: {
            **{name: given[name] for name in ("username", "password", "key_prefix")},
            "url": given["url"].replace("rediss:", "redis:"),
        },
        "rediss:// if it has TLS at this port",
    ),
    "another password of the key": (
        lambda given, _: given | {"key_password": "another"},
        "rediss:// if it has TLS at this port",
    ),
    "another key": (
        lambda given, others: given | {"key_file": others.client_key},
        "rediss:// if it has TLS at this port",
    ),
    "another password": (
        lambda given, _: given | {"password": "another"},
        "refuses user or password; check redis.username, redis.password and redis.url",
    ),
    "another user": (lambda given, _: given | {"username": "default"}, "refuses user or password"),
    "other keys": (lambda given, _: given | {"key_prefix": "foreign"}, "allow the user the keys foreign:*"),
}
"""Settings that do not fit, made of those that do, and the problem that `check` names."""


@pytest.mark.parametrize("mistake", WAYS_OUT)
async def test_settings_that_do_not_fit_are_refused_with_the_way_out(
    mistake: str, server: TlsRedis, files: Certificates, others: Certificates, unique: str
) -> None:
    change, text = WAYS_OUT[mistake]
    given = values(server, files, unique)
    assert text in await told(change(given, others))
    # The way out: the settings that fit.
    assert await told(given) == ""


async def test_a_private_authority_alone_is_enough_without_client_certificates(
    files: Certificates, unique: str
) -> None:
    with TlsRedis(files, unique, clients=False) as server:
        given = values(server, files, unique) | {
            "certificate_file": None,
            "key_file": None,
            "key_password": None,
        }
        assert await told(given) == ""


def view(revision: int) -> StreamView:
    return StreamView(stream="flights", revision=revision, updated_at=0, commit_user="u")


def store_of(given: dict[str, Any]) -> RedisStateStore:
    settings = {
        "kafka": {"bootstrap_servers": "b:9092"},
        "redis": given,
        "streams": {"flights": {"table": "/t"}},
    }
    store = make_store(Settings.model_validate(settings))
    assert isinstance(store, RedisStateStore)
    return store


async def test_a_renewed_client_certificate_counts_for_the_next_connection(
    server: TlsRedis, files: Certificates, others: Certificates, unique: str
) -> None:
    """The server stops trusting the old certificate. The new one is put into the files of the settings."""
    store = store_of(values(server, files, unique))
    try:
        assert await store.write(view(1))
        server.trust(others.ca)
        with pytest.raises(StateStoreUnavailable):
            await store.write(view(2))
        shutil.copy(others.client, files.client)
        shutil.copy(others.client_key, files.client_key)

        async def written() -> bool:
            try:
                return await store.write(view(3))
            except StateStoreUnavailable:
                return False

        await until(written)
        assert await store.read("flights") == view(3)
    finally:
        await store.close()


@pytest.mark.seam
@pytest.mark.kafka
async def test_views_of_commits_are_written_over_tls(
    server: TlsRedis, files: Certificates, unique: str, place: Place
) -> None:
    """A coordinator writes views, loses its connections, and writes views again."""
    redis = RedisSettings.model_validate(values(server, files, unique))
    settings = place.settings().model_copy(update={"redis": redis})
    store = make_store(settings)
    assert store is not None

    async def committed() -> int:
        # The server has also dropped the connection of this reader.
        with suppress(StateStoreUnavailable):
            found = await store.read("flights")
            return 0 if found is None else found.committed
        return 0

    try:
        async with running(settings), place.job() as job:
            await job.register()
            for number in (1, 2):
                await job.commit([number], [*range(1, number + 1)])
                await until(committed, partial(eq, number))
                server.drop_clients()
    finally:
        await store.close()
