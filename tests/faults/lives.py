"""The coordinator as a process that is killed, frozen and started again."""

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from sluicegate.cli.local.process import ChildProcess, free_port
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import LOG_VARIABLE, VARIABLE
from sluicegate.kafka.topics import TopicNames, ensure_topics, topic_specs
from tests.faults.stores import location
from tests.faults.tables import FORMATS, create_table, kind_of
from tests.integration.job import PARTITIONS
from tests.integration.waiting import until

COMMAND = [sys.executable, "-c", "from sluicegate.cli.main import main; main()"]
SESSION = 6.0
"""Seconds: longer than any restart takes, so that a restart that waits for it is seen."""


class Died(Exception):
    """A coordinator ended that should not have; the text has the end of its log."""


@dataclass
class Deployment:
    """Topics, tables and settings that the lives of coordinators share."""

    bootstrap: str
    root: Path
    streams: tuple[str, ...] = ("flights",)
    redis: str | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)
    """More lines of each stream's settings, in TOML."""
    session: float = SESSION
    prefix: str = field(default_factory=lambda: f"f{uuid.uuid4().hex[:10]}")
    table_options: Mapping[str, str] = field(default_factory=dict)
    lake: str = "paimon"
    """Format of the tables."""
    store: Path | None = None
    """Folder of a store (stores.py) in which tables are made; None: in the deployment's own folder."""
    compacted: bool = False
    """Whether another process compacts the tables."""
    state_record_interval: str = "10m"
    evicts: bool = True
    """Whether coordinators find killed ones of their host; the first releases have no setting for it."""
    lives: int = 0
    hits: Path | None = None
    """Where hits of failpoints are noted; default: in the deployment's own folder."""

    def __post_init__(self) -> None:
        self.topics = TopicNames(self.prefix)
        self.folder = self.root / self.prefix
        self.folder.mkdir(parents=True)
        self.hits = self.hits or self.folder / "hits"
        folder = self.folder if self.store is None else self.store / self.prefix
        self.tables = {
            name: create_table(folder, name, self.lake, **self.table_options) for name in self.streams
        }
        """Folder of each table, as readers look at it."""

    async def prepare(self) -> None:
        """Make the topics."""
        await ensure_topics(self.bootstrap, topic_specs(self.topics, partitions=PARTITIONS))

    def user(self, stream: str) -> str:
        """By whom the stream's commits are made."""
        return f"sluicegate-{stream}"

    def location(self, stream: str) -> str:
        """The table of a stream as settings name it."""
        return location(self.tables[stream])

    def options(self, stream: str) -> Mapping[str, str]:
        """The options of the format's adapter for the table of a stream."""
        return kind_of(self.tables[stream]).options(self.tables[stream])

    @property
    def lacking(self) -> frozenset[Failpoint]:
        """Places of a commit that the format has not."""
        return FORMATS[self.lake].LACKING

    def settings(self, port: int) -> str:
        """The settings file of one life."""
        lines = [
            f'state_record_interval = "{self.state_record_interval}"',
            "[kafka]",
            f'bootstrap_servers = "{self.bootstrap}"',
            f'topic_prefix = "{self.prefix}"',
            f'group_id = "{self.prefix}"',
            f"partitions = {PARTITIONS}",
            f"session_timeout = {self.session}",
            *([f'members_folder = "{self.folder / "members"}"'] if self.evicts else []),
            *(["[redis]", f'url = "{self.redis}"', f'key_prefix = "{self.prefix}"'] if self.redis else []),
            "[http]",
            f"port = {port}",
        ]
        for name in self.streams:
            lines += [f"[streams.{name}]", f'table = "{self.location(name)}"', f'format = "{self.lake}"']
            lines += [f"{key} = {json.dumps(value)}" for key, value in self.policy.items()]
            lines += [f"[streams.{name}.options]"]
            lines += [f"{key} = {json.dumps(value)}" for key, value in self.options(name).items()]
        return "\n".join(lines) + "\n"

    def write_settings(self, number: int, port: int) -> Path:
        """Write the settings file of one life."""
        config = self.folder / f"sluicegate-{number}.toml"
        config.write_text(self.settings(port), encoding="utf-8")
        return config

    def noted(self) -> str:
        """All hits until now, one a line."""
        assert self.hits is not None
        return self.hits.read_text() if self.hits.exists() else ""

    def start(self, failpoints: str = "", command: Sequence[str] = COMMAND) -> "Life":
        """Begin a life. It may be killed by the failpoints at any time."""
        self.lives += 1
        return Life(self, self.lives, failpoints, command)


class Life:
    """One process of the coordinator."""

    def __init__(
        self, deployment: Deployment, number: int, failpoints: str, command: Sequence[str] = COMMAND
    ) -> None:
        self.port = free_port()
        self.log_file = deployment.folder / f"coordinator-{number}.log"
        config = deployment.write_settings(number, self.port)
        # Every hit is noted, so that what was never reached is known in the end.
        variables = {VARIABLE: f"*=note;{failpoints}", LOG_VARIABLE: str(deployment.hits)}
        self._process = ChildProcess(
            [*command, "run", "--config", str(config)],
            log_file=self.log_file,
            cwd=deployment.folder,
            env={**os.environ, **variables},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    def poll(self) -> int | None:
        """Return the exit status, None while it lives."""
        return self._process.poll()

    async def killed(self) -> None:
        """Wait for SIGKILL. Raises Died for another end."""
        await until(self._killed, what="its end by SIGKILL", log=self.log_file)

    async def killed_meanwhile(self, seconds: float) -> bool:
        """Pause, and return early if SIGKILL ends it. Raises Died for another end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # time: the caller repeats it until something happens
                await self.killed()
        return self._killed()

    def _killed(self) -> bool:
        status = self._process.poll()
        if status is None:
            return False
        self._process.kill()
        if status != -signal.SIGKILL:
            raise Died(f"status {status}; {self.tail()}")
        return True

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send(number)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.kill()

    def end(self) -> int:
        """Ask it to end, and wait for that."""
        return self._process.end(30.0)

    def check(self) -> None:
        """Raises Died if it has ended."""
        status = self._process.poll()
        if status is not None:
            raise Died(f"status {status}; {self.tail()}")

    async def get(self, path: str) -> Any:
        """What an endpoint of it says, None if it does not answer."""
        timeout = aiohttp.ClientTimeout(total=1.0)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://127.0.0.1:{self.port}{path}") as response,
            ):
                return await response.json()
        except (aiohttp.ClientError, TimeoutError):
            return None

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        text = self.log_file.read_text(encoding="utf-8", errors="replace")
        return f"{self.log_file}:\n" + "\n".join(text.splitlines()[-lines:])


def stopped(pid: int) -> bool:
    """Whether a process is frozen."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state in ("T", "t")


def joined(points: Sequence[str]) -> str:
    """A specification of several failpoints."""
    return ";".join(points)
