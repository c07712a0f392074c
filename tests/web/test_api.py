"""The HTTP interface of a real service: streams, cuts, checkpoints, dead letters, updates."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.web.model import document
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job
from tests.integration.letters import home_of, put_raw
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.seam]


class Client:
    """A client of one coordinator."""

    def __init__(self, session: aiohttp.ClientSession, service: Service) -> None:
        self.session = session
        self.base = f"http://127.0.0.1:{service.http_port}"

    async def get(self, path: str, status: int = 200) -> Any:
        async with self.session.get(f"{self.base}/api/v1{path}") as answer:
            assert answer.status == status, await answer.text()
            return await answer.json()

    @asynccontextmanager
    async def updates(self) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        async with self.session.get(f"{self.base}/api/v1/updates") as answer:
            yield events(answer)


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    """Yield the server-sent events of an answer."""
    kind = ""
    async for line in answer.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


@asynccontextmanager
async def client_of(service: Service) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        yield Client(session, service)


async def commit(job: Job, *ids: int) -> None:
    """Commit rows, and wait for the announcement."""
    before = len([each for each in await job.notifications() if each.type.startswith("commit.")])
    await job.run_batch(ids)
    await until(
        job.notifications,
        lambda found: len([each for each in found if each.type.startswith("commit.")]) > before,
    )


async def test_streams_and_their_cuts_are_served(place: Place) -> None:
    async with place.job() as job, running(place.settings()) as service, client_of(service) as client:
        await job.register()
        await commit(job, 1)
        await commit(job, 2, 3)
        cuts = await until(lambda: client.get("/streams/flights/cuts"), lambda found: len(found["cuts"]) == 2)
        assert [(each["decision"], each["outcome"], each["rows"]) for each in cuts["cuts"]] == [
            (1, "full", 1),
            (2, "full", 2),
        ]
        assert cuts["cuts"][1]["regions"]["r1"]["state"] == "moved"
        assert len((await client.get("/streams/flights/cuts?last=1"))["cuts"]) == 1
        slim = await client.get("/streams/flights/cuts?regions=false")
        assert [(each["rows"], each["regions"]) for each in slim["cuts"]] == [(1, {}), (2, {})]
        assert "from 1 to 50" in (await client.get("/streams/flights/cuts?last=x", 400))["problem"]
        assert (
            "from 1 to 50" in (await client.get(f"/streams/flights/cuts?last={'9' * 5_000}", 400))["problem"]
        )
        found = await client.get("/streams")
        (flights,) = found["streams"]
        assert (flights["stream"], flights["live"], flights["view"]["committed"]) == ("flights", True, 2)
        assert flights["view"]["table"] == place.table
        assert flights["delays"]["commits"] == 2
        assert flights["committed_at"] == cuts["cuts"][1]["time"]
        deployment = found["deployment"]
        assert (deployment["group"], deployment["shared"]) == (place.prefix, False)
        await until(lambda: client.get("/streams"), lambda found: found["deployment"]["problem"] is None)
        again = (await client.get("/streams/flights"))["view"]
        assert again == flights["view"] | {"updated_at": again["updated_at"]}
        assert (await client.get("/streams/trains", 404))["problem"] == "no stream trains is known here"
        await client.get("/streams/trains/cuts", 404)


async def test_checkpoints_that_wait_are_served_with_what_they_lack(place: Place) -> None:
    async with place.job() as job, running(place.settings()) as service, client_of(service) as client:
        await job.register()
        event = await job.written(job.write_files([1], [2]))
        await job.complete(event, "not-arrived")

        def completed(found: Any) -> bool:
            return [each["named"] for each in found["checkpoints"]] == [2]

        (only,) = (await until(lambda: client.get("/streams/flights/checkpoints"), completed))["checkpoints"]
        assert (only["region"], only["arrived"], only["missing"]) == ("r1", 1, ["not-arrived"])
        assert (only["files"], only["rows"], only["attempts"], only["sealed_at"]) == (2, 2, 1, None)
        await client.get("/streams/trains/checkpoints", 404)


async def test_streams_of_another_coordinator_come_from_redis(place: Place, redis_url: str) -> None:
    """The second one has no partition to serve."""
    shared = {"redis": {"url": redis_url, "key_prefix": place.prefix}}
    async with place.job() as job, running(place.settings(**shared)) as first:
        await job.register()
        await commit(job, 1)
        async with running(place.settings(**shared), ready=False) as second:
            await until(lambda: second.http_port, lambda port: port is not None)
            owners = {True: first, False: second}
            served = await until(
                lambda: {owner: bool(each.status()["streams"]) for owner, each in owners.items()},
                lambda found: sorted(found.values()) == [False, True],
            )
            (other,) = [each for owner, each in owners.items() if not served[owner]]
            async with client_of(other) as client:
                found = await until(lambda: client.get("/streams"), lambda found: bool(found["streams"]))
                (flights,) = found["streams"]
                assert (flights["live"], flights["view"]["committed"]) == (False, 1)
                assert found["deployment"]["shared"] is True
                refused = await client.get("/streams/flights/checkpoints", 404)
                assert "this coordinator does not serve the stream flights" in refused["problem"]
                assert flights["own"] is False


async def test_dead_letters_are_served(place: Place) -> None:
    async with place.job() as job, running(place.settings()) as service, client_of(service) as client:
        await job.register()
        await put_raw(job, b"{}", {"ce_type": b"nonsense"}, partition=home_of("flights"))
        found = await until(lambda: client.get("/dead-letters"), lambda found: bool(found["letters"]))
        (letter,) = found["letters"]
        assert (letter["offset"], letter["dealt"]) == (0, None)
        assert letter["reason"]


async def test_updates_begin_with_everything_and_go_on_with_changes(place: Place) -> None:
    async with place.job() as job, running(place.settings()) as service, client_of(service) as client:
        await job.register()
        async with client.updates() as updates:
            kind, first = await anext(updates)
            assert (kind, first["whole"], [each["stream"] for each in first["streams"]]) == (
                "state",
                True,
                ["flights"],
            )
            assert await anext(updates) == ("letters", {"letters": [], "whole": True})
            committing = asyncio.create_task(commit(job, 1))
            seen = dict[str, Any]()
            async for kind, body in updates:
                seen[kind] = body
                streams = seen.get("state", {}).get("streams", [])
                if "cuts" in seen and any(each["view"]["committed"] == 1 for each in streams):
                    break
            await committing
            assert (seen["cuts"]["stream"], seen["cuts"]["cuts"][0]["decision"]) == ("flights", 1)
            assert seen["state"]["whole"] is False


async def test_pages_have_a_strict_policy(place: Place) -> None:
    async with running(place.settings()) as service, client_of(service) as client:
        for path in ("/", "/page.js", "/page.css", "/api/v1/streams"):
            async with client.session.get(client.base + path) as answer:
                assert answer.status == 200
                assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert await client.get("/openapi.json") == document()
