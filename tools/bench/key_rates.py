"""Rows a second of ForeachBatch into a table with keys, and into an append table.

    python -m tools.bench.key_rates [--rounds 5] [--batches 6] [--copies 2] [--rows 336776] [--distinct 0.1]
        [--buckets 4] [--json]

One streaming query at a time, in one session of two cores, as in hook_rates: the flights of the demo,
`--copies` times in each batch, with a column of random keys. A share of them, `--distinct`, is different. The
tables are of Paimon: one of appended rows, one with the key and without `sequence.field`, so that the rows of
a bucket move to one task, and one with it. The first batch of a query, and the first round, do not count.
A rate is the rows of a batch by the median duration of a batch. A ratio is that of the medians of all rounds.
"""

import argparse
import logging
import shutil
import statistics
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pyspark.sql import SparkSession

from sluicegate.cli.local.flights import TOTAL_ROWS, load_flights, spark_schema
from sluicegate.cli.local.servers import EmbeddedKafka
from tools.bench.common import machine, report
from tools.bench.hook_rates import WARM_UP, durations, start, write_batches
from tools.bench.hooks import make_session, served

KEY: Final = "account"
ORDER: Final = "flight_id"
TABLES: Final = ("append", "keys", "ordered")


def with_keys(flights: pa.Table, distinct: float) -> pa.Table:
    """Return rows with a column of keys, of which a share is different."""
    keys = np.random.default_rng(1).integers(0, max(1, round(flights.num_rows * distinct)), flights.num_rows)
    return flights.append_column(pa.field(KEY, pa.int64(), nullable=False), pa.array(keys))


def make_table(kind: str, folder: Path, columns: pa.Schema, buckets: int) -> str:
    """Make a table, and return its location."""
    options = {"bucket": "-1"} if kind == "append" else {"bucket": str(buckets), "write-only": "true"}
    if kind == "ordered":
        options["sequence.field"] = ORDER
    keys = [] if kind == "append" else [KEY]
    catalog = CatalogFactory.create({"warehouse": str(folder)})
    catalog.create_database("db", True)
    schema = Schema.from_pyarrow_schema(columns, primary_keys=keys, options=options)
    catalog.create_table("db.t", schema, False)
    return str(folder / "db.db" / "t")


def one_round(
    spark: SparkSession, root: Path, bootstrap: str, order: Sequence[str], columns: pa.Schema, given: Any
) -> dict[str, list[int]]:
    """Write each table once, with a coordinator of its own; return the durations of batches."""
    found = {}
    for kind in order:
        folder = root / uuid.uuid4().hex
        folder.mkdir()
        made = make_table(kind, folder, columns, given.buckets), dict[str, str]()
        with served("paimon", folder, bootstrap, made) as table:
            schema = f"{spark_schema()}, {KEY} long"
            query = start(spark, root / "in", folder, "foreach", table.sink, schema)
            found[kind] = durations(query, given.batches)
            table.await_commit(given.batches - 1)
        shutil.rmtree(folder)
    return found


def summary(rows: int, rounds: Sequence[Mapping[str, list[int]]]) -> dict[str, Any]:
    """Return the figures. `rows`: those of a batch."""
    medians = {kind: statistics.median(each for one in rounds for each in one[kind]) for kind in TABLES}
    found: dict[str, Any] = {f"{kind}_rows_per_s": round(rows * 1000 / medians[kind]) for kind in TABLES}
    for kind in TABLES[1:]:
        ratios = [statistics.median(one["append"]) / statistics.median(one[kind]) for one in rounds]
        found[f"{kind}_ratio"] = round(medians["append"] / medians[kind], 2)
        found[f"{kind}_ratios"] = [round(each, 2) for each in ratios]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=6, help="of each query; the first does not count")
    parser.add_argument("--copies", type=int, default=2, help="of the flights in a batch")
    parser.add_argument("--rows", type=int, default=TOTAL_ROWS, help="flights of a copy")
    parser.add_argument("--distinct", type=float, default=0.1, help="share of the keys that differ")
    parser.add_argument("--buckets", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    flights = with_keys(pa.concat_tables([load_flights(given.rows)] * given.copies), given.distinct)
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka() as kafka:
        root = Path(name)
        write_batches(root / "in", given.batches, flights)
        spark = make_session(root)
        before, rounds = machine(), []
        for number in range(-WARM_UP, given.rounds):
            turn = number % len(TABLES)
            order = (*TABLES[turn:], *TABLES[:turn])
            found = one_round(spark, root, kafka.bootstrap, order, flights.schema, given)
            if number >= 0:
                rounds.append(found)
        report(
            {
                "rows": flights.num_rows,
                "distinct": given.distinct,
                "buckets": given.buckets,
                **summary(flights.num_rows, rounds),
                "before": before,
                "after": machine(),
            },
            as_json=given.json,
        )
        spark.stop()


if __name__ == "__main__":
    main()
