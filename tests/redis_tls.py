"""A Redis-protocol server that speaks TLS itself; the build in the wheel of the embedded server has none."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sluicegate.cli.local.process import LOOPBACK
from sluicegate.cli.local.servers import EmbeddedServer
from tests.tls import Certificates

VARIABLE: Final = "SLUICEGATE_TEST_TLS_REDIS"
"""Program to use. With it, a program without TLS fails the tests, which are skipped otherwise."""
PROGRAMS: Final = ("valkey-server", "redis-server")
SECRET: Final = "known-secret-of-redis"  # noqa: S105
_DROP: Final = ("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")
_ADMIN: Final = "known-secret-of-admin"
_COMMANDS: Final = "+ping +hget +hgetall +hset +sadd +srem +smembers +del +eval +evalsha +script +multi +exec"


def program() -> str:
    """Return the server program. Skips the test if this machine has none."""
    found = os.environ.get(VARIABLE) or next((at for name in PROGRAMS if (at := shutil.which(name))), None)
    if found is None:
        pytest.skip(
            f"no Redis server with TLS: apt-get install redis-server, or set {VARIABLE} to its program"
        )
    return found


class TlsRedis(EmbeddedServer):
    """A server on a port with TLS alone, with one user who may use the keys of one prefix."""

    name: ClassVar[str] = "Redis"
    start_seconds: ClassVar[float] = 300.0
    stop_seconds: ClassVar[float] = 10.0
    poll_seconds: ClassVar[float] = 0.01

    def __init__(self, certificates: Certificates, prefix: str, *, clients: bool = True) -> None:
        """`clients`: the server demands certificates of clients."""
        super().__init__()
        self._files, self._prefix, self._clients = certificates, prefix, clients

    @property
    def url(self) -> str:
        """Address for clients."""
        return f"rediss://{LOOPBACK}:{self.port}/0"

    def admin(self) -> redis.Redis:
        """Return a client that may do everything. It takes any certificate."""
        files = self._files
        return redis.Redis(
            host=LOOPBACK,
            port=self.port,
            username="admin",
            password=_ADMIN,
            ssl=True,
            ssl_cert_reqs="none",
            ssl_check_hostname=False,
            ssl_certfile=str(files.server),
            ssl_keyfile=str(files.server_key),
            retry=Retry(NoBackoff(), 0),
        )

    def drop_clients(self) -> None:
        """Close all connections of clients other than this one."""
        with self.admin() as client:
            client.execute_command(*_DROP)

    def use(self, certificate: Path, key: Path) -> None:
        """Let the running server have another certificate."""
        with self.admin() as client:
            client.config_set("tls-cert-file", str(certificate), "tls-key-file", str(key))

    def trust(self, authority: Path) -> None:
        """Let the running server trust clients of another authority alone. All others are disconnected."""
        with self.admin() as client:
            client.config_set("tls-ca-cert-file", str(authority))
            client.execute_command(*_DROP)

    def _prepare(self) -> Sequence[str]:
        users = self.data_dir / "users.acl"
        users.write_text(
            f"user default off\nuser admin on >{_ADMIN} ~* &* +@all\n"
            f"user keeper on >{SECRET} ~{self._prefix}:* {_COMMANDS}\n"
        )
        options = {
            "bind": LOOPBACK,
            "port": "0",
            "tls-port": str(self.port),
            "tls-cert-file": str(self._files.server),
            "tls-key-file": str(self._files.server_key),
            "tls-ca-cert-file": str(self._files.ca),
            "tls-auth-clients": "yes" if self._clients else "no",
            "aclfile": str(users),
            "dir": str(self.data_dir),
            "daemonize": "no",
            "save": "",
            "appendonly": "no",
        }
        return [program(), *(word for key, value in options.items() for word in (f"--{key}", value))]

    def _ready(self, pid: int) -> bool:
        with self.admin() as client:
            try:
                info = client.info("server")
            except redis.RedisError:
                return False
        return isinstance(info, dict) and info.get("process_id") == pid
