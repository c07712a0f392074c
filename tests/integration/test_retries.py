"""A table that can be read or written no more: every way to look shows why, and it ends by itself."""

import os
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from sluicegate.coordinator.runtime.service import Service
from sluicegate.coordinator.settings.model import Settings
from sluicegate.state_store import StreamView
from sluicegate.state_store.redis_store import RedisStateStore
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.letters import stalls
from tests.integration.orders import sluicegate
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.redis]


async def _get(service: Service, path: str) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{service.http_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await (answer.text() if path == "/metrics" else answer.json())


async def _stream(service: Service) -> Mapping[str, Any]:
    shown: Mapping[str, Any] = (await _get(service, "/status"))[1]["streams"]["flights"]
    return shown


async def _samples(service: Service) -> dict[tuple[str, str], float]:
    """By name and kind of effect."""
    _, text = await _get(service, "/metrics")
    return {
        (sample.name.removeprefix("sluicegate_"), sample.labels.get("effect", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("stream") == "flights" and "outcome" not in sample.labels
    }


async def _view(settings: Settings) -> StreamView | None:
    assert settings.redis is not None
    store = RedisStateStore(settings.redis.url.get_secret_value(), prefix=settings.redis.key_prefix)
    try:
        return await store.read("flights")
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("folder", "kind", "reason"),
    [("manifest", "publish", "manifest"), ("snapshot", "ask", "snapshot")],
)
async def test_a_folder_that_cannot_be_used_is_seen_everywhere(
    place: Place, redis_url: str, impatient: None, folder: str, kind: str, reason: str
) -> None:
    """Nobody may write there, or read: as root, a file in the folder's place is what no permission is."""
    settings = place.settings(redis={"url": redis_url, "key_prefix": place.prefix}, stall_after="2s")
    there, away = Path(place.table) / folder, place.root / "away"
    with capture_logs() as told:
        async with place.job() as job, running(settings) as service:
            await job.register()
            shutil.rmtree(there, ignore_errors=True)
            there.write_text("in the way")
            await job.run_batch([1])

            stalled = await until(lambda: _stream(service), lambda seen: seen["stalled"] is not None)
            failing = {each["effect"]: each for each in stalled["retries"]}
            assert reason in failing[kind]["reason"]
            assert reason in stalled["stalled"]
            assert failing[kind]["failures"] > 1
            reasons = await until(lambda: stalls(job))
            assert reasons[-1] == stalled["stalled"]
            status, ready = await _get(service, "/readyz")
            assert status == 503
            assert any(kind in each and reason in each for each in ready["reasons"])
            metrics = await until(lambda: _samples(service), lambda seen: seen["stream_stalled", ""] == 1)
            assert metrics["effect_retrying_seconds", kind] >= 2
            assert metrics["effect_failures_total", kind] > 1
            view = await until(lambda: _view(settings), lambda seen: bool(seen and seen.stalled))
            assert view is not None
            assert reason in next(each.reason for each in view.retries if each.effect == kind)
            said = await until(lambda: sluicegate(place, "status"), lambda text: "STALLED" in text)
            assert f"RETRYING: {kind}" in said
            assert read_ids(place.table) == [] if folder == "manifest" else True

            os.rename(there, away)
            await job.committed([1])
            await until(
                lambda: _stream(service), lambda seen: (seen["stalled"], seen["retries"]) == (None, [])
            )
            view = await until(lambda: _view(settings), lambda seen: bool(seen and seen.decision == 1))
            assert view is not None
            await until(lambda: _view(settings), lambda seen: bool(seen and not seen.stalled))
            await until(lambda: _get(service, "/readyz"), lambda seen: seen[0] == 200)
            metrics = await until(lambda: _samples(service), lambda seen: seen["stream_stalled", ""] == 0)
            assert ("effect_retrying_seconds", kind) not in metrics
            await job.run_batch([2])
            await job.committed([1, 2])
            assert len(await stalls(job)) == 1
    _assert_throttled([dict(line) for line in told if line.get("effect") == kind], reason)


def _assert_throttled(lines: list[dict[str, Any]], reason: str) -> None:
    """The first failure, then twice as many each time; and once that it is over."""
    tries = [line for line in lines if line["log_level"] == "warning"]
    counts = [line["failures"] for line in tries]
    assert counts[0] == 1
    assert all(after >= 2 * before for before, after in pairwise(counts)), counts
    assert all(reason in line["reason"] for line in tries)
    assert [line["event"] for line in lines if line["log_level"] == "info"] == ["effect fails no more"]
