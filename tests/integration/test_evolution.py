"""Columns that are added while a real service commits: by a Spark query, and during a publication."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit, when

from sluicegate.events.problems import CauseCode
from sluicegate.failpoints.names import Failpoint
from sluicegate.lakes import storage_local
from sluicegate.lakes.capabilities import evolving
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.iceberg import catalog
from sluicegate.lakes.iceberg.committer import IcebergCommitter
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import CommitRequest, Committer, Publication, Published, Refused
from sluicegate.lakes.registry import adapter
from tests.faults.tables import FORMATS
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

_OPTIONS = {"assignment": "1", "regions": "r1,r2"}
_EVOLVES = _OPTIONS | {"evolve": "add-columns"}
_FILES = 4
_COMMITTERS: Final[dict[str, Any]] = {
    "paimon": PaimonCommitter,
    "iceberg": IcebergCommitter,
    "delta": DeltaCommitter,
}
_OUTDATED = (Refused, CauseCode.CHECKS_OUTDATED)
_OVERTAKEN = (Refused, CauseCode.OTHER_WRITER)
_MADE = (Published, None)


def _code_of(outcome: Publication) -> CauseCode | None:
    cause = None if isinstance(outcome, Published) else outcome.cause
    return cause.code if cause is not None else None


@pytest.fixture(params=["paimon", "iceberg", "delta"])
async def place(request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str, tmp_path: Path) -> Place:
    """Topics, and a partitioned table of a format."""
    return await place_of(str(request.param), kafka_bootstrap, unique, tmp_path)


def noted(job: SparkJob) -> DataFrame:
    """Return a query's rows with one more column; a batch is several tasks, each in a process of its own."""
    reader = job.spark.session.readStream.schema(f"{job.columns}, note string")
    return reader.option("maxFilesPerTrigger", _FILES).json(str(job.source))


async def committed(place: Place, column: str, expected: dict[int, str | None]) -> None:
    """Wait until the table has exactly these rows: values of a column by id."""

    def read() -> list[tuple[int, str | None]]:
        return sorted((row["id"], row.get(column)) for row in FORMATS[place.lake].rows(Path(place.table)))

    await until(lambda: asyncio.to_thread(read), lambda found: found == sorted(expected.items()))


async def refusal(job: SparkJob, rows: DataFrame) -> str:
    """Run a query that fails; return its error."""
    with pytest.raises(StreamingQueryException) as failed:
        await job.run(rows)
    return str(failed.value)


def schemas(place: Place) -> int:
    return FORMATS[place.lake].schemas(Path(place.table))


def data_files(place: Place) -> int:
    found = Path(place.table).rglob("*.parquet")
    return sum("_delta_log" not in path.parts for path in found)


@pytest.mark.seam
@pytest.mark.spark
async def test_rows_with_a_new_column_change_the_table_once_and_only_with_leave(
    place: Place, spark: SparkThread
) -> None:
    settings = place.settings(options={"partial": "allow", "alignment_timeout": "1h"})
    job, other = (SparkJob(spark, place, region, options=dict(_OPTIONS)) for region in ("r1", "r2"))
    async with running(settings):
        job.feed([0])
        other.feed([1])
        await asyncio.gather(job.run(), other.run())
        notes: dict[int, str | None] = {0: None, 1: None}
        await committed(place, "note", notes)

        new = range(2, 2 + _FILES)
        job.feed(*([number] for number in new), note="n")
        rows = await spark.call(lambda: noted(job))
        assert "the table has no column note" in await refusal(job, rows)
        assert (schemas(place), data_files(place)) == (1, 2)

        job.options |= _EVOLVES
        await job.run(rows)
        notes |= dict.fromkeys(new, "n")
        await committed(place, "note", notes)
        assert schemas(place) == 2

        # The other query does not have the column.
        other.feed([10])
        await other.run()
        notes |= {10: None}
        await committed(place, "note", notes)

        job.feed([11], note="m")
        constant = rows.withColumn("kind", lit("k"))
        assert "the new column kind is not nullable" in await refusal(job, constant)
        assert schemas(place) == 2
        await job.run(rows.withColumn("kind", when(col("id").isNotNull(), lit("k"))))
        await committed(place, "kind", dict.fromkeys(notes, None) | {11: "k"})
        await committed(place, "note", notes | {11: "m"})
        assert schemas(place) == 3


def adds_a_column(place: Place) -> Callable[[], None]:
    """Return a function whose first call adds a column to the table."""
    lake = adapter(place.lake)
    table = lake.parse_table(place.table, place.lake_options)
    wider = evolving(lake).read_columns(table).schema.append(pa.field("note", pa.string()))
    due = [wider]

    def act() -> None:
        # The addition passes the places that call this.
        if due:
            evolve(lake, table, due.pop())

    return act


def outcomes_of(place: Place, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> list[Publication]:
    """Return a list that gets the outcome of each publication, before which `act` is called."""
    committer, outcomes = _COMMITTERS[place.lake], list[Publication]()
    real: Callable[[Committer, CommitRequest], Publication] = committer.publish

    def publish(self: Committer, request: CommitRequest) -> Publication:
        act()
        outcomes.append(real(self, request))
        return outcomes[-1]

    monkeypatch.setattr(committer, "publish", publish)
    return outcomes


def at_the_deciding_step(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Call `act` before each step that decides whether a commit is in a table."""

    def hit(point: Failpoint) -> None:
        if point is Failpoint.LAKE_PUT_BEFORE:
            act()

    for module in (storage_local, catalog):
        monkeypatch.setattr(module, "hit", hit)


@pytest.mark.parametrize(
    ("place", "under_way", "expected"),
    [
        ("paimon", False, _OUTDATED),
        ("paimon", True, _MADE),
        ("iceberg", False, _OUTDATED),
        ("iceberg", True, _OVERTAKEN),
        ("delta", False, _OVERTAKEN),
        ("delta", True, _OVERTAKEN),
    ],
    indirect=["place"],
)
async def test_no_commit_is_lost_by_a_change_right_before_it_or_under_way(
    place: Place,
    impatient: None,
    monkeypatch: pytest.MonkeyPatch,
    under_way: bool,
    expected: tuple[type[Publication], CauseCode | None],
) -> None:
    """A change of a Delta table moves its head; of other tables, it makes checks outdated."""
    add = adds_a_column(place)
    async with running(place.settings()), place.job() as job:
        await job.register()
        outcomes = outcomes_of(place, monkeypatch, (lambda: None) if under_way else add)
        if under_way:
            at_the_deciding_step(monkeypatch, add)
        await job.run_batch([1], [2])
        await committed(place, "note", dict.fromkeys([1, 2]))
        await job.run_batch([3])
        await committed(place, "note", dict.fromkeys([1, 2, 3]))
    first, *others = [(type(each), _code_of(each)) for each in outcomes]
    assert first == expected
    # The next publication finds outdated checks, and repeats them at once.
    assert set(others) <= {_OUTDATED, _MADE}
    assert others[-1] == _MADE
    assert schemas(place) == 2
