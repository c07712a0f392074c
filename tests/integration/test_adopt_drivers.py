"""A driver that goes on after its stream was adopted is told so, with the way to continue."""

import pytest

from sluicegate.writer_hooks import AsyncRegionDriver, RegionReplaced
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.orders import invoke_here
from tests.integration.test_adopt import ADOPT, lose_topics
from tests.integration.test_python_driver import options_of, put
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


async def adopt(place: Place) -> None:
    """Lose all topics, and continue from the table."""
    await lose_topics(place)
    adopted = await invoke_here(place, *ADOPT)
    assert adopted.exit_code == 0, adopted.output


async def test_a_plain_driver_is_told(place: Place) -> None:
    driver = AsyncRegionDriver(options_of(place), heartbeat_interval=0.2)
    async with running(place.settings()):
        await driver.start()
        await driver.await_commit(await put(driver, 1))
    await adopt(place)

    async def told() -> str | None:
        try:
            await driver.give_up(await driver.begin())
        except RegionReplaced as error:
            return str(error)
        return None

    async with running(place.settings()):
        await put(driver, 2)
        text = await until(told)
        assert text is not None
        assert "A writer without Spark registers a new incarnation at the committed position" in text
        await driver.stop()
        async with AsyncRegionDriver(options_of(place)) as following:
            assert following.committed is not None
            assert following.committed.number == 0
            await following.await_commit(await put(following, 2))
    assert read_ids(place.table) == [1, 2]
