"""Time of a commit to an Iceberg table in a REST catalog, while the table's history grows.

    python -m tools.bench.ageing [--commits 1000] [--json]

A table gets so many commits of 10 files each, and keeps its whole history. A commit is the check, the
question and the publication. `commit` is its time, in which the server's time is. `client` is the
processor time of our process, without the server. Each pair of figures is the median of the first and of the
last tenth. The server is the reference implementation of Iceberg's Java library, with a database in SQLite.
`tools.bench.visible` has the same figure for the other tables.
"""

import argparse
import gc
import logging
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from sluicegate.coordinator.service.process import calm_collector, keep_freed_memory
from sluicegate.lakes.port import Absent, CommitRequest, Published
from sluicegate.lakes.registry import adapter
from tests.iceberg_java.java import RestCatalogServer
from tools.bench.common import SCHEMA, machine, report, rows
from tools.bench.files import Files

FILES: Final = 10
ORIGINS: Final = tuple(f"A{n:02d}" for n in range(10))
_NAMESPACE: Final = "db"
_TABLE: Final = "t"


@dataclass(frozen=True)
class Served:
    """A table of a REST catalog."""

    uri: str
    """Of the catalog."""
    location: str

    @property
    def options(self) -> dict[str, str]:
        """Options of the adapter."""
        return {"type": "rest", "uri": self.uri, "identifier": f"{_NAMESPACE}.{_TABLE}"}


class Commit(NamedTuple):
    """One commit of ours, in milliseconds."""

    took: float
    client: float


def make_table(server: RestCatalogServer, folder: Path) -> Served:
    """Make a table as wide as tables of events are, partitioned by origin."""
    catalog = RestCatalog("default", uri=server.uri)
    catalog.create_namespace(_NAMESPACE)
    fields = [
        each.with_type(pa.timestamp("us")) if pa.types.is_timestamp(each.type) else each for each in SCHEMA
    ]
    location = (folder / _TABLE).as_uri()
    made = catalog.create_table(f"{_NAMESPACE}.{_TABLE}", pa.schema(fields), location=location)
    with made.update_spec() as update:
        update.add_identity("origin")
    return Served(server.uri, location)


def commits(table: Served, count: int) -> list[Commit]:
    """Commit so often."""
    lake, found = adapter("iceberg"), []
    files = Files("iceberg", table.location, table.options, rows(ORIGINS, 0, 20), "at")
    with closing(lake.open_committer(lake.parse_table(table.location, table.options), "bench")) as committer:
        state = committer.inspect()
        recorded = state.head
        for decision in range(1, count + 1):
            digest = f"{decision:064x}"
            events = list(files.events(FILES, decision, FILES))
            gc.collect()
            start, cpu = time.perf_counter(), time.process_time()
            checked = committer.check(events)
            answer = committer.ask(decision, digest, state.identity, recorded)
            if not isinstance(answer, Absent):
                raise TypeError(answer)
            done = committer.publish(CommitRequest(decision, digest, answer.head, None, checked))
            if not isinstance(done, Published):
                raise TypeError(done)
            found.append(Commit((time.perf_counter() - start) * 1e3, (time.process_time() - cpu) * 1e3))
            recorded = done.snapshot
            files.drop()
    return found


def growth(name: str, values: list[float]) -> dict[str, float]:
    """Return the medians of the first and of the last tenth, and their ratio."""
    tenth = max(1, len(values) // 10)
    first, last = median(values[:tenth]), median(values[-tenth:])
    return {
        f"{name}_first_ms": round(first, 2),
        f"{name}_last_ms": round(last, 2),
        f"{name}_growth": round(last / first, 2),
    }


def measure(count: int) -> dict[str, Any]:
    """Measure, with a catalog of its own."""
    before = machine()
    with tempfile.TemporaryDirectory() as name, RestCatalogServer() as server:
        found = commits(make_table(server, Path(name)), count)
    figures = {
        **growth("commit", [each.took for each in found]),
        **growth("client", [each.client for each in found]),
    }
    return {"catalog": "REST", "commits": count, **figures, "before": before, "after": machine()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--commits", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    # As the process of the coordinator.
    calm_collector()
    keep_freed_memory()
    report(measure(arguments.commits), as_json=arguments.json)


if __name__ == "__main__":
    main()
