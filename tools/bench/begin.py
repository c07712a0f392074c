"""A `begin` of an idle region, in round trips to Kafka, beside that of a busy one.

    python -m tools.bench.begin [--rounds 300] [--json]

One process has the drivers of two regions of a stream. In each round both begin a checkpoint and complete it
without rows. The idle one has stated before that it is idle, so its `begin` waits for an acknowledgement. The
busy one never counts as idle. A round trip is one acknowledged append of a record of the same size, by the
client of Kafka alone. The three take turns, so that a machine that slows down favours none. The events of
beginnings are counted in the log.
"""

import argparse
import asyncio
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.events.models import RegionHeartbeat
from sluicegate.kafka.topics import TopicNames
from sluicegate.writer_hooks import RegionDriver
from sluicegate.writer_hooks.publisher import LoopThread
from tools.bench.common import (
    READY_SECONDS,
    STREAM,
    coordinator,
    create_table,
    machine,
    make_topics,
    quantiles,
    read_log,
    report,
)

AIM: Final = 1.5
"""Round trips that a `begin` of an idle region may take."""
_SIZE: Final = 700
"""Bytes of a heartbeat with its headers."""
_REGIONS: Final = ("idle", "busy")
_NEVER: Final = 86_400.0


def options_of(bootstrap: str, topics: TopicNames, table: Path, region: str) -> dict[str, str]:
    """Return the options of a driver."""
    return {
        "stream": STREAM,
        "region": region,
        "regions": ",".join(_REGIONS),
        "assignment": "1",
        "table": str(table),
        "kafka.bootstrap.servers": bootstrap,
        "topic.prefix": topics.prefix,
    }


class RawClient:
    """The client of Kafka alone, in a thread of its own, as drivers have it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._thread = LoopThread("raw")
        self._producer = self._thread.call(self._start(bootstrap), READY_SECONDS)

    async def _start(self, bootstrap: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
        await producer.start()
        return producer

    def append(self) -> None:
        """Append a record that nobody reads, and wait for its acknowledgement."""
        sending = self._producer.send_and_wait(self._topic, bytes(_SIZE), partition=0)
        self._thread.call(sending, READY_SECONDS)

    def stop(self) -> None:
        """Close the client."""
        self._thread.call(self._producer.stop(), READY_SECONDS)
        self._thread.stop()


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the milliseconds that a call takes, and its result."""
    begin = time.perf_counter()
    found = call()
    return (time.perf_counter() - begin) * 1000, found


def wait_until_idle(driver: RegionDriver) -> None:
    """Wait until Kafka has acknowledged that the region is idle."""
    deadline = time.monotonic() + READY_SECONDS
    while not driver._heartbeats._is_idle:
        if time.monotonic() > deadline:
            raise TimeoutError("the driver does not become idle")
        time.sleep(0.001)


def measure(drivers: dict[str, RegionDriver], raw: RawClient, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each `begin` and round trip."""
    found: dict[str, list[float]] = defaultdict(list)
    turns = [*_REGIONS, "round trip"]
    for number in range(rounds):
        wait_until_idle(drivers["idle"])
        for name in turns[number % 3 :] + turns[: number % 3]:
            if name in drivers:
                took, checkpoint = timed(drivers[name].begin)
                drivers[name].complete(checkpoint, [], source_offsets={"next": number})
            else:
                took, _ = timed(raw.append)
            found[name].append(took)
    return found


async def beginnings(bootstrap: str, topics: TopicNames) -> Counter[str]:
    """Return how many events state the beginning of a checkpoint, by region."""
    found: Counter[str] = Counter()
    async for record in read_log(bootstrap, topics):
        if isinstance(record.body, RegionHeartbeat) and record.body.begins is not None:
            found[record.envelope.region] += 1
    return found


def run(rounds: int) -> dict[str, Any]:
    """Return the figures of so many rounds."""
    before = machine()
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka(Path(name) / "kafka") as kafka:
        folder, bootstrap = Path(name), kafka.bootstrap
        topics = asyncio.run(make_topics(bootstrap))
        create_table(folder, "begin")
        table = folder / "db.db" / "begin"
        with coordinator(folder, bootstrap, topics, table):
            drivers = {
                region: RegionDriver(
                    options_of(bootstrap, topics, table, region),
                    idle_after=0.0 if region == "idle" else _NEVER,
                )
                for region in _REGIONS
            }
            raw = RawClient(bootstrap, asyncio.run(make_topics(bootstrap)).events)
            try:
                for each in drivers.values():
                    each.start()
                measure(drivers, raw, max(1, rounds // 10))
                warm = asyncio.run(beginnings(bootstrap, topics))
                found = measure(drivers, raw, rounds)
                counted = asyncio.run(beginnings(bootstrap, topics)) - warm
            finally:
                for each in drivers.values():
                    each.stop()
                raw.stop()
    medians = {region: quantiles(times)["p50"] for region, times in found.items()}
    return {
        **{f"{region} ms": quantiles(times) for region, times in found.items()},
        "round trips of a begin": {
            region: round(medians[region] / medians["round trip"], 2) for region in _REGIONS
        },
        "events of a begin": {region: round(counted[region] / rounds, 2) for region in _REGIONS},
        "machine": [before, machine()],
    }


def main() -> None:
    """Run it. Exits with 1 if an idle region's `begin` takes more than the aim, or a busy one's sends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = run(options.rounds)
    report(figures, as_json=options.json)
    if figures["round trips of a begin"]["idle"] > AIM or figures["events of a begin"]["busy"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
