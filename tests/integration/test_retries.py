"""A table that cannot be read or written any more: each display shows the reason until it ends."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.problems import Code
from sluicegate.state_store import ConditionView, StreamView
from sluicegate.state_store.redis_store import RedisStateStore
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.letters import conditions, stalls
from tests.integration.orders import sluicegate
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.redis]


async def _get(service: Service, path: str) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{service.http_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await (answer.text() if path == "/metrics" else answer.json())


async def _samples(service: Service) -> dict[tuple[str, str], float]:
    """Return the values by name, with the kind of effect or the code of the condition."""
    _, text = await _get(service, "/metrics")
    return {
        (
            sample.name.removeprefix("sluicegate_"),
            sample.labels.get("effect") or sample.labels.get("code", ""),
        ): sample.value
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

            problem = (await until(lambda: stalls(job)))[-1]
            assert (problem.code, problem.names) == (Code.RETRYING, (kind,))
            assert reason in problem.detail
            await _is_shown(service, settings, kind, reason)
            said = await until(lambda: sluicegate(place, "status"), lambda text: reason in text)
            assert kind in said
            assert read_ids(place.table) == [] if folder == "manifest" else True

            os.rename(there, away)
            await job.committed([1])
            await _is_shown_no_more(service, settings, committed=1)
            await job.run_batch([2])
            await job.committed([1, 2])
            assert len(await stalls(job)) == 1
    _assert_throttled([dict(line) for line in told if line.get("effect") == kind and "code" in line], reason)


async def _is_shown(service: Service, settings: Settings, kind: str, reason: str) -> None:
    """Wait until the conditions, the probe, the metrics and the view have the failure."""
    shown = await until(lambda: _failing(service, kind, "stall"))
    assert reason in shown["arguments"]["detail"]
    status, ready = await _get(service, "/readyz")
    assert status == 503
    assert any(kind in each and reason in each for each in ready["reasons"])
    metrics = await until(
        lambda: _samples(service), lambda seen: ("stream_conditions", Code.RETRYING) in seen
    )
    assert metrics["effect_failures_total", kind] > 1
    view = await until(
        lambda: _view(settings), lambda seen: bool(seen and any(_stalls(x) for x in seen.conditions))
    )
    assert view is not None


async def _is_shown_no_more(service: Service, settings: Settings, *, committed: int) -> None:
    """Wait until none of them has it, and the view has the commit."""
    await until(lambda: not conditions(service))
    view = await until(lambda: _view(settings), lambda seen: bool(seen and seen.committed == committed))
    assert view is not None
    await until(lambda: _view(settings), lambda seen: bool(seen and not seen.conditions))
    await until(lambda: _get(service, "/readyz"), lambda seen: seen[0] == 200)
    await until(lambda: _samples(service), lambda seen: ("stream_conditions", Code.RETRYING) not in seen)


def _assert_throttled(lines: list[dict[str, Any]], reason: str) -> None:
    """Each state of the failure is logged once, and its end."""
    logged = [(line["log_level"], line["event"]) for line in lines]
    assert logged[0] == ("warning", "effect failed, will be tried again")
    assert ("error", "stalled") in logged
    assert logged[-1][0] == "info"
    assert len(logged) == len({*logged}), logged
    assert all(reason in line["reason"] for line in lines if line["log_level"] != "info")


def _failing(service: Service, effect: str, kind: str) -> Mapping[str, Any]:
    """Return the condition of an effect that fails; empty if there is none."""
    found = [each for each in conditions(service) if each["arguments"].get("names") == [effect]]
    return next((each for each in found if (each["code"], each["kind"]) == (Code.RETRYING, kind)), {})


def _stalls(condition: ConditionView) -> bool:
    return (condition.kind, condition.code) == ("stall", Code.RETRYING)
