"""The region runner with real queries and a real coordinator: every row once, whatever fails or changes."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, udf

from sluicegate.writer_hooks.spark.regions import (
    Backoff,
    BaseInUse,
    Division,
    DivisionRefused,
    RegionRunner,
    Source,
    State,
    by_column,
    by_path,
)
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.orders import sluicegate
from tests.integration.sparkjob import SparkThread
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.long]
COLUMNS = "id long, origin string, at timestamp"
QUICK = Backoff(first=0.2, longest=0.5)


@dataclass
class Regions:
    """A source of files, and runners of its regions at one base location."""

    spark: SparkThread
    place: Place
    sink: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    def feed(self, folder: str, *rows: tuple[int, str | None]) -> None:
        """Add a file with these ids and origins to a folder of the source."""
        target = self.place.root / "in" / folder
        target.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"id": n, "origin": at, "at": "2013-01-01T00:00:00Z"}) for n, at in rows]
        draft = self.place.root / "draft"
        draft.write_text("\n".join(lines))
        draft.rename(target / f"{rows[0][0]:06d}.json")

    def source(self, **more: Any) -> Source:
        """Return the source of files; its path is given, or by the division."""
        return Source("json", {"maxFilesPerTrigger": "1", **more.pop("options", {})}, COLUMNS, **more)

    def runner(self, regions: Division, source: Any = None, **more: Any) -> RegionRunner:
        """Return a runner that was not started."""
        how = {"base": self.base, "sink": self.sink, "backoff": QUICK, **more}
        how.setdefault("trigger", {"processingTime": "200 milliseconds"})
        source = source or self.source()
        return RegionRunner(self.spark.session, self.sink_options, source, regions=regions, **how)

    @property
    def base(self) -> str:
        return str(self.place.root / "base")

    @property
    def sink_options(self) -> dict[str, str]:
        """Options of the sink that all regions share."""
        return {
            "stream": "flights",
            "table": self.place.table,
            "kafka.bootstrap.servers": self.place.bootstrap,
            "topic.prefix": self.place.prefix,
            "registration.timeout": "900",
            **self.options,
        }

    async def holds(self, ids: list[int]) -> None:
        """Wait until the table has exactly these ids."""
        await until(lambda: read_ids(self.place.table), lambda found: found == ids)


@asynccontextmanager
async def started(runner: RegionRunner) -> AsyncIterator[RegionRunner]:
    await asyncio.to_thread(runner.start)
    try:
        yield runner
    finally:
        await asyncio.to_thread(runner.stop)


def failing_while(flag: Path) -> Any:
    """Return a function of rows whose tasks fail for EWR while a file exists."""

    @udf("long", useArrow=False)  # type: ignore[untyped-decorator]
    def checked(number: int, origin: str) -> int:
        if origin == "EWR" and flag.exists():
            raise RuntimeError("the test breaks this region")
        return number

    def transform(rows: DataFrame) -> DataFrame:
        return rows.withColumn("id", checked(col("id"), col("origin")))

    return transform


async def test_a_region_that_fails_is_restarted_beside_the_others(place: Place, spark: SparkThread) -> None:
    regions = Regions(spark, place)
    broken = place.root / "broken"
    source = regions.source(options={"path": str(place.root / "in" / "all")}, transform=failing_while(broken))
    division = by_column("origin", {"EWR": ["EWR"], "JFK": ["JFK"]}, rest="other")
    regions.feed("all", (1, "EWR"), (2, "JFK"), (3, "LGA"), (4, None))
    async with running(place.settings(options={"partial": "allow", "alignment_timeout": "300ms"})):
        async with started(regions.runner(division, source)) as runner:
            await regions.holds([1, 2, 3, 4])  # the first cut of an assignment is a full one
            broken.touch()
            regions.feed("all", (5, "EWR"), (6, "JFK"))
            await regions.holds([1, 2, 3, 4, 6])
            shown = await until(runner.status, lambda shown: shown["EWR"].restarts > 1)
            assert "the test breaks this region" in shown["EWR"].last_error
            assert (shown["JFK"].restarts, shown["other"].restarts) == (0, 0)
            broken.unlink()
            await regions.holds([1, 2, 3, 4, 5, 6])
            await until(runner.status, lambda shown: all(each.committed for each in shown.values()))
            with pytest.raises(BaseInUse, match="another runner has the base location"):
                await asyncio.to_thread(regions.runner(division, source).start)
        assert {each.state for each in runner.status().values()} == {State.STOPPED}
        regions.feed("all", (7, "SFO"))
        async with started(regions.runner(division, source)):
            await regions.holds([1, 2, 3, 4, 5, 6, 7])
        other = by_column("origin", {"EWR": ["EWR"]}, rest="other")
        with pytest.raises(DivisionRefused, match="changes from paths to other paths alone"):
            await asyncio.to_thread(regions.runner(other, source).start)


async def test_other_paths_continue_without_a_file_twice(place: Place, spark: SparkThread) -> None:
    """One path stays in its region, one moves to another region, one is new, and one has no file."""
    regions = Regions(spark, place, "foreach-batch")
    folders = {name: str(place.root / "in" / name) for name in ("a", "b", "c")}
    empty = place.root / "in" / "empty"
    empty.mkdir(parents=True)
    old = by_path({"a": folders["a"], "b": folders["b"]})
    new = by_path({"moved": folders["a"], "b": folders["b"], "c": folders["c"], "empty": str(empty)})
    regions.feed("a", (1, "EWR"))
    regions.feed("b", (2, "JFK"))
    async with running(place.settings()):
        async with started(regions.runner(old)):
            await regions.holds([1, 2])
        for number, folder in enumerate(folders):
            regions.feed(folder, (10 + number, "EWR"))
        async with started(regions.runner(new)):
            await regions.holds([1, 2, 10, 11, 12])
        regions.feed("a", (20, "EWR"))
        # Back to the first division: another plan, and the files of both.
        async with started(regions.runner(old)):
            await regions.holds([1, 2, 10, 11, 12, 20])
        regions.feed("b", (21, "EWR"))
        async with started(regions.runner(old)):
            await regions.holds([1, 2, 10, 11, 12, 20, 21])
        # An operator ends the assignment, which is at its end. An old file comes, and all folders become one.
        await sluicegate(place, "assignment", "close", "--stream", "flights", "--wait")
        regions.feed("b", (22, "EWR"))
        os.utime(place.root / "in" / "b" / "000022.json", (0, time.time() - 30 * 86_400))
        everything = regions.source(options={"recursiveFileLookup": "true"})
        merged = by_path({"all": str(place.root / "in")})
        async with started(regions.runner(merged, everything)):
            await regions.holds([1, 2, 10, 11, 12, 20, 21, 22])
    plans = sorted(path.name for path in (place.root / "base" / "plans").iterdir())
    assert plans == ["1.json", "2.json", "3.json", "4.json"]
