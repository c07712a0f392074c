"""The summary of a commit, on the commits topic and in the history."""

import json
from pathlib import Path

import pytest

from sluicegate.events.models import CommitSummary, CutCommitted, FilesWritten
from sluicegate.events.notifications import Committed
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.job import Job, read_events
from tests.integration.test_limits import die_at
from tests.integration.test_upkeep import commit
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


async def committed(job: Job, count: int) -> list[Committed]:
    """Return what was announced about the commits of a stream, when there are so many."""

    async def read() -> list[Committed]:
        return [each.body for each in await job.notifications() if isinstance(each.body, Committed)]

    return await until(read, lambda found: len(found) == count)


def ordered(summary: CommitSummary) -> bool:
    """True if the times of a commit follow each other; the last is of another clock, on the same machine."""
    first, sealed, decided = summary.first_event, summary.sealed, summary.decided
    assert first is not None
    assert sealed is not None
    assert decided is not None
    return first <= sealed <= decided <= summary.visible


@pytest.mark.seam
@pytest.mark.parametrize("lake", ["paimon", "iceberg", "delta"])
async def test_a_commit_is_announced_with_what_it_added(
    lake: str, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    async with place.job() as job, running(place.settings()):
        await job.register()
        await commit(job, 1)
        written = job.write_files([2], [3, 4])
        await job.complete(await job.written(written))
        first, second = await committed(job, 2)
        assert first.summary is not None
        assert second.summary is not None
        assert first.summary.previous is None or first.summary.previous != first.snapshot
        assert second.summary.previous == first.snapshot
        assert (second.files, second.summary.rows) == (2, 3)
        assert second.summary.bytes == sum(file.size for file in written.files)
        assert second.summary.partitions == len({tuple(file.partition.items()) for file in written.files})
        assert second.summary.touched == touched_by(written)
        assert sizes_in(second.summary) == sizes_by(written)
        assert second.summary.table == place.table
        assert ordered(first.summary)
        assert ordered(second.summary)
        outcomes = [each.body for each in await read_events(place.bootstrap, place.topics.events)]
        logged = [each.summary for each in outcomes if isinstance(each, CutCommitted)]
        assert logged == [first.summary, second.summary]


def touched_by(written: FilesWritten) -> tuple[dict[str, str | None], ...]:
    """Return the partitions that an event names, each once."""
    found = {json.dumps(file.partition, sort_keys=True): file.partition for file in written.files}
    return tuple(found[text] for text in sorted(found))


def sizes_in(summary: CommitSummary) -> dict[str, tuple[int, int]]:
    """Return the number and the bytes of the files of each partition; their sizes fit their classes."""
    assert summary.touched is not None
    assert summary.sizes is not None
    assert all(
        each.below * each.files > each.bytes >= each.below // 2 * each.files
        for sizes in summary.sizes
        for each in sizes
    )
    return {
        json.dumps(values): (sum(each.files for each in sizes), sum(each.bytes for each in sizes))
        for values, sizes in zip(summary.touched, summary.sizes, strict=True)
    }


def sizes_by(written: FilesWritten) -> dict[str, tuple[int, int]]:
    """Return the number and the bytes of the files of each partition of an event."""
    found: dict[str, tuple[int, int]] = {}
    for file in written.files:
        count, size = found.get(name := json.dumps(file.partition, sort_keys=True), (0, 0))
        found[name] = count + 1, size + file.size
    return found


async def test_a_commit_of_a_dead_coordinator_has_the_rows_of_the_log(place: Place) -> None:
    """The next one finds it in the table, and reads the events for the partitions alone."""
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
        written = job.write_files([1], [2, 3])
        await job.complete(await job.written(written))
        await die_at(place, "publish.after")
        async with running(place.settings()):
            (only,) = await committed(job, 1)
    assert only.summary is not None
    assert (only.files, only.summary.rows, only.summary.bytes) == (2, 3, None)
    assert only.summary.touched == touched_by(written)
    assert sizes_in(only.summary) == sizes_by(written)
    assert ordered(only.summary)
