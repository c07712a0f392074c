"""Time of the page of metrics with 1,000 streams, and its cost for the steps of commits meanwhile.

    python -m tools.bench.metrics_page [--json] [--streams 1000] [--scrapes 30] [--runs 3]

The server of the service answers on an event loop, and a process of its own asks each second, far more often
than Prometheus does. Between two scrapes every stream commits and is measured, so each series has changed. A
step is a message of 1 KiB to another process and back, as a commit waits for Kafka or a store. Steps are
measured with and without scrapes; the metrics change beside both.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from sluicegate.coordinator.observe.metrics import Metrics
from sluicegate.coordinator.service.service import watch_loop
from sluicegate.coordinator.settings.model import HttpSettings
from sluicegate.coordinator.tasks import ended_with
from sluicegate.coordinator.web.http import HealthServer

_ECHO: Final = """
import asyncio
async def echo(reader, writer):
    try:
        while data := await reader.read(1024):
            writer.write(data)
    except ConnectionError:
        pass
async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
_SCRAPE: Final = """
import sys, time, urllib.request
url, count = sys.argv[1], int(sys.argv[2])
for _ in range(count):
    begun = time.perf_counter()
    size = len(urllib.request.urlopen(url).read())
    took = time.perf_counter() - begun
    print(took, size, flush=True)
    time.sleep(max(0.0, 1.0 - took))
"""
_AT_ONCE: Final = 20
"""Streams that change in one turn."""


class Health:
    """A service that is well."""

    def alive(self) -> str | None:
        return None

    def unready(self) -> list[str]:
        return []

    def status(self) -> dict[str, Any]:
        return {}


def change(metrics: Metrics, number: int, turn: int) -> None:
    """Let a stream commit, and set its gauges."""
    stream, now = f"stream-{number:04d}", time.time()
    metrics.commit_seconds.observe(0.02 + turn / 1000, stream)
    metrics.event_to_snapshot.observe(0.04 + turn / 1000, stream)
    metrics.rows.add(1_000, stream)
    metrics.bytes.add(1 << 20, stream)
    metrics.cuts.add(1, stream, "full")
    metrics.pending_files.set(turn, stream)
    metrics.pending_bytes.set(turn << 20, stream)
    metrics.record_size.set(4_000 + turn, stream)
    metrics.single_region.set(0, stream)
    for age in (metrics.oldest_unsealed, metrics.oldest_uncut):
        age.set(turn / 10, stream)
    for moment in (metrics.last_commit, metrics.watermark, metrics.oldest_needed):
        moment.set(now, stream)
    for region in ("a", "b"):
        metrics.fallbacks.set(0, stream, region)
        metrics.heard.set(now, stream, region)


async def keep_changing(metrics: Metrics, streams: int) -> None:
    """Change all streams each second, spread over it as commits are."""
    turn = 0
    while True:
        turn += 1
        begun = time.monotonic()
        for start in range(0, streams, _AT_ONCE):
            for number in range(start, min(start + _AT_ONCE, streams)):
                change(metrics, number, turn)
            await asyncio.sleep(max(0.0, begun + (start + _AT_ONCE) / streams - time.monotonic()))


async def keep_stepping(port: int, took: list[float]) -> None:
    """Send messages and wait for their return, as one of several streams does; note the seconds of each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    message = b"x" * 1024
    while True:
        begun = time.perf_counter()
        writer.write(message)
        await reader.readexactly(len(message))
        took.append(time.perf_counter() - begun)
        await asyncio.sleep(0.005)


async def scraped(url: str, scrapes: int) -> tuple[list[float], int]:
    """Return the seconds of each scrape by another process, and the bytes of a page."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SCRAPE, url, str(scrapes), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    lines = [line.split() for line in out.decode().splitlines()]
    return [float(took) for took, _ in lines], int(lines[-1][1])


def processor_time(metrics: Metrics, streams: int) -> tuple[float, float]:
    """Return the processor milliseconds of a page of which every series has changed, and of the next one."""
    found = []
    for number in range(streams):
        change(metrics, number, 1)
    for _ in range(2):
        begun = time.process_time()
        metrics.render()
        found.append((time.process_time() - begun) * 1000)
    return found[0], found[1]


async def measure(streams: int, scrapes: int) -> dict[str, float]:
    """Return the figures of one run, in milliseconds and bytes."""
    metrics, delays = Metrics(), list[float]()
    for number in range(streams):
        change(metrics, number, 0)
    metrics.render()
    changed, unchanged = processor_time(metrics, streams)
    echo = await asyncio.create_subprocess_exec(sys.executable, "-c", _ECHO, stdout=asyncio.subprocess.PIPE)
    port = int(await echo.stdout.readline()) if echo.stdout is not None else 0
    quiet, busy = list[float](), list[float]()
    async with HealthServer(Health(), metrics, HttpSettings(port=0)) as server:
        changing = asyncio.create_task(keep_changing(metrics, streams))
        for took, count in ((quiet, 0), (busy, scrapes)):
            stepping = [asyncio.create_task(keep_stepping(port, took)) for _ in range(4)]
            async with ended_with(watch_loop(delays.extend)):
                delays.clear()
                if count:
                    times, size = await scraped(f"http://127.0.0.1:{server.port}/metrics", count)
                else:
                    await asyncio.sleep(scrapes)
            await cancelled(stepping)
        await cancelled([changing])
    echo.terminate()
    await echo.wait()
    return {
        "bytes": size,
        "processor_ms": changed,
        "processor_unchanged_ms": unchanged,
        "answer_p50_ms": statistics.median(times) * 1000,
        "answer_longest_ms": max(times) * 1000,
        "step_p99_ms": percentile(quiet),
        "step_p99_scraped_ms": percentile(busy),
        "loop_longest_ms": max(delays) * 1000,
    }


async def cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait for their ends."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def percentile(took: Sequence[float]) -> float:
    """Return the 99th percentile in milliseconds."""
    return statistics.quantiles(took, n=100)[-1] * 1000


def main() -> None:
    """Print the figures: medians of the runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="a line of JSON")
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--scrapes", type=int, default=30)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    runs = [asyncio.run(measure(given.streams, given.scrapes)) for _ in range(given.runs)]
    found = {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}
    found = {"streams": given.streams, "scrapes": given.scrapes, "runs": given.runs, **found}
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
