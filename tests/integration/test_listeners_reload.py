"""SIGHUP: listeners are added, changed, refused, removed, and come back, while commits go on."""

import pytest

from tests.integration.conftest import Place
from tests.integration.test_listeners import announced
from tests.integration.test_reload import coordinator, job_of
from tests.integration.waiting import until
from tests.integration.webhooks import hook, receiving, table

pytestmark = pytest.mark.kafka

KEPT = "settings not reloaded, those before stay in force"


async def test_listeners_follow_the_settings(place: Place) -> None:
    async with (
        receiving(place.table) as first,
        receiving(place.table) as second,
        coordinator(place, {"flights": ""}) as service,
        job_of(place, "flights") as job,
    ):
        await job.register()
        await job.run_batch([1])
        await until(lambda: announced(job))
        service.reload({"flights": table(hook(place, first))})
        assert (await service.told("settings reloaded"))["changed"] == ["flights"]
        await service.told("stream joined")
        await job.run_batch([2])
        await until(first.decisions, lambda found: found == [2])

        changed = table(hook(place, second))
        service.reload({"flights": changed})
        await service.told("stream joined", 2)
        await job.run_batch([3])
        await until(second.decisions, lambda found: found == [3])

        service.reload({"flights": changed.replace(str(place.root / "secret"), "/nowhere/secret")})
        (problem,) = (await service.told(KEPT))["problems"]
        assert "streams.flights.listeners.hook: secret_file /nowhere/secret cannot be read" in problem
        await job.run_batch([4])
        await until(second.decisions, lambda found: found == [3, 4])

        service.reload({"flights": ""})
        await service.told("stream joined", 3)
        assert (await service.status())["streams"]["flights"]["listeners"] == {}
        await job.run_batch([5])
        await until(lambda: announced(job), lambda found: 5 in found.values())

        service.reload({"flights": changed})
        await until(second.decisions, lambda found: found == [3, 4, 5])
        await job.run_batch([6])
        await until(second.decisions, lambda found: found == [3, 4, 5, 6])
    assert first.decisions() == [2]
    assert first.hidden == second.hidden == []


async def test_a_start_without_a_file_of_a_listener_delays_no_commit(place: Place) -> None:
    """The listener waits for its file, and misses nothing."""
    async with receiving(place.table) as receiver:
        settings = table(hook(place, receiver))
        secret = place.root / "secret"
        lines = secret.read_text()
        secret.unlink()
        async with coordinator(place, {"flights": settings}) as service, job_of(place, "flights") as job:
            await job.register()
            for number in (1, 2):
                await job.run_batch([number])
            await until(lambda: announced(job), lambda found: {1, 2} <= {*found.values()})

            async def waits() -> str:
                status = await service.status()
                own = status["streams"]["flights"]["listeners"]["hook"]
                return str((own["problem"] or {}).get("message", ""))

            await until(waits, lambda text: "secret_file" in text and "looks again within a minute" in text)
            secret.write_text(lines)
            await until(receiver.decisions, lambda found: found == [1, 2])
