"""What waits for long stands in the log again before retention takes it, and is committed once."""

from collections.abc import Iterator

import pytest

from sluicegate.coordinator.runtime.service import Service
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.envelope import EventType
from sluicegate.failpoints.points import arm
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import delete_records, read_topic
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

BOTH = ("r1", "r2")


@pytest.fixture
def disarmed() -> Iterator[None]:
    """Ends what a test has armed."""
    yield
    arm("")


def short(settings: Settings) -> Settings:
    """A log that keeps its events for two seconds only, as far as the coordinator knows."""
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"retention": 2.0})})


def low_water(service: Service) -> int:
    """Of the partitions together: only one of them has events."""
    marks: list[int] = [each["low_water"] for each in service.status()["partitions"].values()]
    return max(marks)


async def carried(place: Place) -> int:
    events = await read_topic(place.bootstrap, place.topics.events)
    return sum(event.envelope.type is EventType.LINEAGE_CARRIED for event in events)


async def retained(place: Place, service: Service, beyond: int) -> None:
    """Wait until nothing before the end of the log so far is needed, and let retention take it."""
    await until(lambda: low_water(service), lambda mark: mark >= beyond)
    await delete_records(place.bootstrap, place.topics.events, "flights", low_water(service))


async def length(place: Place) -> int:
    return len(await read_topic(place.bootstrap, place.topics.events))


async def test_what_waits_for_a_region_outlives_its_events(place: Place) -> None:
    settings = short(place.settings())
    async with place.job(regions=BOTH) as job:
        async with running(settings) as service:
            await job.open()
            await job.written(job.write_files([99]))
            await job.run_batch([1], [2])
            await job.run_batch([3])
            await retained(place, service, beyond=await length(place))
        # What is left of the log has only the copies.
        async with (
            running(settings) as service,
            place.job(regions=BOTH, region="r2", lineage="q2.0") as other,
        ):
            await other.open()
            await job.run_batch([4])
            await other.run_batch([5])
            await job.committed([1, 2, 3, 4, 5])
            await until(lambda: service.status()["streams"]["flights"]["stalled"], lambda why: why is None)


@pytest.mark.usefixtures("impatient", "disarmed")
async def test_a_decision_that_cannot_be_published_outlives_its_events(place: Place) -> None:
    settings = short(place.settings())
    arm("publish.before=fail")
    async with place.job() as job:
        async with running(settings) as service:
            await job.open()
            await job.run_batch([1], [2])
            await job.run_batch([3])
            await until(
                lambda: read_topic(place.bootstrap, place.topics.events),
                lambda found: any(event.envelope.type is EventType.CUT_DECIDED for event in found),
            )
            await retained(place, service, beyond=await length(place))
        arm("")
        async with running(settings):
            await job.committed([1, 2, 3])
        assert await carried(place) >= 1
