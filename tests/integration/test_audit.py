"""Who ordered what: orders that a running service obeys, in its log and in the audit."""

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.orders import sluicegate
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
STREAM = ("--stream", "flights")


async def test_orders_are_in_the_log_of_the_service_and_in_the_audit(place: Place) -> None:
    with capture_logs() as told:
        async with place.job() as job, running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            pause = ("stream", "pause", *STREAM, "--by", "alice", "--reason", "the lake is full")
            await sluicegate(place, *pause)
            await job.run_batch([2])
            savepoint = ("stream", "savepoint", *STREAM, "--name", "s1", "--by", "bob")
            command = asyncio.create_task(sluicegate(place, *savepoint))
            await until(lambda: [each for each in told if each.get("by") == "bob"], by=command)
            await sluicegate(place, "stream", "resume", *STREAM, "--by", "night-job")
            await command
            await sluicegate(place, "orphans", "delete", *STREAM, "--by", "carol")
            await until(lambda: [each for each in told if each.get("by") == "carol"])
            shown = json.loads(await sluicegate(place, "audit", *STREAM, "--json"))
    lines = [(each["by"], each["order"], each["effect"]) for each in told if each["event"] == "order"]
    wanted = [
        ("alice", "stream pause", "accepted"),
        ("bob", "stream savepoint", "accepted"),
        ("night-job", "stream resume", "accepted"),
        ("carol", "orphans delete", "noted"),
    ]
    assert lines == wanted
    found = [(each["claim"]["by"], each["claim"]["order"], each["effect"]) for each in shown["orders"]]
    assert found == wanted
    assert shown["orders"][0]["claim"]["reason"] == "the lake is full"
    assert [each["decision"] for each in shown["orders"]] == [1, 1, 1, None]
    assert shown["orders"][1]["outcome"] == "reached"
    without = [each for each in told if each["event"] == "event without effect"]
    assert [each for each in without if each["type"] == "stream.command"] == []
