"""`sluicegate demo --tables`: two tables of one stream, and a reader that compares them while they grow.

Three plain Python drivers write each batch of flights into one table, and its totals by carrier into
another one. A reader that follows the vector always finds sums that agree. One that loads the newest
states, table after table, may not; its disagreements are counted.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import DataScan, Table

from sluicegate.cli.local.errors import RunFailed, TableDamaged
from sluicegate.cli.local.flights import EVENT_TIME, REGIONS, STREAM
from sluicegate.cli.local.tables import DATABASE, DemoTable, load_of
from sluicegate.cli.local.watch import TOPICS
from sluicegate.lakes.registry import adapter
from sluicegate.writer_hooks import OpenCheckpoint, RegionDriver, WriterResult
from sluicegate.writer_hooks.options import TABLE_PREFIX, SinkOptions
from sluicegate.writer_hooks.publisher import encoded
from sluicegate.writer_hooks.region import Attempt, Event
from sluicegate.writer_hooks.writer import write_attempt

TOTALS: Final = "totals"
SCHEMA: Final = pa.schema(
    [("origin", pa.string()), ("carrier", pa.string()), ("flights", pa.int64()), ("distance", pa.int64())]
)
_POLL: Final = 0.05
_STOP_SECONDS: Final = 20.0
_USER: Final = f"sluicegate-{STREAM}"


def totals_of(flights: pa.Table) -> pa.Table:
    """Return the number of flights and their distance by airport and carrier."""
    found = flights.group_by(["origin", "carrier"]).aggregate([("distance", "count"), ("distance", "sum")])
    named = found.rename_columns({"distance_count": "flights", "distance_sum": "distance"})
    return (
        named.select(SCHEMA.names).cast(SCHEMA).sort_by([("origin", "ascending"), ("carrier", "ascending")])
    )


def is_total(found: pa.Table, source: pa.Table) -> bool:
    """True if the sums of the totals, by airport and carrier, are those of the source."""
    names = {"flights_sum": "flights", "distance_sum": "distance"}
    named = found.rename_columns(names).select(SCHEMA.names).cast(SCHEMA)
    order = [("origin", "ascending"), ("carrier", "ascending")]
    return bool(named.sort_by(order).equals(totals_of(source)))


def add_totals(flights: DemoTable) -> DemoTable:
    """Make the table of the totals in the catalog of the flights."""
    place, name = Path(flights.location).with_name(TOTALS), f"{DATABASE}.{TOTALS}"
    with closing(_catalog(flights)) as catalog:
        catalog.create_table(name, SCHEMA, location=place.as_uri())
    options = {**flights.options, "identifier": name}
    return DemoTable(flights.format, str(place), options, load_of(lambda: _catalog(flights), name))


def _catalog(table: DemoTable) -> SqlCatalog:
    return SqlCatalog(table.options["catalog"], uri=table.options["uri"])


# --- the writers ----------------------------------------------------------------------------------


class Drivers:
    """A driver for each region, in a thread of its own, from their start to the closing of their regions."""

    def __init__(self, bootstrap: str, flights: DemoTable, totals: DemoTable) -> None:
        self.finals: dict[str, int | None] = {}
        """Final checkpoint of each closed region."""
        self._bootstrap = bootstrap
        self._flights = flights
        self._totals = totals
        self._threads: list[threading.Thread] = []
        self._errors: dict[str, Exception] = {}
        self._given = threading.Event()
        self._over = threading.Event()

    def start(self, inbox: Callable[[str], Path]) -> None:
        """Start a driver for each region, which reads the files that appear in `inbox(region)`."""
        for region in REGIONS:
            thread = threading.Thread(
                target=self._run, args=(region, inbox(region)), name=region, daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def check(self) -> None:
        """Raise RunFailed if a driver has failed."""
        for region, error in self._errors.items():
            raise RunFailed(f"the driver of {region} ended: {error!r}") from error

    def finish(self) -> None:
        """Let the drivers, which have their last files, close their regions."""
        self._given.set()

    def stop(self) -> None:
        """Stop the drivers that still run."""
        self._over.set()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)

    def _run(self, region: str, folder: Path) -> None:
        try:
            with RegionDriver(self._options(region)) as driver:
                self._write(region, folder, driver)
        except Exception as error:
            self._errors[region] = error

    def _write(self, region: str, folder: Path, driver: RegionDriver) -> None:
        done: set[Path] = set()
        while not self._over.is_set():
            # Read before the folder: what is given before that is in it.
            is_last = self._given.is_set()
            for path in sorted({*folder.glob("*.parquet")} - done):
                rows, checkpoint = pq.read_table(path), driver.begin()
                results = checkpoint.write("flights", rows), write_totals(checkpoint, rows, self._totals)
                driver.complete(checkpoint, results, source_offsets={"file": path.name})
                done.add(path)
            if is_last:
                self.finals[region] = driver.close()
                return
            self._over.wait(_POLL)

    def _options(self, region: str) -> Mapping[str, str]:
        return {
            "stream": STREAM,
            "region": region,
            "regions": ",".join(REGIONS),
            "assignment": "1",
            "bounded": "true",
            # A killed coordinator answers after its restart; the run itself notices that nothing moves.
            "registration.timeout": "forever",
            "format": self._flights.format,
            "table": self._flights.location,
            **{f"{TABLE_PREFIX}{name}": value for name, value in self._flights.options.items()},
            "event.time.column": EVENT_TIME,
            "kafka.bootstrap.servers": self._bootstrap,
            "topic.prefix": TOPICS.prefix,
        }


def write_totals(checkpoint: OpenCheckpoint, rows: pa.Table, table: DemoTable) -> WriterResult:
    """Write the totals of rows as a writer of the further table; the completion publishes their event."""
    sink = SinkOptions.parse(checkpoint.options, located=False)
    attempt = Attempt(checkpoint.incarnation, checkpoint.number, TOTALS)
    ref = adapter(table.format).parse_table(table.location, table.options)
    target = replace(sink.target(), table=ref, event_time_column=None)
    written, events = write_attempt(sink.region, attempt, target, totals_of(rows).to_batches())
    named = [Event(envelope._replace(table=TOTALS), body) for envelope, body in events]
    return WriterResult(attempt, written, tuple(encoded(named)))


# --- the readers ----------------------------------------------------------------------------------


class Sums(NamedTuple):
    """The flights of a table, and their distance."""

    flights: int
    distance: int


@dataclass
class Reads:
    """Results of the readers."""

    vectors: int = 0
    """Reads by the vector."""
    torn: int = 0
    """Reads by the vector that found sums which differ."""
    unaligned: int = 0
    """Reads of newest states that found sums which differ."""


class Reader(threading.Thread):
    """Compares the tables again and again, with the vector and without it."""

    def __init__(self, flights: DemoTable) -> None:
        super().__init__(name="reader", daemon=True)
        self.reads = Reads()
        self._flights = flights
        self._over = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        """Read until `end` is called."""
        try:
            with closing(_catalog(self._flights)) as catalog:
                while not self._over.is_set():
                    self._read(catalog)
        except Exception as error:  # the library raises errors of many types
            self._error = error

    def check(self) -> None:
        """Raise TableDamaged if a table cannot be read."""
        if self._error is not None:
            raise TableDamaged(f"the tables cannot be read ({self._error!r})") from self._error

    def end(self) -> None:
        """Stop reading, and wait for the thread."""
        self._over.set()
        if self.is_alive():
            self.join()

    def _read(self, catalog: SqlCatalog) -> None:
        if (found := at_one_commit(catalog)) is None:
            self._over.wait(_POLL)
            return
        self.reads.vectors += 1
        self.reads.torn += sums_of_flights(found[0]) != sums_of_totals(found[1])
        flights = sums_of_flights(catalog.load_table(f"{DATABASE}.{STREAM}").scan())
        self.reads.unaligned += flights != sums_of_totals(catalog.load_table(f"{DATABASE}.{TOTALS}").scan())


def at_one_commit(catalog: SqlCatalog) -> tuple[DataScan, DataScan] | None:
    """Return scans of both tables as of one commit; None if there is none yet, or if it is gone already."""
    flights = catalog.load_table(f"{DATABASE}.{STREAM}")
    if (text := flights.properties.get(f"sluicegate.cut.{_USER}")) is None:
        return None
    cut = json.loads(text)
    totals = catalog.load_table(f"{DATABASE}.{TOTALS}")
    found = (
        _as_of(flights, cut["decision"], cut["anchor"]),
        _as_of(totals, *cut["tables"].get(TOTALS, (0, None))),
    )
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _as_of(table: Table, decision: int, snapshot: int | None) -> DataScan | None:
    """Return a scan of a table as of a decision; None if it lacks that snapshot, or none is named."""
    if snapshot is None:
        return None if decision else table.scan()
    return table.scan(snapshot_id=snapshot) if table.snapshot_by_id(snapshot) is not None else None


def sums_of_flights(scan: DataScan) -> Sums:
    """Return the sums of a scan of the flights."""
    rows = _columns(scan, "distance")
    return Sums(rows.num_rows, pc.sum(rows["distance"].cast(pa.int64())).as_py() or 0)


def sums_of_totals(scan: DataScan) -> Sums:
    """Return the sums of a scan of the totals."""
    rows = _columns(scan, "flights", "distance")
    return Sums(*(pc.sum(rows[name]).as_py() or 0 for name in ("flights", "distance")))


def _columns(scan: DataScan, *names: str) -> pa.Table:
    return scan.select(*names).to_arrow()


def await_reads(reader: Reader, wanted: int, check: Callable[[], None]) -> None:
    """Wait until the reader has read so many vectors. Raises what `check` raises."""
    while reader.reads.vectors < wanted:
        reader.check()
        check()
        time.sleep(_POLL)
