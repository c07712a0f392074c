"""Batches of a streaming query beside a slow and beside a frozen data node of HDFS, with uploads and without.

    python -m tools.bench.slow_nodes [--batches 34] [--rounds 3] [--copies 3] [--pause 1] [--frozen 40]
        [--seed 1] [--short] [--json]

A cluster has a NameNode and three data nodes, each a process. Hadoop limits each data node to 10 MB/s of
writes, and the slow one to 1 MB/s (`dfs.datanode.data.write.bandwidthPerSec`). It counts in periods of half a
second, so a write of less than 0.5 MB after a pause is not slowed. The data node starts again for another
rate. With three copies of each block, which is the default of HDFS, each file is on the slow node, too.

Each batch has four files of about 0.16 MB, written by four tasks, two at a time. A batch starts every second
at the earliest, so that the slow node can follow. A figure is the time that Spark reports for a batch,
`triggerExecution`. The first two batches of a block are left out: they start processes.

Series are blocks of batches, in a random order in each round. In `frozen, async`, a data node is stopped
(SIGSTOP) for the middle third of each block, and for `--frozen` seconds at most. Uploads may wait meanwhile.
After each block, all rows have to arrive, and each row has to be in the table once. `frozen, sync` has few
batches and no aim: the data node is stopped for `--frozen` seconds, and a query that fails is started again.

Aim: with asynchronous uploads, p99 beside a slow or a frozen node is at most 1.2 times that of healthy nodes.
"""

import argparse
import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sluicegate.cli.local.servers import EmbeddedKafka
from tests.hdfs import DataNode, NameNode, data_nodes
from tools.bench.batches import Bench, Place, Series, make_source, spooling
from tools.bench.common import machine, quantiles, report

DATA_NODES: Final = 3
ROWS: Final = 20_000
"""Rows of each file: about 0.16 MB of random numbers."""
RATE: Final = 10_000_000
"""Bytes for each second of a healthy node; the slow one has a tenth."""
WARM_UP: Final = 2
SYNC_BATCHES: Final = 6
"""Batches of `frozen, sync`."""


class Node:
    """The data node that is slow or frozen in some blocks."""

    def __init__(self, server: DataNode) -> None:
        self._server = server
        self._is_slow = False
        self.freeze, self.thaw = server.suspend, server.resume

    def set_slow(self, is_slow: bool) -> None:
        """Give it the rate of a slow node or of a healthy one, for which it starts again."""
        if is_slow is not self._is_slow:
            self._is_slow = is_slow
            self._server.restart_with(_limited(RATE // 10 if is_slow else RATE))


def _limited(rate: int) -> dict[str, str]:
    return {"dfs.datanode.data.write.bandwidthPerSec": str(rate)}


@dataclass
class Found:
    """Figures of one series."""

    seconds: list[float] = field(default_factory=list)
    longest_wait: float = 0.0
    arrival: float = 0.0
    """Seconds from the end of the batches of a block until all rows were in the table, at most."""
    failures: list[str] = field(default_factory=list)

    @property
    def p99(self) -> float:
        """Return the milliseconds."""
        return quantiles([1000 * each for each in self.seconds])["p99"]


@contextmanager
def freezing(node: Node, limit: float) -> Iterator[Callable[[], None]]:
    """Give a function that stops a node, which continues after `limit` seconds or at the end of the block."""
    timers: list[threading.Timer] = []

    def freeze() -> None:
        node.freeze()
        timers.append(threading.Timer(limit, node.thaw))
        timers[-1].start()

    try:
        yield freeze
    finally:
        for timer in timers:
            timer.cancel()
        node.thaw()


class Campaign:
    """Blocks of all series."""

    def __init__(self, node: Node, queries: Mapping[str, Series], pause: float, frozen: float) -> None:
        """Prepare it. `frozen`: seconds after which a frozen node continues, should batches wait for it."""
        self._node, self._queries, self._pause, self._frozen = node, queries, pause, frozen
        self.found: dict[str, Found] = {}

    def run(self, kind: str, way: str, batches: int) -> None:
        """Run a block beside a healthy, slow or frozen node, and check the table."""
        node = self._node
        node.set_slow(kind == "slow")
        with freezing(node, self._frozen) as freeze:
            at = {batches // 3: freeze, 2 * batches // 3: node.thaw} if kind == "frozen" else {}
            self._block(kind, way, batches, at)

    def run_frozen_sync(self) -> None:
        """Run few batches beside a node that is frozen for some time."""
        self._node.set_slow(False)
        with freezing(self._node, self._frozen) as freeze:
            self._block("frozen", "sync", SYNC_BATCHES, {2: freeze})

    def _block(self, kind: str, way: str, batches: int, at: Mapping[int, Callable[[], None]]) -> None:
        series = self._queries[way]
        block = series.query.run(batches, self._pause, warm_up=WARM_UP, at=at, restarts=kind == "frozen")
        found = self.found.setdefault(f"{kind}, {way}", Found())
        found.seconds += block.seconds
        found.longest_wait = max(found.longest_wait, block.longest_wait)
        found.failures += block.failures
        found.arrival = max(found.arrival, series.await_rows())


@contextmanager
def prepared(batches: int, copies: int) -> Iterator[tuple[Bench, Node]]:
    """Give a cluster, a broker, a source and a session."""
    settings = {"dfs.replication": str(copies)}
    with (
        tempfile.TemporaryDirectory() as name,
        NameNode(settings=settings) as cluster,
        data_nodes(cluster, DATA_NODES, _limited(RATE)) as nodes,
        EmbeddedKafka() as kafka,
    ):
        make_source(Path(name) / "source", batches, ROWS)
        place = f"{cluster.uri}/lake"
        bench = Bench(Path(name), kafka, Place(place, place), ROWS)
        try:
            yield bench, Node(nodes[0])
        finally:
            bench.stop()


def tell(found: Mapping[str, Found], arguments: argparse.Namespace) -> None:
    """Print a line for each series."""
    for series, each in found.items():
        figures: dict[str, Any] = {
            "series": series,
            "batches": len(each.seconds),
            "batch_ms": quantiles([1000 * second for second in each.seconds]),
            "longest_wait_s": round(each.longest_wait, 1),
            "arrival_s": round(each.arrival, 1),
            "failures": len(each.failures),
            "rows": "exact",
            "data_nodes": DATA_NODES,
            "copies": arguments.copies,
            "rounds": arguments.rounds,
        }
        if not series.startswith("healthy"):
            for way in ("async", "sync"):
                figures[f"p99_to_{way}"] = round(each.p99 / found[f"healthy, {way}"].p99, 2)
        if each.failures:
            figures["failure"] = each.failures[0][-500:]
        report({**figures, **machine()}, as_json=arguments.json)


def main() -> None:
    """Run all series."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=34, help="of each block; a third with slow, sync")
    parser.add_argument("--rounds", type=int, default=3, help="blocks of each series")
    parser.add_argument("--copies", type=int, default=3, help="of each block of HDFS (dfs.replication)")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between the starts of two batches")
    parser.add_argument("--frozen", type=float, default=40.0, help="seconds of a frozen node, at most")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the blocks")
    parser.add_argument("--short", action="store_true", help="see that it works: few batches")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.short:
        arguments.batches, arguments.rounds, arguments.frozen = 4, 1, 5.0
    batches, order = arguments.batches, random.Random(arguments.seed)
    blocks = [
        ("healthy", "sync"),
        ("slow", "sync"),
        *((kind, "async") for kind in ("healthy", "slow", "frozen")),
    ]
    most = arguments.rounds * 3 * (batches + WARM_UP) + SYNC_BATCHES + WARM_UP
    with (
        prepared(most, arguments.copies) as (bench, node),
        bench.series({}) as direct,
        bench.series(spooling(bench)) as uploading,
    ):
        campaign = Campaign(node, {"sync": direct, "async": uploading}, arguments.pause, arguments.frozen)
        for _ in range(arguments.rounds):
            for kind, way in order.sample(blocks, len(blocks)):
                campaign.run(kind, way, max(3, batches // 3) if (kind, way) == ("slow", "sync") else batches)
        campaign.run_frozen_sync()
    tell(campaign.found, arguments)


if __name__ == "__main__":
    main()
