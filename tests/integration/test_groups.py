"""A second group of coordinators on the same streams."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream import partition
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


def of_group(place: Place, group: str) -> Settings:
    settings = place.settings()
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"group_id": group})})


async def test_a_second_group_waits_until_the_first_has_no_members(place: Place) -> None:
    async with place.job() as job:
        async with running(of_group(place, f"{place.prefix}-other")):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            async with running(place.settings(), ready=False) as second:
                reasons = await until(
                    second.unready, lambda seen: any("is served by" in each for each in seen)
                )
                told = next(each for each in reasons if "is served by" in each)
                assert f"the group {place.prefix}-other (of 1 now)" in told
                assert "stop those" in told
                assert "flights" not in second.status()["streams"]
                await job.run_batch([2])
                await job.committed([1, 2])
        async with running(place.settings()):
            await job.run_batch([3])
            await job.committed([1, 2, 3])


async def test_two_groups_that_began_together_notice_each_other_and_double_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before either has written a record."""

    async def nobody(*_: Any) -> None:
        """They look for each other too early."""

    monkeypatch.setattr(partition, "refuse_other_groups", nobody)
    with capture_logs() as logged:
        async with (
            place.job() as job,
            running(place.settings()) as one,
            running(of_group(place, f"{place.prefix}-other")) as other,
        ):
            await job.register()
            for number in range(1, 8):
                await job.run_batch([number])
                await job.committed(range(1, number + 1))
            await until(lambda: [*one.unready(), *other.unready()])
            seen = [*one.unready(), *other.unready()]
            assert any("decides for its streams, too" in each for each in seen)
    assert any("another group of coordinators decides" in str(line["event"]) for line in logged)
