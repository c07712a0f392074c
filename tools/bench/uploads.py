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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import aiohttp
from aiohttp import web
from yarl import URL

from sluicegate.cli.local.process import free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from tests.s3proxy import BUCKET, S3Proxy
from tools.bench.batches import FILES, Bench, Place, make_source, spooling
from tools.bench.common import machine

ROWS: Final = 500_000
"""Rows of each file: about 4 MB of random numbers."""
RATE: Final = 20_000_000
"""Bytes for each second of a healthy node; the slow one has a tenth."""
SLOW: Final = 0
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


@contextmanager
def prepared(batches: int, work: float) -> Iterator[tuple[Bench, Nodes]]:
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
            PYTHONPATH=os.pathsep.join([name, os.environ.get("PYTHONPATH", "")]),
        )
        make_source(folder / "source", batches + 1, ROWS)
        bench = Bench(folder, kafka, Place(str(s3.bucket), f"s3://{BUCKET}", s3.environment()), ROWS)
        try:
            yield bench, nodes
        finally:
            bench.stop()
            nodes.stop()


def measure(bench: Bench, batches: int, pause: float, options: Mapping[str, str]) -> list[float]:
    """Run a query over the whole source; return the seconds of its batches, without the first."""
    with bench.series(options) as series:
        block = series.query.run(batches, pause)
        series.await_rows()
        return block.seconds


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
    with prepared(batches, work) as (bench, nodes):

        def series(options: Mapping[str, str]) -> list[float]:
            return measure(bench, batches, wanted.pause, options)

        spool = spooling(bench)
        base = tell("healthy", series({}))
        nodes.is_slow = True
        tell("slow, sync", series({}), base)
        tell("slow, async", series(spool), base)
        nodes.is_slow = False
        base = tell("async", series(spool))
        slow = {**spool, "before.publish": "bench_hook:work"}
        tell(f"async, {work:g} s of work for each file", series(slow), base)


if __name__ == "__main__":
    main()
