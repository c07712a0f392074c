"""Service: a member of the consumer group, with its assignments, its timers and its shutdown.

Two watches stand beside it: one asks every few seconds if Kafka answers, one measures the delay of the
event loop."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from itertools import count
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

from sluicegate.coordinator.listeners.host import ListenerHost
from sluicegate.coordinator.observe.metrics import Metrics
from sluicegate.coordinator.service.connections import FORBIDDEN, Rebalances, open_consumer, open_links
from sluicegate.coordinator.service.janitor import Janitor
from sluicegate.coordinator.service.members import KeyWatch, LocalMembership, watch_members
from sluicegate.coordinator.service.process import Collector
from sluicegate.coordinator.service.startup import (
    absent,
    load_adapters,
    make_store,
    table_problems,
    wait_for_topics,
)
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.settings.reload import plan_reload, read_settings
from sluicegate.coordinator.stream.links import Links
from sluicegate.coordinator.stream.other_groups import OwnedElsewhere
from sluicegate.coordinator.stream.partition import PartitionRunner
from sluicegate.coordinator.stream.retention import Retention
from sluicegate.coordinator.stream.runner import StreamRunner
from sluicegate.coordinator.tasks import end, ended_with
from sluicegate.coordinator.web.http import Access, HealthServer
from sluicegate.coordinator.web.outages import Silence
from sluicegate.coordinator.web.page import Page
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit, reach
from sluicegate.kafka.bodies import BodyUnavailable
from sluicegate.kafka.clients import spread
from sluicegate.kafka.internals import positions, sender_ended
from sluicegate.kafka.outages import KAFKA
from sluicegate.kafka.producer import SessionProducer
from sluicegate.kafka.reading import Reading, read_batches
from sluicegate.kafka.topics import TopicNames
from sluicegate.lakes.drafts import COORDINATOR
from sluicegate.state_store import StateStore

# The watch of Kafka: it asks every few seconds, and keeps the time of the last answer.

INTERVAL: Final = 3.0
"""Seconds between two looks, and for which an answer is awaited."""
_AWAY: Final = "Kafka does not answer: "


class KafkaWatch:
    """The last look at Kafka."""

    def __init__(self, events: str) -> None:
        """`events` is the name of the events topic."""
        self.away: str | None = None
        """Reason why nothing can be read during a session; None: there is none."""
        self._events = events
        self._answered = _now()

    async def run(
        self,
        producer: SessionProducer,
        consumer: AIOKafkaConsumer,
        runners: Callable[[], Sequence[PartitionRunner]],
    ) -> None:
        """Check that Kafka answers, until cancelled. Raises KafkaError if the producer has died."""
        self._answered = _now()
        while True:
            await asyncio.sleep(INTERVAL)
            if sender_ended(producer):
                raise KafkaError("the producer's sender has ended")
            try:
                async with asyncio.timeout(INTERVAL):
                    self.away = await self._lacks(consumer, runners())
                KAFKA.answered()
                self._answered = _now()
            except (KafkaError, TimeoutError) as error:
                KAFKA.trouble(repr(error))
                detail = (
                    f"no answer within {INTERVAL:g} s" if isinstance(error, TimeoutError) else repr(error)
                )
                self.away = f"{_AWAY}{detail}"

    def silence(self, trouble: str | None) -> Silence | None:
        """Return why nothing is read; `trouble` is the reason for which there is no session."""
        detail = self.away or trouble
        return None if detail is None else Silence(detail.removeprefix(_AWAY), self._answered)

    async def _lacks(self, consumer: AIOKafkaConsumer, runners: Sequence[PartitionRunner]) -> str | None:
        """Return the reason why nothing can be read although Kafka answers; None if there is none.

        Raises KafkaError or TimeoutError if Kafka does not answer.
        """
        started = [each for each in runners if each.started]
        if started:
            await started[0].end_offset()
            return None
        return None if self._events in await consumer.topics() else absent(self._events)


def _now() -> int:
    return time.time_ns() // 1_000_000


# Gauges, set every second, and the delay of the event loop.

MEASURING_INTERVAL: Final = 0.1
"""Seconds between two due times."""
_MOST: Final = 600
"""Due times of one turn that are reported, the oldest first; a frozen process would have any number."""


async def watch_loop(late: Callable[[Sequence[float]], None], interval: float = MEASURING_INTERVAL) -> None:
    """Report the delays of timers that are due at fixed times, in seconds, until cancelled.

    A timer that starts again after each run would meet a long turn once, as if that delayed one event.
    Here a turn of a second delays the ten timers that became due in it, as it delays other events.
    """
    loop = asyncio.get_running_loop()
    due = loop.time() + interval
    while True:
        await asyncio.sleep(due - loop.time())
        # A loop runs a timer up to one tick of its clock before it is due.
        delay = max(0.0, loop.time() - due)
        met = 1 + int(delay / interval)
        late([delay - number * interval for number in range(min(met, _MOST))])
        due += met * interval


async def measure(links: Links, runners: Iterable[PartitionRunner], *, kafka_up: bool) -> None:
    """Set the gauges of the process and of its partitions."""
    metrics = links.metrics
    started = [each for each in runners if each.started]
    for each in started:
        await each.measure(time.time_ns() // 1_000_000)
    metrics.bodies_held.set(links.budget.held)
    metrics.bodies_limit.set(links.budget.most)
    metrics.calls_stuck.set(links.threads.stuck())
    metrics.longest_call.set(links.threads.longest())
    metrics.partitions_owned.set(len(started))
    metrics.partitions.set(links.partitions.events)
    metrics.kafka_up.set(kafka_up)


# Service: a member of the consumer group, with its assignments, its timers and its shutdown.

log = structlog.get_logger(__name__)

TICK = 0.1
"""Seconds between two timer ticks."""
GRACE = 10.0
"""Seconds for running effects at a graceful stop."""
LAST_WORDS = 3.0
"""Seconds for the last state records and offsets after GRACE."""
MOST_RECORDS = 5_000
"""Maximum number of records in one batch, so that the event loop gets to other work."""
ALIVE_LIMIT = 30.0
VIEW_INTERVAL = 10.0
RELEASE_INTERVAL = 5.0
RETRY = 1.0
NOT_STARTED = "not started yet"


class Service:
    """One coordinator process."""

    def __init__(self, settings: Settings, load: Callable[[], Settings] | None = None) -> None:
        """Make a service; `load` reads the settings again for a reload and raises SettingsError."""
        self._settings = settings
        self._load = load
        self._reload = asyncio.Event()
        self._topics = TopicNames(settings.kafka.topic_prefix)
        self._metrics = Metrics()
        self._runners: dict[int, PartitionRunner] = {}
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._epoch = 0
        self._collector = Collector()
        self._ticked = time.monotonic()
        self._trouble: str | None = NOT_STARTED
        self._kafka = KafkaWatch(self._topics.events)
        self._keys = KeyWatch(settings.kafka, self._metrics)
        self._consumer: AIOKafkaConsumer | None = None
        self._links: Links | None = None
        self.http_port: int | None = None
        self._page = Page(settings, self._shown_streams, self._kafka_silence, make_store)

    def _count_delays(self, delays: Sequence[float]) -> None:
        for delay in delays:
            self._metrics.loop_lag.observe(delay)

    # --- life -------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises TopicError if the topics are missing or wrong.

        After a fatal error of a connection, all connections are replaced. Only missing permissions end the
        service.
        """
        http = self._settings.http
        # Importing a table format takes about a second; meanwhile Kafka can be contacted.
        loading = asyncio.create_task(load_adapters(self._settings))
        async with (
            ended_with(watch_loop(self._count_delays)),
            HealthServer(self, self._metrics, http, self._page.add_to) as server,
            ended_with(self._reload_when_asked(server.access)),
            ended_with(self._page.run()),
        ):
            self.http_port = server.port
            log.info("listening", host=http.host, port=server.port, coordinator=COORDINATOR)
            while not stop.is_set():
                try:
                    await self._session(stop)
                except FORBIDDEN:
                    raise
                except KafkaError as error:
                    self._trouble = f"the connection to Kafka failed and is opened again: {error!r}"
                    log.warning("session failed, another one follows", error=repr(error))
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), spread(RETRY))
        # The streams of a format that cannot be imported report the error.
        await asyncio.gather(loading, return_exceptions=True)

    async def _session(self, stop: asyncio.Event) -> None:
        """Serve with one set of connections. Raises KafkaError if they fail, TopicError."""
        async with AsyncExitStack() as stack:
            stopping = asyncio.create_task(stop.wait())
            stack.callback(stopping.cancel)
            opening = asyncio.create_task(self._open(stack))
            await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                await end([opening])
                return
            links, consumer, membership = opening.result()
            consumer.subscribe([links.topics.events], listener=Rebalances(self.revoke, self.assign))
            loops = (
                self._consume(consumer),
                links.dead_letters.run(),
                links.producer.watch(),
                self._tick(links),
                *([self._keep_views(links.store)] if links.store is not None else []),
                self._release(),
                Retention(links).run(lambda: list(self._runners.values())),
                self._kafka.run(links.producer, consumer, lambda: list(self._runners.values())),
                ListenerHost(links, self._own_streams).run(),
                Janitor(lambda: self._settings, self._ready_streams).run(),
                watch_members(self._settings.kafka, membership),
                self._keys.run(),
            )
            tasks = [asyncio.create_task(loop) for loop in loops]
            await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            await end(tasks)
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            failures = [outcome for outcome in ended if isinstance(outcome, Exception)]
            # After a failure the connections may not work, so running effects get no time.
            await self._wind_up(0.0 if failures else GRACE)
            if failures:
                raise failures[0]

    async def _open(self, stack: AsyncExitStack) -> tuple[Links, AIOKafkaConsumer, LocalMembership]:
        """Wait for Kafka and connect. Raises KafkaError, TopicsRefused."""
        counts = await wait_for_topics(self._settings, self._topics, self._tell_trouble)
        links = await open_links(self._settings, self._topics, counts, self._metrics, stack)
        membership = stack.enter_context(LocalMembership(self._settings.kafka))
        consumer = await open_consumer(self._settings, membership.client_id, stack)
        self._links, self._consumer, self._ticked = links, consumer, time.monotonic()
        stack.callback(self._disconnected)
        return links, consumer, membership

    def _tell_trouble(self, trouble: str) -> None:
        self._trouble = trouble

    def _disconnected(self) -> None:
        self._metrics.partitions_owned.set(0)
        self._metrics.kafka_up.set(0)
        self._links = self._consumer = self._kafka.away = None

    async def _wind_up(self, grace: float) -> None:
        """Let running commits finish, and write state records for the next owner."""
        for task in self._starting.values():
            task.cancel()
        self._starting.clear()
        runners = list(self._runners.values())
        if grace == 0.0:
            self._page.keep()
        try:
            async with asyncio.timeout(grace + LAST_WORDS):
                await asyncio.gather(*(runner.stop(grace, last_record=grace > 0) for runner in runners))
        except TimeoutError:
            log.warning("stopped without the last records: Kafka or a table does not answer")
        self._runners.clear()

    # --- settings ---------------------------------------------------------------------------------

    def reload(self) -> None:
        """Request a reload: streams are added, removed or changed by the new settings soon."""
        self._reload.set()

    async def _reload_when_asked(self, access: Access) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            try:
                try:
                    await self._take_over_settings()
                finally:
                    await access.renew(self._settings.http.token_files)
            except Exception as error:
                log.exception("settings not reloaded, those before stay in force", reason=repr(error))

    async def _take_over_settings(self) -> None:
        if self._load is None:
            return
        loaded = await asyncio.to_thread(read_settings, self._load)
        problems = (
            await asyncio.to_thread(table_problems, self._settings, loaded)
            if isinstance(loaded, Settings)
            else loaded
        )
        if problems or not isinstance(loaded, Settings):
            way_out = "correct the settings, see `sluicegate check`, and send SIGHUP again"
            log.error("settings not reloaded, those before stay in force", problems=problems, way_out=way_out)
            return
        plan = plan_reload(self._settings, loaded)
        self._settings = plan.settings
        if plan.restart:
            log.warning("settings that only a restart takes over", keys=list(plan.restart))
        await load_adapters(self._settings)
        if self._links is not None:
            self._links.settings = self._settings
        self._collector.streams_changed()
        for runner in self._runners.values():
            runner.change()
        told = {"added": plan.added, "removed": plan.removed, "changed": plan.changed}
        log.info("settings reloaded", **{name: list(streams) for name, streams in told.items()})

    # --- assignments ------------------------------------------------------------------------------

    def assign(self, partitions: list[int]) -> None:
        """Start runners for assigned partitions; each reads its state records first."""
        if self._consumer is None or self._links is None:
            return
        hit(Failpoint.ASSIGNED)
        found = len(self._consumer.partitions_for_topic(self._links.topics.events) or ())
        if found > self._links.partitions.events:
            # The streams that belong to other partitions now stall, as after a restart.
            log.error("the events topic has more partitions", before=self._links.partitions.events, now=found)
            self._links.partitions = replace(self._links.partitions, events=found)
        self._collector.streams_changed()
        self._epoch += 1
        self._metrics.epoch.set(self._epoch)
        self._trouble = None
        self._keys.changed()
        for number in partitions:
            runner = PartitionRunner(number, self._epoch, self._consumer, self._links)
            # Paused until the state records give the offset to read from.
            self._consumer.pause(runner.source)
            self._runners[number] = runner
            self._starting[number] = asyncio.create_task(self._start(runner))

    async def revoke(self, partitions: list[int]) -> None:
        """Release revoked partitions: this epoch has no effect on them any more."""
        if partitions:
            log.info("partitions revoked", partitions=sorted(partitions))
        await reach(Failpoint.REVOKED_BEFORE)
        self._collector.streams_changed()
        for number in partitions:
            task = self._starting.pop(number, None)
            if task is not None:
                task.cancel()
            runner = self._runners.pop(number, None)
            if runner is not None:
                await runner.stop(0.0)
        await reach(Failpoint.REVOKED_AFTER)
        self._trouble = "no partitions are assigned"

    async def _start(self, runner: PartitionRunner) -> None:
        while not runner.started:
            try:
                await runner.start()
            except (KafkaError, TimeoutError, BodyUnavailable, OSError) as error:
                runner.trouble = repr(error)
                log.warning("state records not read yet", partition=runner.number, error=repr(error))
            except OwnedElsewhere as error:
                if runner.trouble != str(error):
                    log.warning("not started", partition=runner.number, reason=str(error))
                runner.trouble = str(error)
            except Exception as error:
                # Nobody awaits this task, so an error that is not logged here would be lost.
                runner.trouble = repr(error)
                log.exception("partition not started, will be tried again", partition=runner.number)
            if not runner.started:
                await asyncio.sleep(spread(RETRY))
        # A reload during the start did not reach this runner.
        runner.change()
        together = [each for each in self._runners.values() if each.epoch == runner.epoch]
        if all(each.started for each in together):
            log.info(
                "partitions assigned",
                partitions=sorted(each.number for each in together),
                streams=sorted(name for each in together for name in each.streams),
            )

    # --- loops ------------------------------------------------------------------------------------

    async def _consume(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            for source, position in positions(consumer).items():
                if (runner := self._runners.get(source.partition)) is not None:
                    runner.check_position(position)
            try:
                reading = await read_batches(consumer, timeout_ms=200, max_records=MOST_RECORDS)
            except NoOffsetForPartitionError:
                # A new group has no offsets; the state records give the position.
                reading = Reading({}, [])
            except OffsetOutOfRangeError as error:
                await self._refuse(consumer, error)
                reading = Reading({}, [])
            self._ticked = time.monotonic()
            for record in reading.unreadable:
                if (runner := self._runners.get(record.partition)) is not None:
                    runner.put_aside(record)
            for source, after in reading.ends.items():
                if (runner := self._runners.get(source.partition)) is not None:
                    runner.take(reading.batches.get(source, []), after)
            self._collector.collect_if_calm(sum(map(len, reading.batches.values())))
            await asyncio.sleep(0)

    async def _refuse(self, consumer: AIOKafkaConsumer, error: OffsetOutOfRangeError) -> None:
        for source in error.args[0] if error.args and isinstance(error.args[0], dict) else []:
            runner = self._runners.get(source.partition)
            if runner is not None:
                consumer.pause(source)
                await runner.refuse()

    async def _tick(self, links: Links) -> None:
        took = 0.0
        for turns in count(1):
            await asyncio.sleep(max(TICK - took, TICK / 2))
            begun = time.monotonic()
            for runner in list(self._runners.values()):
                if runner.started:
                    await runner.tick(turns)
            links.threads.relieve()
            if turns % 10 == 0:
                await measure(links, self._runners.values(), kafka_up=self._kafka.away is None)
            took = time.monotonic() - begun

    async def _release(self) -> None:
        """Commit the offsets that are not needed any more, also in partitions without commits."""
        while True:
            await asyncio.sleep(RELEASE_INTERVAL)
            for runner in list(self._runners.values()):
                with suppress(KafkaError):
                    await runner.release_offsets()

    def _kafka_silence(self) -> Silence | None:
        trouble = None if self._links is not None or self._trouble == NOT_STARTED else self._trouble
        return self._kafka.silence(trouble)

    async def _keep_views(self, store: StateStore) -> None:
        """Write the views again if the state store has lost them."""
        while True:
            await asyncio.sleep(VIEW_INTERVAL)
            for stream in [each for runner in self._runners.values() for each in runner.streams.values()]:
                await stream.renew_view(store)

    def _own_streams(self) -> dict[str, StreamRunner]:
        runners = [runner for runner in self._runners.values() if runner.started]
        return {name: stream for each in runners for name, stream in each.streams.items()}

    def _shown_streams(self) -> dict[str, StreamRunner]:
        runners = [runner for runner in self._runners.values() if runner.started]
        return {name: stream for each in runners for name, stream in each.shown().items()}

    def _ready_streams(self) -> set[str]:
        return {name for name, stream in self._own_streams().items() if stream.machine.ready}

    # --- health -----------------------------------------------------------------------------------

    def alive(self) -> str | None:
        """Return the reason to restart the process; None while its consumer loop runs."""
        silent = time.monotonic() - self._ticked
        if self._consumer is not None and silent > ALIVE_LIMIT:
            return f"the consumer loop has not turned for {silent:.0f} s"
        return None

    def unready(self) -> list[str]:
        """Return the reasons why the service is not ready."""
        reasons = [reason for reason in (self._trouble, self._kafka.away) if reason]
        return [*reasons, *(each for runner in self._runners.values() for each in runner.hindrances())]

    def status(self) -> dict[str, Any]:
        """Return the partitions and streams of this member as JSON values, with their state."""
        kafka = self._settings.kafka
        started = [runner for runner in self._runners.values() if runner.started]
        return {
            "group": kafka.group_id,
            "topic_prefix": kafka.topic_prefix,
            "epoch": self._epoch,
            "differences": [*self._keys.found.refused, *self._keys.found.coming],
            "partitions": {
                str(each.number): {"position": each.position, "low_water": each.first_needed()}
                for each in started
            },
            "streams": {
                name: state for each in self._runners.values() for name, state in each.status().items()
            },
        }
