"""Record a real run of this release, for the tests of later ones.

python -m tests.upgrades.record VERSION

It starts a Kafka of its own, and writes `tests/upgrades/recorded/VERSION.xz`. Run it before each release.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from sluicegate.embedded import EmbeddedKafka
from sluicegate.events.envelope import EventType, partition_of
from sluicegate.events.models import StreamCommand
from sluicegate.failpoints import points
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, Job, create_table, make_topics, read_records
from tests.integration.waiting import until
from tests.upgrades.recording import FOLDER, Recorded, Recording, fold, in_short, save

STREAMS: Final = ("flights", neighbour("flights", same=True))
"""Two streams on one partition."""
REGIONS: Final = ("r1", "r2")
_POLICY: Final = {"partial": "allow", "alignment_timeout": "300ms", "max_consecutive_fallbacks": 5}


async def commits(job: Job, kind: str, number: int = 1) -> None:
    """Wait until the feed has so many notifications of a kind."""
    await until(job.notifications, lambda seen: sum(each.type == kind for each in seen) >= number, what=kind)


async def live(place: Place, first: Job, second: Job) -> None:
    """Full and partial cuts, fallbacks, a savepoint, a reset, a revert, a removal, and another assignment."""
    for job in (first, second):
        assert (await job.register()).accepted
    await first.run_batch([1], [2])
    await second.run_batch([3])
    await commits(first, "commit.visible")
    for number in (4, 5):
        # The second region lags, and falls back.
        await first.run_batch([number])
        await commits(first, "commit.partially_visible", number - 3)
    await first.send(EventType.STREAM_COMMAND, StreamCommand(command="savepoint", name="before-reset"))
    await first.run_batch([6])
    await second.run_batch([7])
    await commits(first, "savepoint.taken")
    assert (await first.begin("q3")).accepted
    points.arm("publish.before=fail")
    await first.run_batch([8])
    await second.run_batch([9])
    await until(lambda: decisions(place, first.stream), lambda found: found[0] > found[1], what="a decision")
    number = (await decisions(place, first.stream))[0]
    order = StreamCommand(command="revert", decision=number, region="r1")
    await first.send(EventType.STREAM_COMMAND, order)
    points.arm("")
    await commits(first, "decision.reverted")
    assert (await first.begin("q4")).accepted
    await first.run_batch([10])
    await first.close()
    await second.send(
        EventType.STREAM_COMMAND, StreamCommand(command="remove", region="r2", number=0), checkpoint=-1
    )
    await until(lambda: ended(place, first.stream), what="the end of the assignment")
    after = (await decisions(place, first.stream))[0]
    first.regions, first.assignment = ("r1",), 1
    asked = await first.register(probe=True, after=after)
    first.incarnation, first.base, first.previous = "q5", asked.committed, asked.committed
    first.batch = asked.committed.checkpoint + 1 if asked.committed is not None else 0
    assert (await first.register(after=after)).accepted
    await first.run_batch([11])
    await until(lambda: decisions(place, first.stream), lambda found: found[1] > after, what="the last cut")


async def _read(place: Place) -> list[Recorded]:
    topics, found = place.topics, []
    for name in (topics.events, topics.commits, topics.state, topics.dead_letters):
        short = name.removeprefix(f"{place.prefix}.")
        for each in await read_records(place.bootstrap, name):
            place_of = (short, each.partition, each.offset, each.timestamp)
            found.append(Recorded(*place_of, each.key, each.value, list(each.headers)))
    return found


async def decisions(place: Place, stream: str) -> tuple[int, int]:
    """Return the newest decision of a stream, and the newest with an outcome."""
    _, state = fold(await _events(place), stream, partition_of(stream, PARTITIONS))
    return state.decided, state.decided - (state.pending is not None)


async def ended(place: Place, stream: str) -> bool:
    """True if all regions have ended, and the last decision has its outcome."""
    _, state = fold(await _events(place), stream, partition_of(stream, PARTITIONS))
    return not [*state.active()] and state.pending is None


async def _events(place: Place) -> list[Recorded]:
    return sorted(each for each in await _read(place) if each.topic == "events")


async def record(bootstrap: str, root: Path) -> Recording:
    """Let a deployment live, and return everything that it wrote."""
    topics = await make_topics(bootstrap, "recorded")
    place = Place(bootstrap, "recorded", topics, root, create_table(root))
    async with running(place.settings(*STREAMS, options=_POLICY)):
        for stream in STREAMS:
            async with (
                place.job(stream, regions=REGIONS) as first,
                place.job(stream, region="r2", regions=REGIONS, incarnation="q2") as second,
            ):
                await live(place, first, second)
    records = await _read(place)
    events = sorted(each for each in records if each.topic == "events")
    cuts = {
        stream: [in_short(each) for each in fold(events, stream, partition_of(stream, PARTITIONS))[0]]
        for stream in STREAMS
    }
    return Recording(records, cuts)


def main() -> None:
    """Record the release of the argument."""
    (version,) = sys.argv[1:]
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as root:
        recording = asyncio.run(record(kafka.bootstrap, Path(root)))
    path = FOLDER / f"{version}.xz"
    save(recording, path)
    print(f"{path}: {len(recording.records)} records, {path.stat().st_size} bytes, {recording.cuts}")


if __name__ == "__main__":
    main()
