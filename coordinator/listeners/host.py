"""Host of listeners: one task for each listener of the streams that this process owns."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import structlog
from aiokafka.errors import KafkaError

from sluicegate.coordinator.listeners.facts import UnfitTable, check_table, found_stream
from sluicegate.coordinator.listeners.records import Held, ListenerRecord, ListenerRecords, furthest
from sluicegate.coordinator.listeners.worker import (
    LONGEST_PAUSE,
    CommitsReader,
    ListenerProblem,
    Worker,
    unfit,
    unready,
    unusable,
)
from sluicegate.coordinator.observe.view import committed_decision
from sluicegate.coordinator.settings.model import ListenerSettings
from sluicegate.coordinator.stream.appends import announce
from sluicegate.coordinator.stream.links import Links
from sluicegate.coordinator.stream.state_records import listener_key
from sluicegate.coordinator.tasks import end
from sluicegate.events.envelope import partition_of
from sluicegate.events.notifications import Notification
from sluicegate.kafka.clients import spread
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.threads import CommitThreads
from sluicegate.listeners.port import Listener, ListenerRefused, ListenerUnready, Services, listener_type
from sluicegate.state_store import ListenerView, ProblemView, StateStoreUnavailable

if TYPE_CHECKING:
    from sluicegate.coordinator.stream.runner import StreamRunner

log = structlog.get_logger(__name__)

TURN: Final = 0.2
"""Seconds between two looks at the streams of this process."""
RETRY: Final = 1.0
COMPARE: Final = 10.0
"""Seconds between two looks at the id of the commits topic."""
THREADS: Final = 4
"""Threads for calls of listeners that block; commits have their own."""
REQUEST: Final = 60.0
"""Seconds for one HTTP request, unless the listener has another timeout."""


@dataclass
class _Running:
    """A task of one listener, and the assignment of its stream that it belongs to."""

    runner: "StreamRunner"
    settings: ListenerSettings
    task: asyncio.Task[None]


Key = tuple[str, str]
"""Stream and listener."""


class ListenerHost:
    """Starts a listener when this process gets its stream, and ends it when the stream is lost."""

    def __init__(self, links: Links, streams: "Callable[[], Mapping[str, StreamRunner]]") -> None:
        """`streams` returns the streams that this process owns."""
        self._links, self._streams = links, streams
        kafka = links.settings.kafka
        self._records = ListenerRecords(links)
        self._reader = CommitsReader(links.topics.commits, kafka.client_options(), kafka.request_timeout)
        self._threads = CommitThreads(THREADS)
        self._running: dict[Key, _Running] = {}
        self._ending: dict[Key, asyncio.Task[None]] = {}
        """Ends of former tasks. One that hangs delays the next task of its own listener alone."""
        self._topic = ""
        """Id of the commits topic at the last look."""
        self._compare_at = 0.0
        self._written: dict[str, int] = {}
        """By stream, the version of the states that the last view has."""

    async def run(self) -> None:
        """Run the listeners of all owned streams until cancelled."""
        try:
            while True:
                try:
                    await self._match()
                    await self._compare_topic()
                    self._threads.relieve()
                    self._measure()
                    await self._write_views()
                except Exception:
                    # Commits go on, whatever is wrong with the listeners.
                    log.exception("listeners not matched, it is tried again")
                    await asyncio.sleep(spread(RETRY))
                await asyncio.sleep(TURN)
        finally:
            for runner in self._streams().values():
                runner.outcomes.give_up()
            await end([*(each.task for each in self._running.values()), *self._ending.values()])
            await self._reader.close()
            self._threads.shutdown()

    async def _compare_topic(self) -> None:
        """Look from time to time if the commits topic was made again: its offsets begin at 0 then."""
        if time.monotonic() < self._compare_at or not self._running:
            return
        self._compare_at = time.monotonic() + COMPARE
        with suppress(KafkaError, TimeoutError):
            if topic := await self._reader.topic():
                if self._topic not in ("", topic):
                    log.warning("the commits topic was made again", topic=topic, before=self._topic)
                    for runner in self._streams().values():
                        runner.outcomes.begin_again()
                self._topic = topic

    # --- streams ----------------------------------------------------------------------------------

    async def _match(self) -> None:
        """Start and end tasks, to match the streams of this process and their settings."""
        streams = self._streams()
        wanted = {
            (name, listener): (runner, own)
            for name, runner in streams.items()
            for listener, own in runner.settings.listeners.items()
        }
        self._end_outdated(wanted)
        busy = self._running.keys() | self._ending.keys()
        coming = {key: each for key, each in wanted.items() if key not in busy}
        unplaced = {name: each for name, each in streams.items() if not each.outcomes.placed}
        if not coming and not unplaced:
            return
        try:
            held = dict(await self._records.read({*(stream for stream, _ in coming), *unplaced}))
            await self._place(unplaced, held)
        except (KafkaError, TimeoutError) as error:
            log.warning("records of listeners not read yet", error=repr(error))
            await asyncio.sleep(spread(RETRY))
            return
        except Exception:
            # Commits go on, whatever is wrong with the listeners.
            for runner in unplaced.values():
                runner.outcomes.place()
            raise
        for key, (runner, own) in coming.items():
            work = self._serve(key, runner, own, held.get(key, Held()))
            task = asyncio.create_task(work, name=f"listener/{key[0]}/{key[1]}")
            self._running[key] = _Running(runner, own, task)

    def _end_outdated(self, wanted: "Mapping[Key, tuple[StreamRunner, ListenerSettings]]") -> None:
        """End the tasks of listeners that are not wanted as they are."""
        self._ending = {key: each for key, each in self._ending.items() if not each.done()}
        for key, each in list(self._running.items()):
            if key not in wanted or wanted[key][0] is not each.runner or wanted[key][1] != each.settings:
                self._ending[key] = asyncio.create_task(self._end(key, self._running.pop(key).task))

    async def _end(self, key: Key, task: asyncio.Task[None]) -> None:
        await end([task])
        self._links.metrics.forget_listener(*key)

    async def _place(self, unplaced: "Mapping[str, StreamRunner]", held: dict[Key, Held]) -> None:
        """Write the first record of each listener without one, and let the outcomes be announced.

        Raises KafkaError or TimeoutError.
        """
        for name, runner in unplaced.items():
            for listener, own in runner.settings.listeners.items():
                if not held.get((name, listener), Held()).keys:
                    record = await self._beginning((name, listener), runner, own)
                    await self._records.write(record)
                    key = listener_key(name, listener, record.owner), self._records.partition(name)
                    held[name, listener] = Held((record,), (key,))
            runner.outcomes.place()

    # --- one listener -----------------------------------------------------------------------------

    async def _serve(self, key: Key, runner: "StreamRunner", own: ListenerSettings, held: Held) -> None:
        """Run one listener until cancelled; a problem of it is shown, and ends nothing else."""
        pause = RETRY
        try:
            while True:
                try:
                    await self._open(key, runner, own, held)
                except (KafkaError, TimeoutError, OSError) as error:
                    self._show(key, runner, own, unusable(f"It cannot start yet: {error!r}"), stopped=False)
                except UnfitTable as error:
                    self._show(key, runner, own, unfit(str(error)), stopped=False)
                except ListenerUnready as error:
                    self._show(key, runner, own, unready(str(error)), stopped=False)
                else:
                    return
                await asyncio.sleep(spread(pause))
                pause = min(2 * pause, LONGEST_PAUSE)
        except (ListenerRefused, TableRefused, ValueError) as error:
            self._show(key, runner, own, unusable(str(error)), stopped=True)
        except Exception as error:
            log.exception("listener not started", stream=key[0], listener=key[1])
            self._show(key, runner, own, unusable(f"{type(error).__name__}: {error}"), stopped=True)

    async def _open(self, key: Key, runner: "StreamRunner", own: ListenerSettings, held: Held) -> None:
        record = await self._first_record(key, runner, own, held)
        try:
            facts = await self._in_thread(partial(found_stream, key[0], runner.settings, own.table))
        except LakeUnavailable as error:
            raise UnfitTable(str(error)) from error
        kind = listener_type(own.type)
        timeout = aiohttp.ClientTimeout(total=REQUEST)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            services = Services(http=http, publish=self._publish, in_thread=self._in_thread)
            kind.check(own.options, facts)
            await self._in_thread(partial(check_table, kind, own.options, facts))
            listener: Listener[Any] = kind.open(own.options, facts, services)
            try:
                worker = Worker(
                    *(
                        listener,
                        own,
                        facts.table.location,
                        record,
                        runner.outcomes,
                        self._reader,
                        self._records,
                    ),
                    lambda: _settled(runner),
                    self._links.metrics,
                )
                await worker.run()
            finally:
                await listener.close()

    async def _first_record(
        self, key: Key, runner: "StreamRunner", own: ListenerSettings, held: Held
    ) -> ListenerRecord:
        """Return the record to continue from, after it is written under this owner's key."""
        stream, found = key[0], furthest(held.records)
        partition = partition_of(stream, self._links.partitions.commits)
        if found is None and held.unreadable:
            raise ListenerRefused(
                "a newer release wrote its record. Run that release, or give the listener another name in "
                f"[streams.{stream}.listeners]: then it begins again"
            )
        if found is not None and found.type != own.type:
            raise ListenerRefused(
                f"its record is of the type {found.type}. Give the listener of the type {own.type} another "
                f"name in [streams.{stream}.listeners]: then it begins again"
            )
        if found is not None and found.table != own.table:
            before, now = (each or "the stream's own table" for each in (found.table, own.table))
            raise ListenerRefused(
                f"its record is of another table: {before}, and the key `table` names {now}. Give the "
                f"listener of that table another name in [streams.{stream}.listeners]: then it begins again"
            )
        if found is None:
            found = await self._beginning(key, runner, own)
        if found.refused is not None and found.fingerprint != own.fingerprint:
            found = found.model_copy(update={"refused": None})
        if found.partition != partition:
            found = found.model_copy(update={"partition": partition, "offset": 0})
        record = found.model_copy(update={"owner": secrets.token_hex(8), "step": found.step + 1})
        await self._records.write(record)
        # The new record has the furthest place, so the others are not needed any more.
        for each, at in held.keys if not held.unreadable else ():
            await self._records.remove(each, at)
        return record

    async def _beginning(self, key: Key, runner: "StreamRunner", own: ListenerSettings) -> ListenerRecord:
        """Return the first record of a listener. Raises KafkaError or TimeoutError."""
        stream, name = key
        partition = partition_of(stream, self._links.partitions.commits)
        begin, end_offset, topic = await self._reader.bounds(partition)
        new = own.start == "new"
        return ListenerRecord(
            stream=stream,
            listener=name,
            type=own.type,
            table=own.table,
            owner=secrets.token_hex(8),
            partition=partition,
            # Once outcomes were announced, the topic is read from its beginning: the decision counts.
            offset=end_offset if new and not runner.outcomes.placed else begin,
            topic=topic,
            decision=runner.outcomes.before if new else None,
        )

    def _show(
        self,
        key: Key,
        runner: "StreamRunner",
        own: ListenerSettings,
        problem: ListenerProblem,
        *,
        stopped: bool,
    ) -> None:
        self._links.metrics.listener_failing.set(1, *key)
        shown = ProblemView(code=problem.code, message=problem.message)
        before = runner.outcomes.shown.get(key[1])
        if before is None or before.problem != shown:
            log.error("listener not started", stream=key[0], listener=key[1], reason=problem.message)
        runner.outcomes.show(key[1], ListenerView(type=own.type, problem=shown, stopped=stopped))

    # --- services ---------------------------------------------------------------------------------

    async def _publish(self, notification: Notification) -> None:
        await announce(notification, self._links)

    def _in_thread(self, function: Callable[[], Any]) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(self._threads, function)

    # --- state for people -------------------------------------------------------------------------

    def _measure(self) -> None:
        for (stream, listener), each in self._running.items():
            view = each.runner.listener_views().get(listener)
            if view is not None:
                self._links.metrics.backlog.set(view.backlog, stream, listener)

    async def _write_views(self) -> None:
        """Write the views of streams whose listeners have changed."""
        store = self._links.store
        streams = self._streams() if store is not None else {}
        self._written = {name: version for name, version in self._written.items() if name in streams}
        for name, runner in streams.items():
            version, record = runner.outcomes.version, runner.last_view
            if store is None or record is None or self._written.get(name, 0) == version:
                continue
            with suppress(StateStoreUnavailable):
                await store.write(runner.view_of(record))
                self._written[name] = version


def _settled(runner: "StreamRunner") -> int | None:
    """Return the newest decision whose outcome this process has announced, if all of them are."""
    machine = runner.machine
    if not machine.ready or machine.outbox.busy:
        return None
    return committed_decision(machine.replica.state)
