"""A job's own check, against a coordinator that runs."""

import asyncio

import pytest

from sluicegate.writer_hooks import PreflightFailed, preflight
from tests.integration.conftest import Place
from tests.integration.coordinator import running

pytestmark = pytest.mark.kafka


def options(place: Place) -> dict[str, str]:
    return {
        "stream": "flights",
        "region": "r1",
        "table": place.table,
        "kafka.bootstrap.servers": place.bootstrap,
        "topic.prefix": place.prefix,
        "checkpointLocation": str(place.root / "checkpoint"),
    }


async def test_all_is_well_while_a_coordinator_runs(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    settings = place.settings()
    other = settings.kafka.model_copy(update={"group_id": f"{settings.kafka.group_id}-other"})
    others = settings.model_copy(update={"kafka": other})
    async with running(settings):
        await asyncio.to_thread(preflight, options(place))
    async with running(others):
        await asyncio.to_thread(preflight, options(place))
    assert "could not see" not in caplog.text, "several groups, of which one has members"
    with pytest.raises(PreflightFailed, match="no coordinator reads the topic"):
        await asyncio.to_thread(preflight, options(place), timeout=2)  # time: nobody comes
    assert not (place.root / "checkpoint").exists()
