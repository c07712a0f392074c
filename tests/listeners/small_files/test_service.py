"""Hints of the real service: real tables of each format, killed coordinators, a reverted cut."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import eq
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.transforms import MonthTransform

from sluicegate.events.models import FileInfo
from sluicegate.events.notifications import Committed, NotificationType, SmallFiles
from sluicegate.events.problems import Code
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import CommitRequest, Publication, Refused
from tests.faults import iceberg_tables, tables
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.job import Job
from tests.integration.letters import stalls
from tests.integration.orders import sluicegate
from tests.integration.waiting import until
from tests.listeners.mark_done.year import Coordinator

pytestmark = pytest.mark.kafka
HINTS = """\
[streams.flights.listeners.small]
type = "small-files"
start = "earliest"
smaller_than = "1MiB"
files = 3
quiet_time = "0 s"
"""
EXAMPLES = Path(__file__).parents[3] / "examples"
MONTHS = ("2013-01", "2013-02", "2013-03")


@dataclass
class Written:
    """A job, and the files of each of its checkpoints."""

    job: Job
    files: list[tuple[FileInfo, ...]] = field(default_factory=list)

    async def send(self, *months: str) -> None:
        """Write the next checkpoint, with one file for each of these months."""
        bodies = [self.job.write_files([len(self.files)], origin=month) for month in months]
        await self.job.complete(*[await self.job.written(body) for body in bodies])
        self.files.append(tuple(file for body in bodies for file in body.files))


async def hints(job: Job) -> dict[str, SmallFiles]:
    """Return the hints on the commits topic by their ids. A repetition must not differ."""
    found: dict[str, SmallFiles] = {}
    for each in await job.notifications():
        if isinstance(each.body, SmallFiles):
            assert found.setdefault(each.id, each.body) == each.body
    return found


async def commits(job: Job) -> list[Committed]:
    """Return the commits, each once."""
    found = {each.id: each.body for each in await job.notifications() if isinstance(each.body, Committed)}
    return list(found.values())


async def reached(job: Job) -> int:
    """Return the newest checkpoint with a commit."""
    return max([each.cut["r1"].checkpoint for each in await commits(job)], default=-1)


def expected(
    files: list[tuple[FileInfo, ...]], made: list[Committed]
) -> list[tuple[str, int, int, int, int]]:
    """Return month, files, bytes, first and newest decision of each hint, as the written files have them."""
    found: list[tuple[str, int, int, int, int]] = []
    count, size, since, done = Counter[str](), Counter[str](), dict[str, int](), 0
    for each in made:
        reached = each.cut["r1"].checkpoint + 1
        for file in [file for checkpoint in files[done:reached] for file in checkpoint]:
            month = str(file.partition["origin"])
            count[month] += 1
            size[month] += file.size
            since.setdefault(month, each.decision)
        done = reached
        for month in sorted(month for month in count if count[month] >= 3):
            found.append((month, count.pop(month), size.pop(month), since.pop(month), each.decision))
    return found


@pytest.mark.parametrize("lake", list(tables.FORMATS))
async def test_each_small_file_is_in_one_hint_through_killed_coordinators(
    lake: str, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    coordinator, chance = Coordinator(place, HINTS), random.Random(lake)
    await coordinator.start()
    try:
        async with place.job() as job:
            await job.register()
            written = Written(job)
            for number in range(24):
                await written.send(*chance.sample(MONTHS, chance.randint(1, 3)))
                if number % 8 == 5:
                    await coordinator.kill()
                    await coordinator.start()
                elif number % 2:
                    await until(lambda: reached(job), partial(eq, number))
            await until(lambda: reached(job), lambda found: found == 23)
            wanted = expected(written.files, await commits(job))
            found = await until(lambda: hints(job), lambda found: len(found) >= len(wanted))
    finally:
        await coordinator.kill()
    assert [
        (each.values["origin"], each.files, each.bytes, each.since, each.decision) for each in found.values()
    ] == wanted
    assert len(wanted) > 3
    assert {(each.format, each.reason, each.smaller_than) for each in found.values()} == {
        (lake, "files", 1 << 20)
    }
    assert all(each.snapshot for each in found.values())


async def test_a_hidden_transform_has_the_values_of_the_spec(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place = await place_of("iceberg", kafka_bootstrap, unique, tmp_path)
    with closing(iceberg_tables.catalog_of(Path(place.table))) as catalog:
        update = catalog.load_table(place.lake_options["identifier"]).update_spec()
        update.remove_field("origin")
        update.add_field("at", MonthTransform(), "at_month")
        update.commit()
    options = {"listeners": {"small": {"type": "small-files", "files": 2, "quiet_time": "0 s"}}}
    async with place.job() as job, running(place.settings(options=options)):
        await job.register()
        written = Written(job)
        await written.send("x", "y")
        (found,) = (await until(lambda: hints(job), bool)).values()
    assert (found.values, found.partition, found.files) == ({"at_month": "1970-01"}, "at_month=1970-01", 2)


async def test_a_quiet_partition_has_its_hint_without_a_further_commit(place: Place) -> None:
    options = {"listeners": {"small": {"type": "small-files", "files": 9, "quiet_time": "1 s"}}}
    async with place.job() as job, running(place.settings(options=options)):
        await job.register()
        written = Written(job)
        await written.send("x", "y")
        (found,) = (await until(lambda: hints(job), bool)).values()
    assert (found.partition, found.files, found.reason, found.since) == ("", 2, "quiet", 1)


async def test_a_reverted_cut_is_in_no_hint(
    place: Place, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = PaimonCommitter.publish

    def refusing(self: PaimonCommitter, request: CommitRequest) -> Publication:
        return Refused("not this one") if request.files and request.decision == 2 else publish(self, request)

    monkeypatch.setattr(PaimonCommitter, "publish", refusing)
    options = {"listeners": {"small": {"type": "small-files", "files": 3, "quiet_time": "0 s"}}}
    async with running(place.settings(options=options)), place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        await job.run_batch([2], [3])
        assert (await until(lambda: stalls(job)))[0].code is Code.COMMIT_REFUSED
        revert = ("commit", "revert", "--stream", "flights", "--decision", "2", "--region", "r1")
        await sluicegate(place, *revert)
        assert (await job.begin("q2")).accepted
        await job.run_batch([4])
        await job.committed([1, 4])
        await job.run_batch([5])
        (found,) = (await until(lambda: hints(job), bool)).values()
        reverted = [each for each in await job.notifications() if each.type is NotificationType.REVERTED]
    assert len(reverted) == 1
    assert (found.files, found.since, found.decision) == (3, 1, 4)


@contextmanager
def compacting(*arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Run the example in a process of its own."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_the_example_compacts_the_partition_of_a_hint_beside_the_coordinator(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place = await place_of("delta", kafka_bootstrap, unique, tmp_path)
    options = {"listeners": {"small": {"type": "small-files", "files": 3, "quiet_time": "0 s"}}}

    def files(month: str) -> int:
        return len(DeltaTable(place.table).file_uris(file_pruning_predicate=[("origin", "=", month)]))

    arguments = [str(EXAMPLES / "compact_delta.py"), place.bootstrap, place.topics.commits, "flights"]
    with compacting(*arguments) as process:
        async with place.job() as job, running(place.settings(options=options)):
            await job.register()
            written = Written(job)
            await written.send("2013-01", "2013-01", "2013-02")
            await until(lambda: reached(job), lambda found: found == 0)
            assert files("2013-01") == 2
            await written.send("2013-01")
            await until(lambda: reached(job), lambda found: found == 1)
            await until(lambda: files("2013-01"), lambda found: found == 1, by=process)
            assert files("2013-02") == 1
            await written.send("2013-01")
            await until(lambda: reached(job), lambda found: found == 2)
            assert files("2013-01") == 2
    assert sorted(DeltaTable(place.table).to_pyarrow_table(columns=["id"])["id"].to_pylist()) == [
        0,
        0,
        0,
        1,
        2,
    ]
