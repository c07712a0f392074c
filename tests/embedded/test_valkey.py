"""The embedded Redis-protocol server: what a client sees of it over its life."""

from pathlib import Path

import pytest
import redis

from sluicegate.cli.local.errors import StartError
from sluicegate.cli.local.servers import EmbeddedValkey

pytestmark = pytest.mark.redis


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


def test_a_refused_setting_is_shown(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no-such-setting"):
        EmbeddedValkey(tmp_path, settings={"no-such-setting": "1"}).start()
