"""A batch that is long, after a pause of its query: what other regions commit does not pass its rows."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sluicegate.coordinator.core.state_record import StateRecord, decode_record
from sluicegate.coordinator.observe.view import committed_decision
from sluicegate.coordinator.service.service import Service
from sluicegate.events.envelope import EventType
from sluicegate.events.models import RegionHeartbeat
from sluicegate.events.notifications import Committed
from tests.faults import tables
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.gate import HELD, Gate, gate_in
from tests.integration.job import Job, read_events, read_records
from tests.integration.orders import invoke
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until
from tests.listeners.mark_done.policies import at
from tests.listeners.mark_done.year import marks
from tests.listeners.tags.test_service import expected, tags

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

REGIONS = ("r1", "r2")
LISTENERS: dict[str, Any] = {
    "months": {
        "type": "mark-done",
        "actions": ["mark-event"],
        "timestamp_pattern": "$origin-01",
        "interval": "1 month",
    },
    "ends": {"type": "tags", "period": "monthly"},
}
OPTIONS = {
    "partial": "allow",
    "alignment_timeout": "300ms",
    "max_consecutive_fallbacks": 1000,
    "listeners": {name: {**own, "start": "earliest"} for name, own in LISTENERS.items()},
}


@dataclass
class Regions:
    """A region of Spark, a region without Spark, and what a reader is told."""

    place: Place
    service: Service
    spark: SparkJob
    other: Job

    async def go_on(self, month: str, watermark: str, late: RegionHeartbeat | None = None) -> int:
        """Commit a row of the other region, with its watermark; return the decision.

        The listeners and `wait` know of the commit on return. `late` is a heartbeat of Spark's region that is
        in the log before the completion.
        """
        number = self.other.batch
        event = await self.other.written(self.other.write_files([number + 1], origin=month))
        if late is not None:
            async with self.place.job(region="r1", incarnation=self.spark.incarnation()) as region:
                await region.send(EventType.REGION_HEARTBEAT, late)
        await self.other.complete(event, watermark=at(watermark))
        return await self.decision("r2", number)

    async def decision(self, region: str, checkpoint: int) -> int:
        """Wait until a checkpoint is committed and told to all; return the decision."""

        async def including() -> list[int]:
            return [
                each.decision
                for each in await self.commits()
                if region in each.cut and each.cut[region].checkpoint >= checkpoint
            ]

        first = (await until(including))[0]
        await until(self.heard, lambda found: min(found) >= first)
        await until(self.recorded, lambda found: found >= first)
        return first

    async def recorded(self) -> int:
        """Return the committed decision of the newest state record, which `wait` reads."""
        records = await read_records(self.place.bootstrap, self.place.topics.state)
        found = decode_record("flights", [each.value for each in records if each.key == b"flights"][-1])
        assert isinstance(found, StateRecord)
        return committed_decision(found.state)

    async def commits(self) -> list[Committed]:
        return [each.body for each in await self.other.notifications() if isinstance(each.body, Committed)]

    def shown(self) -> dict[str, Any]:
        return dict(self.service.status()["streams"]["flights"])

    def heard(self) -> list[int]:
        """Return the decision of each listener, -1 for none."""
        found = [self.shown()["listeners"].get(name, {}) for name in LISTENERS]
        return [-1 if (decision := each.get("decision")) is None else decision for each in found]

    async def is_reached(self, time: str) -> bool:
        """Return what `wait` says at once."""
        arguments = ("wait", "--stream", "flights", "--watermark", time, "--timeout", "1ms", "--json")
        said = await invoke(self.place, *arguments)
        found = json.loads(said.stdout)
        assert (said.exit_code == 0) == found["reached"]
        assert found["watermark"] == self.shown()["watermark"]
        return bool(found["reached"])

    async def beats(self) -> list[RegionHeartbeat]:
        """Return the heartbeats of Spark's region."""
        found = await read_events(self.place.bootstrap, self.place.topics.events)
        return [
            each.body
            for each in found
            if isinstance(each.body, RegionHeartbeat) and each.envelope.region == "r1"
        ]

    def has_row(self) -> bool:
        """Return True if the table has the row of the long batch."""
        table = Path(self.place.table)
        return any(row["id"] == HELD for row in tables.kind_of(table).rows(table))

    async def marked(self) -> dict[str, int]:
        """Return the months that are marked, each with the newest decision that has rows of it."""
        return {str(each.values["origin"]): each.decision for each in await marks(self.other)}


@asynccontextmanager
async def two_regions(
    place: Place, spark: SparkThread, gate: Gate, *, foreach: bool
) -> AsyncIterator[Regions]:
    more = {"regions": ",".join(REGIONS), "assignment": "1", "event.time.column": "at"}
    job = SparkJob(spark, place, foreach=foreach, options=more)
    job.feed([0], origin="2013-01", at="2013-01-05T00:00:00Z")

    def start() -> Any:
        reader = spark.session.readStream.schema(job.columns).option("maxFilesPerTrigger", 1)
        return job.start(gate.hold(reader.json(str(job.source))), processingTime="100 milliseconds")

    async with (
        running(place.settings(options=OPTIONS)) as service,
        place.job(region="r2", regions=REGIONS, incarnation="q2", assignment=1) as other,
    ):
        assert (await other.register()).accepted
        query = await spark.call(start)
        try:
            yield Regions(place, service, job, other)
        finally:
            gate.open()
            await spark.call(query.stop)
            await spark.call(query.awaitTermination)


@pytest.mark.parametrize(
    ("lake", "foreach"),
    [
        pytest.param("paimon", True, id="foreach-batch"),
        pytest.param("paimon", False, id="data-source"),
        pytest.param("iceberg", True, id="foreach-batch-iceberg", marks=pytest.mark.matrix),
        pytest.param("iceberg", False, id="data-source-iceberg", marks=pytest.mark.matrix),
    ],
)
async def test_nothing_passes_the_rows_of_a_long_batch_after_a_pause(
    lake: str, foreach: bool, kafka_bootstrap: str, unique: str, tmp_path: Path, spark: SparkThread
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    with gate_in(tmp_path) as gate:
        async with two_regions(place, spark, gate, foreach=foreach) as found:
            # The first commit has both regions. Then Spark's one is idle, and the other one goes on alone.
            # A query without a watermark gives the stream none while it is active.
            await found.go_on("2013-01", "2013-01-06")
            await until(lambda: found.shown()["regions"]["r1"]["idle"])
            first = await found.go_on("2013-01", "2013-01-20")
            assert found.shown()["watermark"] == at("2013-01-20")
            idle = [each for each in await found.beats() if each.idle][-1]
            # The batch has its first row, and ends when the test lets it.
            found.spark.feed([HELD], origin="2013-01", at="2013-01-25T00:00:00Z")
            await until(gate.began.exists)
            await found.go_on("2013-03", "2013-03-15", idle)
            seen = len(await found.beats())
            await until(found.beats, lambda beats: len(beats) >= seen + 2)
            await found.go_on("2013-03", "2013-04-15", idle)
            assert not found.shown()["regions"]["r1"]["idle"]
            assert (await found.commits())[-1].watermark == at("2013-01-20")
            assert not await found.is_reached("2013-01-25")
            assert await found.marked() == {}
            assert tags(place) == expected(place, {"2012-12": first})
            assert not found.has_row()
            gate.open()
            batch = await found.decision("r1", 1)
            assert found.shown()["watermark"] == at("2013-01-20")
            assert await found.marked() == {}
            await until(lambda: found.shown()["regions"]["r1"]["idle"])
            last = await found.go_on("2013-05", "2013-05-15")
            assert await found.is_reached("2013-05-15")
            assert (await found.marked())["2013-01"] == batch
            assert tags(place) == expected(place, {"2012-12": first, "2013-04": last})
            assert found.has_row()
