"""Coordinators in place of real ones, for orders that wait: they act, or are in the group and do nothing."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiokafka import AIOKafkaConsumer

from sluicegate.events.models import StreamCommand
from sluicegate.kafka.clients import started
from tests.cli.deployment import Deployment
from tests.cli.history import History
from tests.integration.waiting import until, wait_until


def two_regions(deployment: Deployment) -> History:
    """Return a stream with regions EWR and JFK, both with one committed and one completed checkpoint."""
    history = History(deployment).begin()
    for region in ("EWR", "JFK"):
        history.register(region, f"{region}-1", "EWR", "JFK")
        history.complete(region, 0)
    history.decide()
    history.commit()
    for region in ("EWR", "JFK"):
        history.complete(region, 1)
    return history


def commands(deployment: Deployment) -> list[StreamCommand]:
    """Return the orders in the log."""
    return [body for each in deployment.events("flights") if isinstance(body := each.body, StreamCommand)]


@contextmanager
def after_the_order(history: History, act: Callable[[], None]) -> Iterator[None]:
    """Act in place of a coordinator as soon as an order is in the log."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            wait_until(lambda: commands(history.deployment))
            history.read()
            act()
            history.send()
        except BaseException as error:
            failed.append(error)

    history.send()
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()
    if failed:
        raise failed[0]


@contextmanager
def coordinator_in_the_group(deployment: Deployment) -> Iterator[None]:
    """Join the group of the coordinators in a thread, and read nothing."""
    joined, ended = threading.Event(), threading.Event()

    async def work() -> None:
        kafka = deployment.settings.kafka
        topic = kafka.topic_names().events
        async with started(
            AIOKafkaConsumer(topic, bootstrap_servers=kafka.bootstrap_servers, group_id=kafka.group_id)
        ) as consumer:
            await until(consumer.assignment)
            joined.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        wait_until(joined.is_set, by=thread)
        yield
    finally:
        ended.set()
        thread.join()
