"""The example programs of plain Python, with a real coordinator, while their processes are killed."""

import asyncio
import json
import operator
import random
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import IO, Any

import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pypaimon import CatalogFactory, Schema

from sluicegate.events.notifications import Committed
from sluicegate.kafka.clients import started
from tests.faults.tables import kind_of
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running, settings_for
from tests.integration.job import Job, read_ids
from tests.integration.test_python_driver import rows
from tests.integration.waiting import tail, until

pytestmark = pytest.mark.kafka

EXAMPLES = Path(__file__).parents[2] / "examples"
COUNT = 36_000


class Program:
    """One run of an example, in a process of its own."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log: IO[bytes] = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, *arguments], stdout=self._log, stderr=subprocess.STDOUT
        )
        self.path = log

    def checkpoints(self) -> int:
        """Number of checkpoints that all runs have completed."""
        return self.path.read_text(encoding="utf-8").count("\ncheckpoint ")

    def kill(self) -> None:
        """Kill the driver and its workers, as the loss of a machine does."""
        family = [*psutil.Process(self.process.pid).children(recursive=True)]
        self.process.kill()
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.close()

    def close(self) -> None:
        """Wait for the end of the process."""
        self.process.wait()
        self._log.close()

    def kill_worker(self, choose: random.Random) -> None:
        """Kill one of the workers, if there is one."""
        workers = [
            each
            for each in psutil.Process(self.process.pid).children()
            if "spawn_main" in " ".join(each.cmdline())
        ]
        if workers:
            choose.choice(workers).kill()


async def test_consumers_that_are_killed_at_random_lose_and_double_nothing(
    place: Place, tmp_path: Path
) -> None:
    topic = f"{place.prefix}-orders"
    async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
        await admin.create_topics([NewTopic(topic, 3, 1)])
    async with started(AIOKafkaProducer(bootstrap_servers=place.bootstrap)) as producer:
        for number in range(COUNT):
            record = {"id": number, "origin": "JFK", "at": None}
            await producer.send(topic, json.dumps(record).encode(), partition=number % 3)
    arguments = [str(EXAMPLES / "kafka_consumers.py"), place.bootstrap, topic, place.table]
    arguments += ["--topic-prefix", place.prefix]
    log, choose = tmp_path / "driver.log", random.Random(7)
    log.write_text("\n")
    async with running(place.settings("orders")):
        for _ in range(2):
            program = Program(log, *arguments)
            for _ in range(2):
                seen = program.checkpoints()
                await until(program.checkpoints, partial(operator.lt, seen), by=program.process, log=log)
                program.kill_worker(choose)
            program.kill()
        last = Program(log, *arguments, "--once")
        await until(lambda: last.process.poll() is not None, log=log)
        last.close()
        assert last.process.returncode == 0, log.read_text()
    assert read_ids(place.table) == list(range(COUNT))


async def test_the_programs_of_the_page_run_as_they_stand(place: Place, tmp_path: Path) -> None:
    """But for their places, and for the regions of the job, which has its own stream here."""
    page = (EXAMPLES.parent / "docs" / "writers" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    options = blocks[0].partition("OPTIONS = {")[2].partition("\n}\n")[0]
    backfill = next(each for each in blocks if "with Job(" in each)
    job = f"import pyarrow as pa\nOPTIONS = {{{options}\n}}\n{backfill}".replace('"orders,jobs"', '"jobs"')
    table, backfilled = small_table(tmp_path / "a"), small_table(tmp_path / "b")
    programs = [
        blocks[0].replace("/lake/orders.db/orders", table),
        job.replace("/lake/orders.db/orders", backfilled).replace('"stream": "orders"', '"stream": "old"'),
    ]
    streams = {"orders": {"table": table}, "old": {"table": backfilled}}
    async with running(settings_for(place.bootstrap, place.prefix, streams)):
        for number, program in enumerate(programs * 2):
            path = tmp_path / f"{number}.py"
            here = f'"kafka.bootstrap.servers": "{place.bootstrap}",\n    "topic.prefix": "{place.prefix}"'
            path.write_text(program.replace('"kafka.bootstrap.servers": "localhost:9092"', here))
            done = await asyncio.to_thread(
                subprocess.run, [sys.executable, str(path)], capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert read_ids(table) == [0, 1, 2, 3]
    assert read_ids(backfilled) == [7, 8]


def small_table(warehouse: Path) -> str:
    """Make a table with the one column of the page."""
    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database("orders", True)
    catalog.create_table("orders.orders", Schema.from_pyarrow_schema(pa.schema([("id", pa.int64())])), True)
    return str(warehouse / "orders.db" / "orders")


async def ran(example: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example."""
    command = [sys.executable, str(EXAMPLES / example), *arguments]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)


async def printed(example: str, *arguments: str) -> list[str]:
    """Run an example; return the lines of its output."""
    done = await ran(example, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("lake", ["paimon", "delta", "iceberg"])
async def test_rows_that_were_added_to_a_file_are_committed_once(
    lake: str, place: Place, tmp_path: Path
) -> None:
    table, file = tmp_path / "lake" / "default.db" / "orders", tmp_path / "orders.csv"
    text = (EXAMPLES / "orders.csv").read_text(encoding="utf-8")
    file.write_text(text)
    more = [str(table), "--format", lake, "--topic-prefix", place.prefix]
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    options, catalog = ({"uri": uri}, [uri]) if lake == "iceberg" else ({}, [])
    more += [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    streams = {"orders": {"table": str(table), "format": lake, "options": options}}
    async with running(settings_for(place.bootstrap, place.prefix, streams), ready=False):
        run = [place.bootstrap, "orders", str(file), *more]
        made = "orders is new: id int64, product string, amount int64, price double"
        assert await printed("own_table.py", *run) == [made, "committed: 3 new rows"]
        assert await printed("own_table.py", *run) == ["committed already: 3 rows"]
        file.write_text(f"{text}4,screws,500,0.05\n")
        # The same rows as Parquet: the offset is a number of rows of the source.
        parquet = file.with_suffix(".parquet")
        pq.write_table(pyarrow.csv.read_csv(file), parquet)
        run = [place.bootstrap, "orders", str(parquet), *more]
        assert await printed("own_table.py", *run) == ["committed: 1 new row"]
    shown = await printed("read_rows.py", str(table), *catalog)
    assert sorted(shown[:-1]) == [
        "1  bolts  200  0.12",
        "2  nuts  350  0.07",
        "3  washers  80  0.03",
        "4  screws  500  0.05",
    ]
    assert shown[-1] == "4 rows"


async def test_mistakes_of_a_first_try_are_told_before_a_table_is_made(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("id,n\n1,a\n")

    async def said(*arguments: str | Path) -> str:
        done = await ran("own_table.py", "127.0.0.1:1", "rows", *map(str, arguments))
        assert done.returncode == 1, done.stdout
        return done.stderr.splitlines()[-1]

    lake = tmp_path / "lake"
    told = f"is in WAREHOUSE/DATABASE.db/TABLE, and {lake}/rows is not. Give such a folder here, and to the "
    assert f"{told}coordinator: {lake}/default.db/rows" in await said(file, lake / "rows")
    absent = tmp_path / "absent.csv"
    assert await said(absent, lake / "a.db" / "t") == f"nothing was written: there is no file {absent}"
    assert not lake.exists()
    DeltaTable.create(lake / "t", pa.schema([("id", pa.int64()), ("n", pa.string())]))
    typed = await said(file, lake / "t", "--format", "delta", "--type", "id=decimal(10,3)")
    assert typed == "nothing was written: the table has id int64. Leave --type id=... out"
    done = await ran("read_rows.py", str(tmp_path / "nothing"))
    assert done.stderr == f"there is no table at {tmp_path / 'nothing'}\n"


PARTS = """\
id,name,size,price,made,seen,note
1,bolts,,1.5,2026-03-01,2026-03-01T12:00:00Z,
2,"",007,2,,2026-03-01 12:00:00+01:00,""
3,NA,NULL,,2026-03-02,,"a
b"
"""
TYPES = {"size": "string", "price": "decimal(9,2)", "seen": "timestamptz", "note": "string"}


@pytest.mark.parametrize("lake", ["paimon", "delta", "iceberg"])
async def test_null_stays_apart_from_an_empty_text_and_columns_have_their_types(
    lake: str, place: Place, tmp_path: Path
) -> None:
    table, file = tmp_path / "lake" / "default.db" / "parts", tmp_path / "parts.csv"
    file.write_text(PARTS)
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    options = {"uri": uri} if lake == "iceberg" else {}
    run = [place.bootstrap, "parts", str(file), str(table)]
    run += ["--format", lake, "--topic-prefix", place.prefix]
    run += [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    streams = {"parts": {"table": str(table), "format": lake, "options": options}}
    async with running(settings_for(place.bootstrap, place.prefix, streams), ready=False):
        typed = [word for name, kind in TYPES.items() for word in ("--type", f"{name}={kind}")]
        made, *said = await printed("own_table.py", *run, *typed)
        assert "size string, price decimal128(9, 2)" in made
        assert said == ["committed: 3 new rows"]
        # The types are those of the table now: from these values, `size` would be a number.
        file.write_text(f"{PARTS}4,nuts,8,0.07,,,\n")
        assert await printed("own_table.py", *run) == ["committed: 1 new row"]
    found = read_rows(table, uri if lake == "iceberg" else None)
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert found.to_pylist() == [
        dict(zip(found.column_names, row, strict=True))
        for row in (
            (1, "bolts", None, Decimal("1.50"), date(2026, 3, 1), noon, None),
            (2, "", "007", Decimal("2.00"), None, noon - timedelta(hours=1), ""),
            (3, "NA", "NULL", None, date(2026, 3, 2), None, "a\nb"),
            (4, "nuts", "8", Decimal("0.07"), None, None, None),
        )
    ]


def read_rows(table: Path, catalog_uri: str | None) -> pa.Table:
    """Return the rows of a table by `id`, as the example reads them."""
    read = runpy.run_path(str(EXAMPLES / "read_rows.py"))["read"]
    return read(table, catalog_uri).sort_by("id")


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        ("id,zip\n1,\n", (), "so its type is not known. Give one, such as --type zip=string"),
        (
            "id,zip\n1,x\n",
            ("--type", "zip=int"),
            "in the column zip: CSV conversion error to int32: invalid value 'x'. Correct the value, or give "
            "the column another type, such as --type zip=string",
        ),
        ("id,zip\n1,x\n", ("--type", "zap=int"), "has no column zap. Its columns: id, zip"),
        (
            "id,zip\n1,x\n",
            ("--type", "zip=text"),
            "'zip=text' is not COLUMN=TYPE with a type of string, boolean",
        ),
        ("id,zip\n1,x,2\n", (), "Expected 2 columns, got 3"),
    ],
)
async def test_a_file_without_clear_types_is_refused_before_anything_is_made(
    text: str, given: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "orders.csv"
    file.write_text(text)
    before = everything_in(tmp_path)
    table = tmp_path / "lake" / "default.db" / "orders"
    done = await ran(
        "own_table.py", "127.0.0.1:1", "orders", str(file), str(table), "--format", "delta", *given
    )
    assert (done.returncode != 0, message in " ".join(done.stderr.split())) == (True, True), done.stderr
    assert everything_in(tmp_path) == before


async def test_a_value_that_is_not_of_the_type_in_the_table_is_refused(tmp_path: Path) -> None:
    file, table = tmp_path / "orders.csv", small_table(tmp_path / "lake")
    file.write_text("id\n1\n1.5\n")
    done = await ran("own_table.py", "127.0.0.1:1", "orders", str(file), table)
    assert "in the column id: CSV conversion error to " in done.stderr
    assert "invalid value '1.5'. The types are those of the table: correct the value" in done.stderr


async def test_a_stream_that_nobody_has_ends_without_a_traceback(place: Place, tmp_path: Path) -> None:
    file, table = tmp_path / "orders.csv", tmp_path / "lake" / "default.db" / "orders"
    file.write_text("id\n1\n")
    streams = {"orders": {"table": str(table), "format": "delta"}}
    async with running(settings_for(place.bootstrap, place.prefix, streams), ready=False):
        run = [place.bootstrap, "order", str(file), str(table), "--format", "delta"]
        done = await ran("own_table.py", *run, "--topic-prefix", place.prefix)
    assert done.returncode != 0
    assert "nothing was written: " in done.stderr
    assert "Or correct the name of the stream" in done.stderr
    assert "has no row yet" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("lake", "mark", "message"),
    [
        (
            "iceberg",
            "metadata/00000.metadata.json",
            "is a table of the format iceberg, and",
        ),
        ("delta", "_delta_log/00000.json", "is a table of the format delta, and"),
        (None, None, "Give the catalog's address with --option uri=..."),
    ],
)
async def test_a_file_for_a_table_of_another_format_is_refused_before_anything_is_made(
    lake: str | None, mark: str | None, message: str, tmp_path: Path
) -> None:
    table = tmp_path / "lake" / "default.db" / "orders"
    if mark is not None:
        (table / mark).parent.mkdir(parents=True)
        (table / mark).touch()
    before = everything_in(tmp_path)
    more = () if lake else ("--format", "iceberg")
    done = await ran("own_table.py", "127.0.0.1:1", "orders", str(EXAMPLES / "orders.csv"), str(table), *more)
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr
    assert everything_in(tmp_path) == before


def everything_in(folder: Path) -> list[Path]:
    """Return all paths below a folder."""
    return sorted(folder.rglob("*"))


@contextmanager
def compacting(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the example in a process of its own, which is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "compact_delta.py"), *arguments], stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def reached(job: Job) -> int:
    """Return the newest checkpoint with a commit."""
    commits = [each.body for each in await job.notifications() if isinstance(each.body, Committed)]
    return max([each.cut["r1"].checkpoint for each in commits], default=-1)


async def test_a_partition_is_compacted_once_it_has_enough_small_files(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place = await place_of("delta", kafka_bootstrap, unique, tmp_path)

    def files(month: str) -> int:
        return len(DeltaTable(place.table).file_uris(file_pruning_predicate=[("origin", "=", month)]))

    async def send(job: Job, number: int, *months: str) -> None:
        bodies = [job.write_files([number], origin=month) for month in months]
        await job.complete(*[await job.written(body) for body in bodies])
        await until(lambda: reached(job), lambda found: found == number)

    arguments = (place.bootstrap, place.topics.commits, "flights", "--files", "3")
    async with place.job() as job, running(place.settings()):
        await job.register()
        with compacting(*arguments):
            await send(job, 0, "2013-01", "2013-01", "2013-02")
            assert files("2013-01") == 2
        # Another process counts the files of both commits.
        with compacting(*arguments) as process:
            await send(job, 1, "2013-01")
            await until(lambda: files("2013-01"), lambda found: found == 1, by=process)
            assert files("2013-02") == 1
            await send(job, 2, "2013-01")
            assert files("2013-01") == 2
    ids = DeltaTable(place.table).to_pyarrow_table(columns=["id"])["id"].to_pylist()
    assert sorted(ids) == [0, 0, 0, 1, 2]


PAGES = EXAMPLES.parent / "docs" / "migration"
RECORDS = 9
"""Records of the source: the offset is half of the id, rounded down, in the partition of its parity."""

READ = 3
"""Records that the program before has brought into the table: the offsets 0 and 1, and the offset 0."""

NEXT = {"0": 2, "1": 1}


def functions_of(page: str) -> dict[str, Any]:
    """Return the functions of a page."""
    found: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL):
        exec(block, found)  # noqa: S102
    return found


async def make_source(bootstrap: str, topic: str) -> None:
    async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1)])
    async with started(AIOKafkaProducer(bootstrap_servers=bootstrap)) as producer:
        for number in range(RECORDS):
            record = json.dumps({"id": number, "origin": "JFK"}).encode()
            await producer.send_and_wait(topic, record, partition=number % 2)


async def commit_offsets(bootstrap: str, group: str, topic: str, offsets: Mapping[str, int]) -> None:
    reader = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    async with started(reader) as consumer:
        sources = {TopicPartition(topic, int(each)): offset for each, offset in offsets.items()}
        consumer.assign(list(sources))
        await consumer.commit(sources)


async def read_on(place: Place, topic: str, log: Path, starts: Mapping[str, int]) -> None:
    """Let the example read the topic to its end, twice: the starts count once."""
    command = [str(EXAMPLES / "kafka_consumers.py"), place.bootstrap, topic, place.table, "--once"]
    command += ["--format", place.lake, "--topic-prefix", place.prefix, "--starts", json.dumps(starts)]
    command += [f"--option=table.{name}={value}" for name, value in place.lake_options.items()]
    async with running(place.settings("orders")):
        for _ in range(2):
            program = Program(log, *command)
            await until(lambda: program.process.poll() is not None, log=log)  # noqa: B023
            program.close()
            assert program.process.returncode == 0, tail(log)
    found = kind_of(Path(place.table)).rows(Path(place.table))
    assert sorted(row["id"] for row in found) == list(range(RECORDS))


async def test_a_table_of_kafka_delta_ingest_is_continued(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place, topic = await place_of("delta", kafka_bootstrap, unique, tmp_path), f"{unique}-orders"
    await make_source(kafka_bootstrap, topic)
    newest = [Transaction(f"ingest-{each}", offset - 1) for each, offset in NEXT.items()]
    commit = CommitProperties(app_transactions=newest)
    before = rows(*range(READ))
    times = before["at"].cast(pa.timestamp("us", tz="UTC"))
    before = before.set_column(before.schema.get_field_index("at"), "at", times)
    write_deltalake(place.table, before, mode="append", commit_properties=commit)
    starts = functions_of("kafka-delta-ingest.md")["next_offsets"](place.table, "ingest", 3)
    assert starts == NEXT
    await read_on(place, topic, tmp_path / "log", starts)


async def test_a_table_of_iceberg_kafka_connect_is_continued(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place, topic = await place_of("iceberg", kafka_bootstrap, unique, tmp_path), f"{unique}-orders"
    page = functions_of("iceberg-kafka-connect.md")
    await make_source(kafka_bootstrap, topic)
    group, control = f"connect-{unique}", f"{unique}-control"
    async with started(AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)) as admin:
        await admin.create_topics([NewTopic(control, 1, 1)])
    async with started(AIOKafkaProducer(bootstrap_servers=kafka_bootstrap)) as producer:
        for kind in (b"started", b"written", b"complete"):
            await producer.send_and_wait(control, kind)
    await commit_offsets(kafka_bootstrap, group, topic, NEXT)
    await commit_offsets(kafka_bootstrap, f"{group}-coord", control, {"0": 1})
    wanted = await page["ends"](kafka_bootstrap, control)
    assert not page["has_reached"](await page["offsets"](kafka_bootstrap, f"{group}-coord", control), wanted)

    catalog = SqlCatalog("default", uri=place.lake_options["uri"], warehouse=f"file://{place.root}")
    table = catalog.load_table("db.flights")
    summary = {f"kafka.connect.offsets.{control}.{group}": json.dumps({"0": 3})}
    table.append(rows(*range(READ)).cast(table.schema().as_arrow()), snapshot_properties=summary)
    catalog.close()
    await commit_offsets(kafka_bootstrap, f"{group}-coord", control, {"0": 3})
    assert page["has_reached"](await page["offsets"](kafka_bootstrap, f"{group}-coord", control), wanted)
    starts = await page["offsets"](kafka_bootstrap, group, topic)
    assert starts == NEXT
    await read_on(place, topic, tmp_path / "log", starts)
