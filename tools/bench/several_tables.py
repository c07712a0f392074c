"""Time from the last event of a checkpoint to its visible decision, by the number of tables in it.

    python -m tools.bench.several_tables [--rounds 30] [--json]

One catalog in SQLite has all tables. A stream has 1, 2, 10 or 100 tables, and its decisions touch all of
them. Of the last stream, further decisions touch the anchor alone, and one further table alone. Each round
makes a decision of each kind, so that a load of the machine meets all alike. A decision has one event of one
file for each touched table. The last event is checked, the tables are looked at, the anchor is asked, and the
decision is published, as a coordinator does it. Time counts from the check to the end of the publication,
without Kafka: what it adds is the same for all. The files are hard links of real ones."""

import argparse
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from sluicegate.events.models import FilesWritten, FurtherTable, KnownTable, TableVersion
from sluicegate.lakes.iceberg.adapter import ADAPTER
from sluicegate.lakes.port import Absent, CommitRequest, Published, TablePart
from tools.bench.common import machine, quantiles, report
from tools.bench.files import Files

SIZES: Final = (1, 2, 10, 100)
_ROWS: Final = pa.record_batch({"id": pa.array(range(20), pa.int64()), "name": ["x" * 20] * 20})


class Stream:
    """The tables of one stream, and its newest decision."""

    def __init__(self, folder: Path, uri: str, tables: Sequence[str]) -> None:
        self.files = {
            name: Files("iceberg", str(folder / "db" / name), {"uri": uri, "identifier": f"db.{name}"}, _ROWS)
            for name in tables
        }
        self.anchor, *further = tables
        table = ADAPTER.parse_table(str(folder / "db" / self.anchor), {"uri": uri})
        wanted = {name: (f"db.{name}", ()) for name in further}
        self.group = ADAPTER.open_group(table, self.anchor, wanted)
        state = self.group.inspect()
        self.identity, self.recorded, self.decision = state.identity, state.head, 0
        self.known: dict[str, KnownTable] = {}
        for name, terms in state.tables.items():
            if not isinstance(terms, FurtherTable):
                raise TypeError(terms)
            self.known[name] = KnownTable(terms=terms)

    def commit(self, touched: Sequence[str]) -> float:
        """Make a decision, and return the milliseconds from its last event on."""
        self.decision += 1
        events = {name: next(self.files[name].events(1, self.decision, 1)) for name in touched}
        *before, last = touched
        checked = {name: self._check(name, events[name]) for name in before}
        known = {name: self.known[name] for name in touched if name != self.anchor}
        digest = f"digest-{self.decision}"
        start = time.perf_counter()
        checked[last] = self._check(last, events[last])
        if known and self.group.trouble(known):
            raise RuntimeError("a table is in trouble")
        answer = self.group.ask_all(
            (self.decision, digest), self.identity, self.recorded, known, left_out=frozenset(), undo=False
        )
        if not isinstance(answer, Absent):
            raise TypeError(answer)
        outcome = self.group.publish(
            CommitRequest(
                self.decision,
                digest,
                answer.head,
                None,
                checked.get(self.anchor, []),
                tables={name: TablePart(each, checked[name]) for name, each in known.items()},
                vector={name: each.newest for name, each in self.known.items()},
            )
        )
        took = (time.perf_counter() - start) * 1000
        if not isinstance(outcome, Published):
            raise TypeError(outcome)
        self.recorded = outcome.snapshot
        for name, snapshot in outcome.tables.items():
            newest = TableVersion(decision=self.decision, snapshot=snapshot)
            self.known[name] = self.known[name].model_copy(update={"newest": newest})
        return took

    def _check(self, name: str, event: FilesWritten) -> list[Any]:
        half = self.group.table(self.known[name].terms) if name != self.anchor else self.group
        return list(half.check([event]))


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    """Make so many decisions of each kind."""
    uri = f"sqlite:///{folder / 'catalog.db'}"
    names = {size: [f"of_{size}_{number}" for number in range(size)] for size in SIZES}
    with closing(SqlCatalog("default", uri=uri, warehouse=f"file://{folder}")) as catalog:
        catalog.create_namespace("db")
        for name in (name for each in names.values() for name in each):
            catalog.create_table(f"db.{name}", _ROWS.schema, location=f"file://{folder}/db/{name}")
    streams = {size: Stream(folder, uri, each) for size, each in names.items()}
    kinds: Mapping[str, tuple[Stream, Sequence[str]]] = {
        **{f"{size} touched": (streams[size], names[size]) for size in SIZES},
        "100, the anchor touched": (streams[100], names[100][:1]),
        "100, another touched": (streams[100], names[100][1:2]),
    }
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds + 2):
        for kind, (stream, touched) in kinds.items():
            found = stream.commit(touched)
            # The first ones import and connect.
            took[kind] += [found] if number > 1 else []
    for stream in streams.values():
        stream.group.close()
    one = quantiles(took["1 touched"])["p50"]
    times = {kind: quantiles(each) for kind, each in took.items()}
    return {
        "rounds": rounds,
        "load": round(os.getloadavg()[0], 1),
        "last_event_to_visible_ms": times,
        "times_one_table": {kind: round(each["p50"] / one, 2) for kind, each in times.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30, help="decisions of each kind that count")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), arguments.rounds)
    report({**found, **machine()}, as_json=arguments.json)


if __name__ == "__main__":
    main()
