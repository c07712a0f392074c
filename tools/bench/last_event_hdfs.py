"""Time from the last event of a checkpoint to its visible commit in HDFS, beside the libraries' own commits.

    python -m tools.bench.last_event_hdfs [--formats paimon,iceberg,delta] [--rounds 50] [--warm-up 20]
        [--pause 0.3] [--json]

A cluster of three data nodes has two tables of each format. To one the coordinator commits, as in
tools.bench.last_event: all events but the last have been read, and the time counts from before the last event
is sent. To the other one the format's own library for Python commits as many files, which it has written and
described before: pypaimon, pyiceberg with a catalog in SQLite, deltalake. Its time counts from the call.

Both end when another process sees the commit: the name of the snapshot or of the version, for which it asks
the NameNode each millisecond, or the end of the transaction in the catalog's database. A round is one commit
of each side, in turn. In the end each table must have each row.
"""

import argparse
import asyncio
import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from hdfs_native import Client, WriteOptions
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pypaimon import CatalogFactory
from pypaimon.write.table_commit import StreamTableCommit

from sluicegate.cli.local.servers import EmbeddedKafka
from tests.faults.iceberg_tables import catalog_of
from tests.faults.stores import HDFS, Store, cluster_path, location, opened
from tools.bench.common import machine, quantiles, report, rows
from tools.bench.lakes import Table, Watch, make_table
from tools.bench.last_event import ORIGINS, ROWS, checkpoints

DATA_NODES: Final = 3
FILES: Final = len(ORIGINS)
"""Of a commit: one for each partition."""
_AHEAD: Final = 0.005
"""Seconds in which the other process begins to look."""
Commit = Callable[[], object]
"""Commits files that are there."""


# --- the libraries ------------------------------------------------------------------------------------


@contextmanager
def pypaimon(table: Table) -> Iterator[Callable[[int, pa.Table], Commit]]:
    """Give a function that writes the files of a checkpoint, and returns their commit."""
    catalog = CatalogFactory.create({"warehouse": location(table.folder.parents[1])})
    opened = catalog.get_table(f"db.{table.folder.name}")
    committing = StreamTableCommit(opened, "bare")

    def prepared(number: int, data: pa.Table) -> Commit:
        writing = opened.new_stream_write_builder().new_write()
        writing.write_arrow(data)
        messages = writing.prepare_commit(number)
        writing.close()
        return lambda: committing.commit(messages, number + 1)

    yield prepared


@contextmanager
def pyiceberg(table: Table) -> Iterator[Callable[[int, pa.Table], Commit]]:
    """Do the same with a fast append."""
    with closing(catalog_of(table.folder)) as catalog:
        opened = catalog.load_table(table.options["identifier"])

        def prepared(number: int, data: pa.Table) -> Commit:
            cast = data.cast(opened.schema().as_arrow())
            files = list(_dataframe_to_data_files(opened.metadata, cast, opened.io))

            def commit() -> None:
                with opened.transaction() as change, change.update_snapshot().fast_append() as append:
                    for each in files:
                        append.append_data_file(each)

            return commit

        yield prepared


@contextmanager
def deltalake(table: Table) -> Iterator[Callable[[int, pa.Table], Commit]]:
    """Do the same with a transaction of added files."""
    opened = DeltaTable(location(table.folder))
    address, folder = cluster_path(table.folder) or ("", "")
    client = Client(address)

    def prepared(number: int, data: pa.Table) -> Commit:
        added: list[AddAction | RemoveAction] = []
        for origin in ORIGINS:
            own = data.filter(pa.compute.equal(data["origin"], origin)).drop_columns(["origin"])
            sink = pa.BufferOutputStream()
            pq.write_table(own, sink, compression="zstd")
            content = sink.getvalue().to_pybytes()
            path = f"origin={origin}/{uuid.uuid4()}.parquet"
            with client.create(f"{folder}/{path}", WriteOptions(create_parent=True)) as file:
                file.write(content)
            stats = json.dumps({"numRecords": own.num_rows})
            written = time.time_ns() // 1_000_000
            added.append(AddAction(path, len(content), {"origin": origin}, written, True, stats))
        return lambda: opened.create_write_transaction(added, "append", opened.schema(), ["origin"])

    yield prepared


LIBRARIES: Final = {"paimon": pypaimon, "iceberg": pyiceberg, "delta": deltalake}


# --- the run ------------------------------------------------------------------------------------------


async def measure(
    folder: Path, store: Store, bootstrap: str, lake: str, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Measure one format: as many commits of each side."""
    if store.folder is None:
        raise ValueError("the store has no folder")
    data = pa.Table.from_batches([rows(ORIGINS, 0, ROWS)])
    theirs = make_table(lake, store.folder / lake / "theirs")
    took: dict[str, list[float]] = {"ours": [], "completion": [], "library": []}
    async with checkpoints(folder, bootstrap, lake, FILES, FILES, place=store.folder / lake / "ours") as made:
        with Watch(theirs) as watch, LIBRARIES[lake](theirs) as prepared:
            for number in range(arguments.warm_up + arguments.rounds):
                commit = await asyncio.to_thread(prepared, number, data)
                event, completion = await made.next(arguments.pause)
                await asyncio.sleep(arguments.pause)
                seen = asyncio.create_task(asyncio.to_thread(watch.next))
                await asyncio.sleep(_AHEAD)
                start = time.time_ns()
                # On this thread: nothing else of this process runs beside it.
                commit()
                took["library"].append((await seen - start) / 1e6)
                took["ours"].append(event)
                took["completion"].append(completion)
        made.check()
    wanted = (arguments.warm_up + arguments.rounds) * len(data)
    if theirs.rows != wanted:
        raise RuntimeError(f"the library's table has {theirs.rows} rows instead of {wanted}")
    counted = {name: each[arguments.warm_up :] for name, each in took.items()}
    return {
        "format": lake,
        "files": FILES,
        "rounds": arguments.rounds,
        "last_event_to_visible_ms": quantiles(counted["ours"]),
        "completion_to_visible_ms": quantiles(counted["completion"]),
        "library_ms": quantiles(counted["library"]),
        "ratio": round(median(counted["ours"]) / median(counted["library"]), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--formats", default="paimon,iceberg,delta")
    parser.add_argument("--rounds", type=int, default=50, help="commits of each side that count")
    parser.add_argument("--warm-up", type=int, default=20, help="commits of each side that come first")
    parser.add_argument("--pause", type=float, default=0.3, help="seconds before each commit")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with opened(HDFS, data_nodes=DATA_NODES) as store:
        for lake in arguments.formats.split(","):
            with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
                found = asyncio.run(measure(Path(folder), store, kafka.bootstrap, lake, arguments))
            report({**found, **machine()}, as_json=arguments.json)


if __name__ == "__main__":
    main()
