"""The embedded Redis-protocol server: what a client sees of it over its life."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from sluicegate.embedded import EmbeddedValkey, StartError
from sluicegate.embedded.ports import LOOPBACK
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.redis


@pytest.mark.seam
def test_the_shared_server_keeps_values(redis_url: str, unique: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set(unique, "one")
        assert client.get(unique) == b"one"


@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_keeps_the_address_and_forgets_the_values(own_valkey: EmbeddedValkey, crash: bool) -> None:
    url, before = own_valkey.url, own_valkey.pid
    with redis.Redis.from_url(url) as client:
        client.set("key", "value")
    if crash:
        own_valkey.kill()
        assert not own_valkey.running
    assert own_valkey.restart().url == url
    assert own_valkey.pid != before
    with redis.Redis.from_url(url) as client:
        assert client.dbsize() == 0


def test_settings_go_over_the_defaults() -> None:
    with EmbeddedValkey(settings={"appendonly": "yes", "appendfsync": "always"}) as valkey:
        with redis.Redis.from_url(valkey.url) as client:
            client.set("key", "value")
        valkey.kill()
        valkey.restart()
        with redis.Redis.from_url(valkey.url) as client:
            assert client.get("key") == b"value"


def test_a_suspended_server_answers_when_it_goes_on(own_valkey: EmbeddedValkey) -> None:
    own_valkey.suspend()
    impatient = {"socket_timeout": 0.3}  # time: the server is frozen
    with (
        redis.Redis.from_url(own_valkey.url, retry=None, **impatient) as client,
        pytest.raises(redis.TimeoutError),
    ):
        client.ping()
    own_valkey.resume()
    with redis.Redis.from_url(own_valkey.url) as client:
        assert client.ping()
    own_valkey.suspend()  # stop() must end a frozen server, too


def test_a_stopped_server_refuses_and_has_no_pid() -> None:
    valkey = EmbeddedValkey().start()
    port = valkey.port
    valkey.stop()
    valkey.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port))
    with pytest.raises(StartError, match="not running"):
        _ = valkey.pid
    with pytest.raises(StartError, match="not running"):
        valkey.suspend()


def test_a_server_that_ended_by_itself_can_be_started_again(own_valkey: EmbeddedValkey) -> None:
    before = own_valkey.pid
    with redis.Redis.from_url(own_valkey.url, retry=None) as client:
        client.shutdown(nosave=True)
    wait_until(lambda: not own_valkey.running)
    assert own_valkey.start().pid != before
    with redis.Redis.from_url(own_valkey.url) as client:
        assert client.ping()


def test_threads_that_start_at_once_start_one_server() -> None:
    valkey = EmbeddedValkey()
    with ThreadPoolExecutor(4) as threads:
        pids = list(threads.map(lambda _: valkey.start().pid, range(4)))
    valkey.stop()
    assert len(set(pids)) == 1


def test_a_refused_setting_is_shown(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no-such-setting"):
        EmbeddedValkey(tmp_path, settings={"no-such-setting": "1"}).start()
