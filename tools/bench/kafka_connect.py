"""Time from the last event on Kafka to the visible snapshot, beside Iceberg's sink for Kafka Connect.

    python -m tools.bench.kafka_connect [--files 2 10 1000] [--each 100] [--rounds 50]
        [--large-rounds 15] [--warm-up 10] [--interval 2] [--large-interval 6] [--pause 0.3] [--heap 6g]
        [--json]

Both sides share a broker, and commit as many files to equal Iceberg tables: 28 columns, one partition for
each file, a catalog in SQLite, a local disk. They take turns, commit by commit; the other side is idle.

The sink (org.apache.iceberg:iceberg-kafka-connect, in a standalone worker of Kafka Connect) gets rows in
JSON. A task has as many files as one of our events. When its coordinator asks for a commit, each task closes
its files, and appends DATA_WRITTEN and DATA_COMPLETE to the control topic in one transaction. Time counts
from the append of a round's last DATA_COMPLETE, by the broker's clock. Ours counts from before the last event
is sent (tools.bench.last_event), so one more round trip is in it. For both, it ends when another process sees
the end of the transaction in the catalog's database (inotify).

Writing files is in neither time. A round of the sink whose rows came apart into two commits does not count;
neither does the interval between its commits, which is a setting. The sink writes its metadata with the
benchmark's own local files, as Hadoop's local file system starts a process for each new one."""

import argparse
import asyncio
import io
import json
import sqlite3
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import fastavro
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from sluicegate.cli.local.jars import find_java
from sluicegate.cli.local.process import LOOPBACK, ChildProcess, free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from tests.faults import iceberg_tables, stores
from tools.bench.common import machine, quantiles, report, rows
from tools.bench.jvm import CONNECT, compiled
from tools.bench.lakes import Table, Watch, make_table
from tools.bench.last_event import checkpoints

PATIENCE: Final = 600.0
"""Seconds for a worker to start, and for a commit, on a busy machine."""
ROWS: Final = 2
"""Rows of a file that the sink writes. A commit costs the same for each number of them."""
_LOOK: Final = 2.0
"""Seconds without a commit after which the state of the sink is asked for."""
_LARGE: Final = 1_000
"""Files of a round that the sink needs seconds to write."""
_DATA_COMPLETE: Final = 2
_COMMIT_ID: Final = "kafka.connect.commit-id"
_JAVA: Final = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Djava.awt.headless=true")
_BROKER: Final = {"group.initial.rebalance.delay.ms": "3000"}
"""The broker's default. Without it, the sink elects its coordinator before all of its tasks are members."""


class Connect:
    """A standalone worker of Kafka Connect with the sink on its class path, as a context."""

    def __init__(self, folder: Path, bootstrap: str, heap: str) -> None:
        self._folder, self._bootstrap, self._heap = folder, bootstrap, heap
        self._url = f"http://{LOOPBACK}:{free_port()}"
        self._log = folder / "connect.log"

    def __enter__(self) -> Self:
        """Start it. Raises FetchError, JavaError, CalledProcessError or RuntimeError."""
        java = find_java()
        class_path = compiled(CONNECT, java, self._folder / "classes")
        settings = self._folder / "worker.properties"
        worker = {
            "bootstrap.servers": self._bootstrap,
            "listeners": self._url,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": str(self._folder / "offsets"),
            # An idle task reads the control topic this often.
            "offset.flush.interval.ms": "200",
        }
        settings.write_text("".join(f"{name}={value}\n" for name, value in worker.items()))
        options = (*_JAVA, f"-Xmx{self._heap}", f"-Djava.io.tmpdir={self._folder}")
        program = ("org.apache.kafka.connect.cli.ConnectStandalone", str(settings))
        command = [str(java.executable), *options, "-cp", class_path, *program]
        self._process = ChildProcess(command, log_file=self._log, cwd=self._folder)
        try:
            self._wait_until_ready()
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.end(20.0)

    def create(self, name: str, settings: Mapping[str, str]) -> None:
        """Start a connector."""
        self._ask("PUT", f"/connectors/{name}/config", settings)

    def delete(self, name: str) -> None:
        """End a connector."""
        self._ask("DELETE", f"/connectors/{name}")

    def check(self, name: str) -> None:
        """Raise RuntimeError if the worker has ended, or a task of the connector has failed."""
        if self._process.poll() is not None:
            raise RuntimeError(f"Kafka Connect has ended: {self._said()}")
        status = self._ask("GET", f"/connectors/{name}/status")
        for each in (status["connector"], *status["tasks"]):
            if each["state"] == "FAILED":
                raise RuntimeError(f"the connector has failed: {each.get('trace')}")

    def explain(self, problem: str) -> RuntimeError:
        """Return an error with the end of the worker's log."""
        return RuntimeError(f"{problem}: {self._said()}")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self._url}/connectors", timeout=60):  # noqa: S310
                    return
            except OSError:
                # Also the answer 404, of a server whose resources are not there yet.
                time.sleep(0.1)
        raise RuntimeError(f"Kafka Connect does not serve: {self._said()}")

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}{path}", data, headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                found = answer.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()}") from error
        return json.loads(found) if found else None

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def sink_settings(table: Table, topic: str, control: str, tasks: int, interval: float) -> dict[str, str]:
    """Return the settings of a connector that writes a topic to a table."""
    warehouse = table.folder.parents[1]
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": str(tasks),
        "topics": topic,
        "iceberg.tables": f"db.{table.folder.name}",
        "iceberg.catalog": "default",
        "iceberg.catalog.type": "jdbc",
        "iceberg.catalog.uri": f"jdbc:sqlite:{warehouse / iceberg_tables.DATABASE}",
        "iceberg.catalog.warehouse": warehouse.as_uri(),
        "iceberg.catalog.jdbc.schema-version": "V1",
        "iceberg.catalog.io-impl": "Iceberg$LocalFiles",
        "iceberg.control.topic": control,
        "iceberg.control.commit.interval-ms": str(round(interval * 1000)),
        # Tasks that have no row yet do not answer, so the first rounds wait as long as this.
        "iceberg.control.commit.timeout-ms": "10000",
        "consumer.override.max.poll.records": "10000",
    }


def messages(origins: Sequence[str], each: int) -> list[tuple[int, bytes]]:
    """Return rows of all origins in JSON, each with its partition of the topic: one for so many origins."""
    found = []
    for number, row in enumerate(rows(origins, 0, ROWS).to_pylist()):
        row["at"] = round(row["at"].timestamp() * 1000)
        found.append((number // ROWS // each, json.dumps(row).encode()))
    return found


def _in_its_namespace(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out an empty namespace: Avro's Java library refers to such a type as to one of the record's."""
    return {name: value for name, value in schema.items() if (name, value) != ("namespace", "")}


def read_event(value: bytes) -> dict[str, Any]:
    """Read an event of the control topic: two magic bytes, the length of the schema, the schema, the data."""
    end = 4 + int.from_bytes(value[2:4])
    schema = json.loads(value[4:end], object_hook=_in_its_namespace)
    found = fastavro.schemaless_reader(io.BytesIO(value[end:]), schema, None)
    if not isinstance(found, dict):
        raise TypeError(f"no event: {found!r}")
    return found


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of the sink."""

    id: str
    files: int
    visible: int
    """Nanoseconds since the Unix epoch."""


def delays(
    commits: Iterable[Commit], completed: Mapping[str, Sequence[int]], tasks: int, files: int
) -> list[float]:
    """Return the milliseconds from the last completion to the snapshot, for each commit of so many files.

    `completed` has the append times of DATA_COMPLETE by the commit's id, in milliseconds since the epoch.
    Raises RuntimeError for a commit before all tasks were complete.
    """
    found = []
    for each in commits:
        times = completed.get(each.id, ())
        if each.files != files:
            continue
        if len(times) != tasks or max(times) > each.visible / 1e6:
            raise RuntimeError(f"commit {each.id} came before all of {tasks} tasks were complete: {times}")
        found.append(each.visible / 1e6 - max(times))
    return found


@dataclass
class Sink:
    """Rounds of the sink, each of so many files, one after the other."""

    connect: Connect
    name: str
    table: Table
    watch: Watch
    producer: AIOKafkaProducer
    topic: str
    messages: list[tuple[int, bytes]]
    rounds: int = 0
    visible: list[int] = field(default_factory=list)
    """Times of all commits."""

    async def next(self) -> None:
        """Append the rows of a round, and wait until all of them are in the table."""
        self.rounds += 1
        sent = [await self.producer.send(self.topic, row, partition=number) for number, row in self.messages]
        await asyncio.gather(*sent)
        deadline = time.monotonic() + PATIENCE
        while self.table.rows < self.rounds * len(self.messages):
            with suppress(TimeoutError):
                self.visible.append(await asyncio.to_thread(self.watch.next, _LOOK))
                continue
            await asyncio.to_thread(self.connect.check, self.name)
            if time.monotonic() > deadline:
                raise self.connect.explain(
                    f"{self.table.rows} rows are in the table after {self.rounds} rounds"
                )

    def commits(self) -> list[Commit]:
        """Return all commits. Raises RuntimeError if the table has others, or not each row."""
        with closing(iceberg_tables.catalog_of(self.table.folder)) as catalog:
            metadata = catalog.load_table(f"db.{self.table.folder.name}").metadata
        snapshots = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0)
        expected = self.rounds * len(self.messages)
        if self.table.rows != expected or len(snapshots) != len(self.visible):
            found = f"{self.table.rows} rows instead of {expected}, {len(snapshots)} snapshots"
            raise RuntimeError(f"the sink's table has {found}; {len(self.visible)} were seen")
        summaries = [each.summary for each in snapshots]
        return [
            Commit(each[_COMMIT_ID] or "", int(each["added-data-files"] or 0), visible)
            for each, visible in zip(summaries, self.visible, strict=True)
            if each is not None
        ]


def _name_by_path(table: Table) -> None:
    """Let the catalog name the metadata by its path: the benchmark's local files know no other name of it."""
    path = str(stores.local(iceberg_tables.metadata_location(table.folder)))
    database = table.folder.parents[1] / iceberg_tables.DATABASE
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE iceberg_tables SET metadata_location = ?", (path,))


@asynccontextmanager
async def sink(
    connect: Connect, folder: Path, bootstrap: str, files: int, each: int, interval: float
) -> AsyncIterator[tuple[Sink, str]]:
    """Give rounds of a new table with a connector for itself, and the name of its control topic."""
    name = f"sink{uuid.uuid4().hex[:8]}"
    tasks, table = -(-files // each), make_table("iceberg", folder)
    _name_by_path(table)
    topic, control = f"{name}-rows", f"{name}-control"
    settings = {"message.timestamp.type": "LogAppendTime"}
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        made = [NewTopic(topic, tasks, 1), NewTopic(control, 1, 1, topic_configs=settings)]
        await admin.create_topics(made)
    finally:
        await admin.close()
    await asyncio.to_thread(connect.create, name, sink_settings(table, topic, control, tasks, interval))
    try:
        with Watch(table) as watch:
            async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
                prepared = messages(origins_of(files), each)
                yield Sink(connect, name, table, watch, producer, topic, prepared), control
    finally:
        await asyncio.to_thread(connect.delete, name)


async def completions(
    bootstrap: str, control: str, wanted: Iterable[str], tasks: int
) -> dict[str, list[int]]:
    """Return the append times of DATA_COMPLETE by commit, once all tasks have one for each wanted commit."""
    missing, found = Counter(dict.fromkeys(wanted, tasks)), dict[str, list[int]]()
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        source = TopicPartition(control, 0)
        consumer.assign([source])
        await consumer.seek_to_beginning(source)
        deadline = time.monotonic() + 60.0
        while +missing:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the control topic has no DATA_COMPLETE for {dict(+missing)}")
            for record in (await consumer.getmany(source, timeout_ms=1000)).get(source, ()):
                event = read_event(record.value)
                if event["type"] == _DATA_COMPLETE:
                    commit = str(uuid.UUID(bytes=event["payload"]["commit_id"]))
                    found.setdefault(commit, []).append(record.timestamp)
                    missing[commit] -= 1
    finally:
        await consumer.stop()
    return found


def origins_of(files: int) -> list[str]:
    """Return as many origins as files."""
    return [f"A{number:03d}" for number in range(files)]


async def measure(
    connect: Connect, folder: Path, bootstrap: str, files: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Measure both sides with commits of so many files, in turns."""
    rounds, interval = arguments.rounds, arguments.interval
    if files >= _LARGE:
        rounds, interval = arguments.large_rounds, arguments.large_interval
    each, took = min(arguments.each, files), list[tuple[float, float]]()
    ours_folder, their_folder = folder / "ours", folder / "theirs"
    ours_folder.mkdir()
    their_folder.mkdir()
    async with (
        sink(connect, their_folder, bootstrap, files, each, interval) as (theirs, control),
        checkpoints(ours_folder, bootstrap, "iceberg", files, each, origins_of(files)) as ours,
    ):
        for _ in range(arguments.warm_up):
            await theirs.next()
            await ours.next(0)
        first = len(theirs.visible)
        for _ in range(rounds):
            await theirs.next()
            took.append(await ours.next(arguments.pause))
        ours.check()
        commits = theirs.commits()[first:]
        tasks = ours.events
    whole = [commit for commit in commits if commit.files == files]
    completed = await completions(bootstrap, control, [commit.id for commit in whole], tasks)
    their_delays = delays(whole, completed, tasks, files)
    if 2 * len(their_delays) < rounds:
        raise RuntimeError(f"{len(their_delays)} of {rounds} rounds were one commit; raise the interval")
    last_event = quantiles([event for event, _ in took])
    theirs_ms = quantiles(their_delays)
    return {
        "files": files,
        "events": tasks,
        "rounds": rounds,
        "rounds_of_sink": len(their_delays),
        "ours_ms": last_event,
        "ours_from_completion_ms": quantiles([completion for _, completion in took]),
        "sink_ms": theirs_ms,
        "ratio": round(theirs_ms["p50"] / last_event["p50"], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, nargs="+", default=[2, 10, 1_000])
    parser.add_argument("--each", type=int, default=100, help="files in an event, and of a task")
    parser.add_argument("--rounds", type=int, default=50, help="commits that count")
    parser.add_argument("--large-rounds", type=int, default=15, help="the same, of 1,000 files or more")
    parser.add_argument("--warm-up", type=int, default=10, help="commits that come first")
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between the sink's commits")
    parser.add_argument("--large-interval", type=float, default=6.0, help="the same, of 1,000 files or more")
    parser.add_argument("--pause", type=float, default=0.3, help="seconds before each last event of ours")
    parser.add_argument("--heap", default="6g", help="of Kafka Connect")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedKafka(settings=_BROKER) as kafka,
        Connect(Path(name), kafka.bootstrap, arguments.heap) as connect,
    ):
        for files in arguments.files:
            with tempfile.TemporaryDirectory() as folder:
                found = asyncio.run(measure(connect, Path(folder), kafka.bootstrap, files, arguments))
            report({**found, **machine()}, as_json=arguments.json)


if __name__ == "__main__":
    main()
