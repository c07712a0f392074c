"""Checkpoint locations that are not what was committed: they are refused, and the advice ends exact."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.letters import stalls
from tests.integration.orders import invoke, sluicegate
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


class FilesJob(SparkJob):
    """A query that reads all files that are new in one batch, so that offsets do not tell what it read."""

    def rows(self) -> Any:
        reader = self.spark.session.readStream.schema("id long, origin string, at timestamp_ntz")
        return reader.json(str(self.source))

    async def run_all(self) -> None:
        await self.run(await self.spark.call(self.rows))

    def set_back(self, batches: int = 1, *, sources: bool = True) -> None:
        """Lose the newest batches, as a backup from before them has, with or without the sources' logs."""
        newest = max(int(name) for name in self.names("offsets"))
        for number in range(newest - batches + 1, newest + 1):
            for folder in ("offsets", "commits", *(("sources/0",) if sources else ())):
                for name in (str(number), f".{number}.crc"):
                    (self.checkpoint / folder / name).unlink(missing_ok=True)

    def anew(self, *ids: Sequence[int], folder: str = "anew") -> "FilesJob":
        """The query in an empty location, whose source begins with these."""
        job = FilesJob(self.spark, self.place, self.region, folder, self.options)
        job.feed(*ids)
        return job


async def holds(place: Place, *ids: int) -> None:
    """Wait until the table has exactly these rows."""
    await until(lambda: read_ids(place.table), lambda found: found == list(ids))


async def batches(place: Place, job: FilesJob, *groups: Sequence[int]) -> None:
    """Run a batch for each group, and wait until all of them are committed."""
    for group in groups:
        job.feed(group)
        await job.run_all()
    await holds(place, *sorted(n for group in groups for n in group))


def backup(job: FilesJob, root: Path) -> Path:
    return Path(shutil.copytree(job.checkpoint, root / "newest"))


def restore(job: FilesJob, copy: Path) -> None:
    shutil.rmtree(job.checkpoint)
    shutil.copytree(copy, job.checkpoint)


async def refused(job: FilesJob) -> str:
    """Run into a refusal, and return its text."""
    with pytest.raises(StreamingQueryException, match="OpeningRefused") as failure:
        await job.run_all()
    return str(failure.value)


def rewinding(job: FilesJob) -> tuple[str, ...]:
    where = ("--stream", "flights", "--region", job.region, "--checkpoint-location", str(job.checkpoint))
    return ("rewind", *where, "--silence", "10ms")


async def accept(place: Place, job: FilesJob, refusal: str) -> str:
    """Do what a refusal names."""
    found = re.search(r"sluicegate (accept --stream \S+ --region \S+ --lineage [\w.-]+\d)", refusal)
    assert found is not None, refusal
    return await sluicegate(place, *found[1].split())


async def test_a_location_one_batch_behind_is_refused_and_put_back(
    place: Place, spark: SparkThread, tmp_path: Path
) -> None:
    job = FilesJob(spark, place)
    async with running(place.settings()):
        await batches(place, job, [1], [2], [3])
        newest = backup(job, tmp_path)
        job.set_back()
        job.feed([4])
        said = await refused(job)
        assert "checkpoint 2 of lineage" in said
        assert "is committed with other source data" in said
        restore(job, newest)
        await job.run_all()
        job.feed([5])
        await job.run_all()
        await holds(place, 1, 2, 3, 4, 5)
        verified = json.loads(await sluicegate(place, "replay", "--stream", "flights", "--verify", "--json"))
        assert not verified["different"], verified


async def test_a_location_that_is_lost_for_good_is_followed_by_an_empty_one(
    place: Place, spark: SparkThread
) -> None:
    job = FilesJob(spark, place)
    async with running(place.settings()):
        await batches(place, job, [1], [2], [3])
        job.set_back()
        job.feed([4])
        assert "start the query in an empty one" in await refused(job)
        fresh = job.anew([4], [5])
        said = await accept(place, fresh, await refused(fresh))
        assert "committed up to: checkpoint 2 of lineage" in said
        await fresh.run_all()
        await holds(place, 1, 2, 3, 4, 5)


class TwoFoldersJob(FilesJob):
    """A query that reads another folder beside its own."""

    @property
    def beside(self) -> Path:
        return self.root / "beside"

    def rows(self) -> Any:
        reader = self.spark.session.readStream.schema("id long, origin string, at timestamp_ntz")
        return reader.json(str(self.source)).union(reader.json(str(self.beside)))

    def feed_beside(self, *ids: int) -> None:
        self.beside.mkdir(exist_ok=True)
        self.feed(ids)
        name = f"{ids[0]:06d}.json"
        (self.source / name).rename(self.beside / name)


async def test_a_source_log_that_is_behind_is_refused_though_its_source_had_nothing_new(
    place: Place, spark: SparkThread, tmp_path: Path
) -> None:
    job = TwoFoldersJob(spark, place)
    async with running(place.settings()):
        for number in (1, 2):
            job.feed([number])
            job.feed_beside(100 + number)
            await job.run_all()
        job.feed([3])
        await job.run_all()
        await holds(place, 1, 2, 3, 101, 102)
        newest = backup(job, tmp_path)
        for name in ("1", ".1.crc"):
            (job.checkpoint / "sources" / "1" / name).unlink(missing_ok=True)
        job.feed_beside(103)
        job.feed([4])
        said = await refused(job)
        assert "checkpoint 2 of lineage" in said
        assert "is committed with other source data" in said
        restore(job, newest)
        await job.run_all()
        await holds(place, 1, 2, 3, 4, 101, 102, 103)


async def test_a_location_several_batches_behind_is_refused(
    place: Place, spark: SparkThread, tmp_path: Path
) -> None:
    job = FilesJob(spark, place)
    async with running(place.settings()):
        await batches(place, job, [1], [2], [3])
        newest = backup(job, tmp_path)
        job.set_back(2)
        job.feed([4])
        said = await refused(job)
        assert "knows batches up to 1 only" in said
        restore(job, newest)
        job.feed([5])
        await job.run_all()
        await holds(place, 1, 2, 3, 4, 5)


async def test_a_location_behind_that_runs_without_a_coordinator_ends_once_one_answers(
    place: Place, spark: SparkThread, tmp_path: Path
) -> None:
    """Its numbers are below the committed one, so no completion contradicts; only the answer tells."""
    job = FilesJob(spark, place)
    async with running(place.settings()):
        await batches(place, job, [1], [2], [3], [4], [5])
    newest, patience = backup(job, tmp_path), dict(job.options)
    job.set_back(4)
    job.options["opening.timeout"] = "1"  # time: it has given up before the answer is there
    rows = await spark.call(job.rows)
    query = await spark.call(lambda: job.start(rows, processingTime="100 milliseconds"))
    await until(lambda: "1" in job.names("commits") or not query.isActive)
    assert query.isActive, query.exception()
    async with running(place.settings()):
        numbers = iter(range(6, 100_000))

        def has_ended() -> bool:
            job.feed([next(numbers)])
            return not query.isActive

        await until(has_ended)
        assert "Opening" in str(query.exception())
        job.options = patience
        assert "its checkpoint location knows batches up to" in await refused(job)
        restore(job, newest)
        await job.run_all()
        fed = sorted(int(path.stem) for path in job.source.iterdir())
        await holds(place, *fed)


async def test_a_location_that_has_the_same_batch_planned_again_goes_on(
    place: Place, spark: SparkThread
) -> None:
    """Spark died before it noted that the batch is finished; its plan is there."""
    job = FilesJob(spark, place)
    async with running(place.settings()):
        await batches(place, job, [1], [2], [3])
        for name in ("2", ".2.crc"):
            (job.checkpoint / "commits" / name).unlink()
        job.feed([4])
        await job.run_all()
        await holds(place, 1, 2, 3, 4)


async def test_a_rewind_of_a_location_with_another_batch_is_refused(
    place: Place, spark: SparkThread, tmp_path: Path
) -> None:
    job = FilesJob(spark, place)
    async with running(place.settings()):
        await batches(place, job, [1], [2], [3])
        newest = backup(job, tmp_path)
        job.set_back()
        job.feed([4])
        await refused(job)
        marker = (job.checkpoint / "sluicegate" / "lineage.json").read_bytes()
        rewound = await invoke(place, *rewinding(job))
        assert rewound.exit_code == 2
        assert "batch 2 is committed with other source data" in rewound.stderr
        assert (job.checkpoint / "sluicegate" / "lineage.json").read_bytes() == marker
        restore(job, newest)
        assert "is set back to checkpoint 2; 0 batches" in await sluicegate(place, *rewinding(job))
        job.feed([5])
        await job.run_all()
        await holds(place, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("sources", [True, False], ids=["files tell", "offsets tell"])
async def test_what_was_completed_while_no_coordinator_ran_is_seen(
    place: Place, spark: SparkThread, tmp_path: Path, sources: bool
) -> None:
    """The region stalls; what the reason says is done, first with the wrong location in its place."""
    job = FilesJob(spark, place)
    async with running(place.settings()):
        await batches(place, job, [1], [2], [3])
    newest = backup(job, tmp_path)
    job.set_back(sources=sources)
    job.feed([4])
    await job.run_all()
    async with running(place.settings()), place.job() as ear:
        await until(
            lambda: stalls(ear), lambda found: any("put the newer one back first" in x for x in found)
        )
        rewound = await invoke(place, *rewinding(job))
        assert (rewound.exit_code, "Put the newer location back" in rewound.stderr) == (2, True), rewound
        restore(job, newest)
        assert "is set back to checkpoint 2" in await sluicegate(place, *rewinding(job))
        job.feed([5])
        await job.run_all()
        await holds(place, 1, 2, 3, 4, 5)


async def test_a_source_that_begins_elsewhere_is_accepted_in_another_empty_location(
    place: Place, spark: SparkThread
) -> None:
    job = FilesJob(spark, place)
    async with running(place.settings()):
        await batches(place, job, [1], [2], [3])
        shutil.rmtree(job.checkpoint)
        said = await refused(job)
        assert "If it begins elsewhere, start the query in another empty location" in said
        fresh = job.anew([4])
        await accept(place, fresh, await refused(fresh))
        job.checkpoint.rename(job.root / "aside")
        await fresh.run_all()
        await holds(place, 1, 2, 3, 4)
        # Accepted when less was committed: the old location is there again, and its query runs on.
        late = job.anew([6], folder="late")
        await accept(place, late, await refused(late))
        fresh.feed([5])
        await fresh.run_all()
        await holds(place, 1, 2, 3, 4, 5)
        again = await refused(late)
        assert "start the new one in another empty location" in again
        last = job.anew([6], folder="last")
        await accept(place, last, await refused(last))
        await last.run_all()
        await holds(place, 1, 2, 3, 4, 5, 6)


async def test_a_location_behind_what_is_pending_is_set_back_to_what_is_committed(
    place: Place, spark: SparkThread
) -> None:
    job = FilesJob(spark, place)
    async with running(place.settings()):
        await batches(place, job, [1])
        await sluicegate(place, "pause", "--stream", "flights")
        for group in ([2], [3]):
            job.feed(group)
            await job.run_all()
        job.set_back()
        job.feed([4])
        said = await refused(job)
        assert "was completed with other source data" in said
        assert "set the query back to its committed checkpoint: sluicegate rewind" in said
        await sluicegate(place, *rewinding(job))
        await sluicegate(place, "resume", "--stream", "flights")
        job.feed([5])
        await job.run_all()
        await holds(place, 1, 2, 3, 4, 5)


async def test_a_location_that_is_deleted_before_anything_is_committed_begins_again(
    place: Place, spark: SparkThread
) -> None:
    options = {"regions": "r1,r2", "assignment": "1"}
    job, other = (FilesJob(spark, place, name, options=options) for name in ("r1", "r2"))
    async with running(place.settings()):
        for group in ([1], [2], [3]):
            job.feed(group)
            await job.run_all()
        said = await invoke(place, *rewinding(job))
        assert (said.exit_code, "Delete the checkpoint location" in said.stderr) == (2, True), said
        shutil.rmtree(job.checkpoint)
        await job.run_all()
        other.feed([101])
        await other.run_all()
        await holds(place, 1, 2, 3, 101)
        job.feed([4])
        await job.run_all()
        other.feed([102])
        await other.run_all()
        await holds(place, 1, 2, 3, 4, 101, 102)


async def test_a_query_with_state_finishes_its_batch_before_it_is_set_back(
    place: Place, spark: SparkThread
) -> None:
    """Spark died between the completion and its own log."""
    job = FilesJob(spark, place)

    async def run(*ids: int) -> None:
        if ids:
            job.feed(ids)
        await job.run(await spark.call(lambda: job.rows().dropDuplicates(["id"])))

    async with running(place.settings()):
        for number in (1, 2, 3):
            await run(number)
        await holds(place, 1, 2, 3)
        for name in ("2", ".2.crc"):
            (job.checkpoint / "commits" / name).unlink()
        said = await invoke(place, *rewinding(job))
        assert (said.exit_code, "start it once, so that it does, and repeat" in said.stderr) == (2, True), (
            said
        )
        await run()
        assert "is set back to checkpoint 2" in await sluicegate(place, *rewinding(job))
        await run(4)
        await holds(place, 1, 2, 3, 4)
