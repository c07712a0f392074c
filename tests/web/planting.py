"""A deployment whose faults are real: a coordinator process, its own servers, one stream for each fault."""

import asyncio
import json
import os
import shlex
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from sluicegate.cli.local.process import ChildProcess, free_port
from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey
from sluicegate.kafka.topics import TopicNames, ensure_topics, topic_specs
from tests.iceberg_java.java import RestCatalogServer
from tests.integration.job import PARTITIONS, SCHEMA, Job, create_table
from tests.integration.waiting import finished, until, watched

ROOT: Final = Path(__file__).parents[2]
CLI: Final = (sys.executable, "-c", "from sluicegate.cli.main import main; main()")
PAIMON: Final = ("dead", "silent", "paused", "stalled", "poison", "schema", "quiet")
"""Streams with a table in a local folder, by their fault. Nothing is planted in the last one."""


@dataclass
class Planted:
    """Servers, tables and the coordinator; each test plants its fault in its own stream."""

    root: Path
    disk: Path | None
    """Folder on a small file system, for the table of the stream `disk`; None: there is no such stream."""
    kafka: EmbeddedKafka
    valkey: EmbeddedValkey
    catalog: RestCatalogServer
    prefix: str = field(default_factory=lambda: f"p{uuid.uuid4().hex[:8]}")
    port: int = field(default_factory=free_port)
    tables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topics = TopicNames(self.prefix)
        self.config = self.root / "sluicegate.toml"
        self.log_file = self.root / "coordinator.log"
        for name in PAIMON:
            self.tables[name] = create_table(self.root / "warehouse", name)
        if self.disk is not None:
            self.tables["disk"] = create_table(self.disk, "disk")
        self.tables["catalog"] = self._create_in_catalog("db", "catalog")

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> ChildProcess:
        """Start the coordinator."""
        self.config.write_text(self._settings(), encoding="utf-8")
        command = [*CLI, "run", "--config", str(self.config)]
        return ChildProcess(command, log_file=self.log_file, cwd=self.root, env=dict(os.environ))

    async def serves(self, process: ChildProcess) -> None:
        """Wait until the coordinator is ready."""

        async def ready() -> bool:
            with suppress(aiohttp.ClientError):
                async with aiohttp.ClientSession() as session, session.get(f"{self.url}readyz") as answer:
                    return answer.status == 200
            return False

        await until(ready, by=process, log=self.log_file, what="the coordinator")

    async def end_region(self, driver: ChildProcess, stream: str, region: str) -> None:
        """End a driver in order, which sends that its region is idle."""
        driver.send(signal.SIGTERM)
        await self.await_line(stream, region, "ended")

    async def run_command(self, command: str) -> str:
        """Run a command that the page shows, and return its output. Fails if the command fails."""
        program, *arguments = shlex.split(command)
        assert program == "sluicegate"
        process = await asyncio.create_subprocess_exec(
            *CLI,
            *arguments,
            env={**os.environ, "SLUICEGATE_CONFIG": str(self.config)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await finished(process.communicate(), command)
        assert process.returncode == 0, output.decode()
        return output.decode()

    def job(self, stream: str, region: str = "r1", regions: tuple[str, ...] = ("r1",)) -> Job:
        """Return a region's writers and driver, which send no heartbeats."""
        lake, options = ("iceberg", self.catalog_options) if stream == "catalog" else ("paimon", {})
        return Job(
            self.kafka.bootstrap,
            self.topics,
            stream,
            self.tables[stream],
            region=region,
            regions=regions,
            lake=lake,
            lake_options=options,
        )

    def driver(self, stream: str, region: str, how: str, regions: tuple[str, ...] = ()) -> ChildProcess:
        """Start a process with the driver of a region; see `tests.web.planted_driver`."""
        options = {
            "stream": stream,
            "region": region,
            "regions": ",".join(regions or (region,)),
            "assignment": "0",
            "table": self.tables[stream],
            "kafka.bootstrap.servers": self.kafka.bootstrap,
            "topic.prefix": self.prefix,
        }
        return ChildProcess(
            [sys.executable, "-m", "tests.web.planted_driver", how, json.dumps(options)],
            log_file=self.driver_log(stream, region),
            cwd=ROOT,
            env=dict(os.environ),
        )

    def driver_log(self, stream: str, region: str) -> Path:
        """Return the log of a driver."""
        return self.root / f"driver-{stream}-{region}.log"

    async def await_driver(self, driver: ChildProcess, stream: str, region: str, line: str) -> None:
        """Wait until a driver has written a line to its log."""
        with watched(driver):
            await self.await_line(stream, region, line)

    async def await_line(self, stream: str, region: str, line: str) -> None:
        """Wait for a line in the log of a driver."""
        log = self.driver_log(stream, region)
        await until(lambda: line in log.read_text().splitlines(), log=log, what=line)

    @property
    def catalog_options(self) -> dict[str, str]:
        """Options of the format's adapter for the table of the stream `catalog`."""
        return {"type": "rest", "uri": self.catalog.uri, "identifier": "db.catalog"}

    def _create_in_catalog(self, namespace: str, name: str) -> str:
        library = RestCatalog("default", uri=self.catalog.uri)
        library.create_namespace(namespace)
        fields = [each.with_type(pa.timestamp("us")) if each.name == "at" else each for each in SCHEMA]
        location = str(self.root / "iceberg")
        library.create_table(f"{namespace}.{name}", pa.schema(fields), location=f"file://{location}")
        return location

    def _settings(self) -> str:
        lines = [
            'stall_after = "60s"',
            "[kafka]",
            f'bootstrap_servers = "{self.kafka.bootstrap}"',
            f'topic_prefix = "{self.prefix}"',
            f'group_id = "{self.prefix}"',
            f"partitions = {PARTITIONS}",
            "session_timeout = 6",
            f'members_folder = "{self.root / "members"}"',
            f'[redis]\nurl = "{self.valkey.url}"\nkey_prefix = "{self.prefix}"',
            f"[http]\nport = {self.port}",
        ]
        for name, table in self.tables.items():
            lines += [f"[streams.{name}]", f'table = "{table}"', 'silence = "1s"']
            if name == "catalog":
                lines += ['format = "iceberg"', "[streams.catalog.options]"]
                lines += [f"{key} = {json.dumps(value)}" for key, value in self.catalog_options.items()]
        return "\n".join(lines) + "\n"


@contextmanager
def planted(root: Path, disk: Path | None) -> Iterator[Planted]:
    """Give the servers and the tables. The caller makes the topics and starts the coordinator."""
    with ExitStack() as stack:
        yield Planted(
            root,
            disk,
            stack.enter_context(EmbeddedKafka()),
            stack.enter_context(EmbeddedValkey()),
            stack.enter_context(RestCatalogServer()),
        )


async def create_topics(place: Planted) -> None:
    """Make the topics of the deployment."""
    await ensure_topics(place.kafka.bootstrap, topic_specs(place.topics, partitions=PARTITIONS))
