"""Batches of a streaming query beside a slow storage node, with tasks that upload and with an uploader.

    python -m tools.bench.uploads [--batches 9] [--work 30] [--short]

The table is in a real S3 server, s3proxy. A proxy between Spark and that server divides objects over four
nodes, by a checksum of their names, and delays each upload by its size: 20 MB/s, and 2 MB/s at the slow node.
The coordinator reaches the server itself. Each batch has four files of about 4 MB, written by four tasks, two
at a time. A batch starts every few seconds, so that the slow node can follow. A figure is the time that Spark
reports for a batch, `triggerExecution`. The first batch of a query is left out: it starts processes.

Series, in turns: `healthy` (no slow node, tasks upload), `slow, sync`, `slow, async`. Then batches with an
uploader whose `before.publish` works for some seconds on each file, beside the same without it.

Each line is JSON. Every series ends with the number of rows in the table, which has to be that of the source.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import aiohttp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from aiohttp import web
from pypaimon import CatalogFactory, Schema
from pyspark.sql import SparkSession
from yarl import URL

from sluicegate.cli.local.process import free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.writer_hooks import attach
from tests.s3proxy import BUCKET, S3Proxy
from tools.bench.common import STREAM, machine, make_topics, start_coordinator, wait_ready, write_settings

FILES: Final = 4
"""Files of each batch, and nodes of the storage."""
ROWS: Final = 500_000
"""Rows of each file: about 4 MB of random numbers."""
RATE: Final = 20_000_000
"""Bytes for each second of a healthy node; the slow one has a tenth."""
SLOW: Final = 0
COLUMNS: Final = pa.schema([("id", pa.int64()), ("measure", pa.float64())])
HOPS: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "expect"})
HOOK: Final = """
import os, time

def work(local, uri):
    time.sleep(float(os.environ["BENCH_WORK"]))
"""


class Nodes:
    """Proxy of the S3 server, which delays uploads."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.port = free_port()
        self.is_slow = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        """Serve in a thread."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result()

    def stop(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _serve(self) -> None:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()

    async def _pass_on(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.method == "PUT":
            node = crc32(request.path.encode()) % FILES
            rate = RATE / 10 if self.is_slow and node == SLOW else RATE
            await asyncio.sleep(len(body) / rate)
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in HOPS]
        url = URL(f"{self._endpoint}{request.raw_path}", encoded=True)
        async with self._session.request(request.method, url, headers=headers, data=body) as answer:
            found = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOPS]
            content = await answer.read()
            kept = [(name, value) for name, value in found if name.lower() != "content-length" or not content]
            return web.Response(status=answer.status, headers=kept, body=content or None)


def make_source(folder: Path, batches: int) -> None:
    """Write the files of the source."""
    folder.mkdir()
    numbers = np.random.default_rng(1)
    for at in range(batches * FILES):
        ids = pa.array(range(at * ROWS, (at + 1) * ROWS), pa.int64())
        rows = pa.table([ids, pa.array(numbers.random(ROWS))], schema=COLUMNS)
        pq.write_table(rows, folder / f"{at:05d}.parquet", use_dictionary=False)


def count_rows(warehouse: Path, name: str) -> int:
    """Return the number of rows in the table."""
    table = CatalogFactory.create({"warehouse": str(warehouse)}).get_table(f"db.{name}")
    builder = table.new_read_builder()
    return int(builder.new_read().to_arrow(builder.new_scan().plan().splits()).num_rows)


def make_table(warehouse: Path, name: str) -> str:
    """Make a table in the folder of the bucket, and return its location."""
    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database("db", True)
    schema = Schema.from_pyarrow_schema(COLUMNS, options={"bucket": "-1"})
    catalog.create_table(f"db.{name}", schema, False)
    return f"s3://{BUCKET}/db.db/{name}"


class Bench:
    """Servers and a session, for series one after the other."""

    def __init__(self, folder: Path, kafka: EmbeddedKafka, s3: S3Proxy, nodes: Nodes) -> None:
        self.folder, self._kafka, self._s3, self.nodes = folder, kafka, s3, nodes
        self._made = 0
        self._spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.files.maxPartitionBytes", "5m")  # a task for each file
            .getOrCreate()
        )
        self._spark.sparkContext.setLogLevel("OFF")
        attach(self._spark, heartbeat_interval=1.0)

    def stop(self) -> None:
        """End the session."""
        self._spark.stop()

    def series(self, pause: float, options: Mapping[str, str]) -> list[float]:
        """Run a query over the whole source; return the seconds of its batches, without the first."""
        self._made += 1
        name = f"t{self._made}"
        folder = self.folder / name
        folder.mkdir()
        location = make_table(self._s3.bucket, name)
        topics = asyncio.run(make_topics(self._kafka.bootstrap))
        port = free_port()
        settings = write_settings(folder, self._kafka.bootstrap, topics, location, port)
        process = start_coordinator(settings, self._s3.environment())
        try:
            wait_ready(process, port, folder / "coordinator.log")
            sink = {
                "stream": STREAM,
                "region": "r1",
                "table": location,
                "kafka.bootstrap.servers": self._kafka.bootstrap,
                "topic.prefix": topics.prefix,
                "checkpointLocation": str(folder / "checkpoint"),
                **options,
            }
            batches = self._run(pause, sink)
            self._await_rows(name)
        finally:
            process.end(20.0)
        return batches[1:]

    def _run(self, pause: float, sink: Mapping[str, str]) -> list[float]:
        source = self.folder / "source"
        expected = len(list(source.iterdir())) // FILES
        reader = self._spark.readStream.schema("id long, measure double").option("maxFilesPerTrigger", FILES)
        writer = reader.parquet(str(source)).writeStream.format("sluicegate").options(**sink)
        query = writer.trigger(processingTime=f"{pause} seconds").start()
        done: dict[int, float] = {}
        while len(done) < expected and query.isActive:
            for progress in query.recentProgress:
                if progress["numInputRows"]:
                    done[progress["batchId"]] = progress["durationMs"]["triggerExecution"] / 1000
            time.sleep(0.1)
        failure = query.exception()
        query.stop()
        if failure is not None:
            raise failure
        return [done[number] for number in sorted(done)]

    def _await_rows(self, name: str) -> None:
        """Wait until the table has the rows of the source, each once."""
        wanted = len(list((self.folder / "source").iterdir())) * ROWS
        while (found := count_rows(self._s3.bucket, name)) != wanted:
            if found > wanted:
                raise RuntimeError(f"{found} rows in place of {wanted}")
            time.sleep(0.2)


@contextmanager
def prepared(batches: int, work: float) -> Iterator[Bench]:
    """Give servers, a source and a session."""
    with tempfile.TemporaryDirectory() as name, S3Proxy() as s3, EmbeddedKafka() as kafka:
        folder = Path(name)
        nodes = Nodes(s3.endpoint)
        nodes.start()
        (folder / "bench_hook.py").write_text(HOOK)
        sys.path.insert(0, name)
        os.environ.update(s3.environment())
        os.environ.update(
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{nodes.port}",
            BENCH_WORK=str(work),
            PYSPARK_PYTHON=sys.executable,
            PYTHONPATH=os.pathsep.join([name, os.environ.get("PYTHONPATH", "")]),
        )
        make_source(folder / "source", batches + 1)
        bench = Bench(folder, kafka, s3, nodes)
        try:
            yield bench
        finally:
            bench.stop()
            nodes.stop()


def tell(series: str, batches: Sequence[float], base: float | None = None) -> float:
    """Print a line; return the median."""
    median = statistics.median(batches)
    figures: dict[str, Any] = {
        "series": series,
        "batches": len(batches),
        "median_s": round(median, 3),
        "longest_s": round(max(batches), 3),
        "rows": "exact",
    }
    if base is not None:
        figures["ratio"] = round(median / base, 2)
    print(json.dumps({**figures, **machine()}), flush=True)
    return median


def main() -> None:
    """Run all series."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batches", type=int, default=9, help="batches of each series")
    parser.add_argument("--work", type=float, default=30.0, help="seconds of before.publish for each file")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between the starts of two batches")
    parser.add_argument("--short", action="store_true", help="see that it works: few batches, little work")
    wanted = parser.parse_args()
    batches, work = (5, 2.0) if wanted.short else (wanted.batches, wanted.work)
    with prepared(batches, work) as bench:
        spool = {"upload": "async", "upload.spool": str(bench.folder / "spool"), "upload.threads": "8"}
        base = tell("healthy", bench.series(wanted.pause, {}))
        bench.nodes.is_slow = True
        tell("slow, sync", bench.series(wanted.pause, {}), base)
        tell("slow, async", bench.series(wanted.pause, spool), base)
        bench.nodes.is_slow = False
        base = tell("async", bench.series(wanted.pause, spool))
        slow = {**spool, "before.publish": "bench_hook:work"}
        tell(f"async, {work:g} s of work for each file", bench.series(wanted.pause, slow), base)


if __name__ == "__main__":
    main()
