"""Time of a commit that merges manifests, and the highest number of manifests of a table.

    python -m tools.bench.merging [--formats paimon] [--commits 1000] [--rounds 5] [--json]

A table gets so many commits of 10 files each, whose whole history is kept. After each commit the manifests of
its snapshot are counted. A commit with fewer manifests afterwards has merged some. `publish_ms` is the
publication of a commit without a merge, `merging_ms` that of one with a merge, from its first byte to the
last fsync.

`merging_100_ms` is a publication that merges at least 99 manifests. Iceberg has such ones among its commits.
Paimon merges 30 at a time, so a table gets 100 manifests from pypaimon, and then a commit of ours; that
repeats on `rounds` tables. The data files of our commits are links, and are removed after each commit.
"""

import argparse
import gc
import logging
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from pypaimon import CatalogFactory

from sluicegate.coordinator.service.process import calm_collector, keep_freed_memory
from sluicegate.lakes.port import Absent, CommitRequest, Published
from sluicegate.lakes.registry import adapter
from tools.bench.common import machine, quantiles, report, rows
from tools.bench.files import Files
from tools.bench.lakes import Table, make_table

ORIGINS: Final = tuple(f"A{n:02d}" for n in range(10))
FILES: Final = 10
MERGED: Final = 99
"""The 100 manifests before the commit, or one less where a list is merged when it gets its hundredth."""


class Commit(NamedTuple):
    """One commit of ours."""

    publish: float
    """Milliseconds of the publication."""
    before: int
    """Manifests."""
    after: int

    @property
    def merged(self) -> int:
        """Manifests that were replaced by one; 0 without a merge."""
        return max(0, self.before + 2 - self.after) if self.after <= self.before else 0


class Ours:
    """A table, with what commits to it. Use it as a context through `closing`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        lake = adapter(table.lake)
        self._files = Files(table.lake, str(table.folder), table.options, rows(ORIGINS, 0, 20), "at")
        self._committer = lake.open_committer(lake.parse_table(str(table.folder), table.options), "bench")
        state = self._committer.inspect()
        self._identity, self._recorded, self._decision = state.identity, state.head, 0

    def commit(self) -> Commit:
        """Commit new files."""
        self._decision += 1
        digest = f"{self._decision:064x}"
        checked = self._committer.check(list(self._files.events(FILES, self._decision, FILES)))
        answer = self._committer.ask(self._decision, digest, self._identity, self._recorded)
        if not isinstance(answer, Absent):
            raise TypeError(answer)
        before = self._table.manifests
        gc.collect()
        start = time.perf_counter()
        done = self._committer.publish(CommitRequest(self._decision, digest, answer.head, None, checked))
        took = (time.perf_counter() - start) * 1e3
        if not isinstance(done, Published):
            raise TypeError(done)
        self._recorded = done.snapshot
        self._files.drop()
        return Commit(took, before, self._table.manifests)

    def close(self) -> None:
        """Release the table."""
        self._committer.close()


def paimon_merges(folder: Path, rounds: int) -> list[Commit]:
    """Commits of ours to tables that have 100 manifests of pypaimon's."""
    found = []
    for number in range(rounds):
        table = make_table("paimon", folder / str(number))
        opened = CatalogFactory.create({"warehouse": str(folder / str(number))}).get_table("db.t")
        for at in range(100):
            builder = opened.new_batch_write_builder()
            write, commit = builder.new_write(), builder.new_commit()
            write.write_arrow_batch(rows(ORIGINS, at * 10, 1))
            commit.commit(write.prepare_commit())
            write.close()
            commit.close()
        with closing(Ours(table)) as ours:
            found.append(ours.commit())
    return found


APART: Final[Mapping[str, Callable[[Path, int], list[Commit]]]] = {"paimon": paimon_merges}
"""Formats whose ordinary commits merge fewer than 100 manifests."""


def figures(commits: Sequence[Commit], apart: Sequence[Commit]) -> dict[str, Any]:
    """Milliseconds, and manifests."""
    plain = [each.publish for each in commits if not each.merged]
    merging = [each for each in commits if each.merged]
    large = [each.publish for each in (*merging, *apart) if each.merged >= MERGED]
    return {
        "manifests_max": max(each.after for each in commits),
        "merges": len(merging),
        "merged_median": median(each.merged for each in merging) if merging else 0,
        "publish_ms": quantiles(plain),
        "merging_ms": quantiles([each.publish for each in merging]) if merging else None,
        "merges_of_100": len(large),
        "merging_100_ms": quantiles(large) if large else None,
    }


def measure(lake: str, arguments: argparse.Namespace) -> None:
    """Measure one format."""
    before = machine()
    with tempfile.TemporaryDirectory() as name:
        with closing(Ours(make_table(lake, Path(name)))) as ours:
            commits = [ours.commit() for _ in range(arguments.commits)]
        apart = APART[lake](Path(name) / "apart", arguments.rounds) if lake in APART else []
    found = {"format": lake, "commits": len(commits), **figures(commits, apart)}
    report({**found, "before": before, "after": machine()}, as_json=arguments.json)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--formats", default="paimon")
    parser.add_argument("--commits", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    # As the process of the coordinator.
    calm_collector()
    keep_freed_memory()
    for lake in arguments.formats.split(","):
        measure(lake, arguments)


if __name__ == "__main__":
    main()
