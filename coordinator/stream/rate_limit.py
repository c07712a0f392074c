"""Streams over their limit of events a second: each reads the log with its own consumer, at its limit.

The events stay in Kafka. A pause of the partition would hold the other streams, too.
"""

import asyncio
from typing import Final

import structlog
from aiokafka.errors import KafkaError

from sluicegate.coordinator.core.state_record import Condition
from sluicegate.coordinator.stream.other_groups import OwnedElsewhere
from sluicegate.coordinator.stream.reload import RETRY, Changes, Host
from sluicegate.coordinator.stream.runner import StreamRunner
from sluicegate.coordinator.tasks import end
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.bodies import BodyUnavailable
from sluicegate.kafka.clients import spread

log = structlog.get_logger(__name__)

BURST: Final = 10
"""Seconds of events at the limit that a stream may have at once."""
_LOOK: Final = 0.5
"""Seconds between two looks at the settings during a pause."""


class Pace:
    """Events of a stream against its limit, by their append times: a backlog that is read is no flood."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._level = 0.0
        self._time = 0

    def over(self, time_ms: int) -> bool:
        """Count one event, and return True if the stream is over its limit with it."""
        passed = max(0, time_ms - self._time)
        self._time = max(self._time, time_ms)
        self._level = max(0.0, self._level - passed * self.limit / 1000) + 1
        return self._level > self.limit * BURST


class Holding:
    """Held streams of one partition."""

    def __init__(self, host: Host, changes: Changes) -> None:
        self.runners: dict[str, StreamRunner] = {}
        """Held streams as far as they have read; none of their effects is run."""
        self._host = host
        self._changes = changes
        self._paces: dict[str, Pace] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def saw(self, runner: StreamRunner, time_ms: int) -> None:
        """Count an event of a stream. Over its limit, the stream leaves the common reading soon."""
        name, limit = runner.stream, runner.settings.max_events_per_second
        if limit is None or name in self._tasks:
            return
        pace = self._paces.get(name)
        if pace is None or pace.limit != limit:
            pace = self._paces[name] = Pace(limit)
        if pace.over(time_ms):
            del self._paces[name]
            task = self._tasks[name] = asyncio.create_task(self._hold(runner), name=f"held/{name}")
            task.add_done_callback(lambda ended: self._ended(name, ended))

    async def stop(self) -> None:
        """End the reading of all held streams."""
        await end(set(self._tasks.values()))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._tasks[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("stream not held, it joins again", stream=name, exc_info=error)
        if not task.cancelled():
            # A stream with other settings, or after an error, joins like a new one.
            self._host.change()

    async def _hold(self, runner: StreamRunner) -> None:
        """Let a stream leave, and read at its limit until it has caught up or has other settings."""
        name, settings = runner.stream, runner.settings
        limit = settings.max_events_per_second or 1
        if not await self._changes.step_out(runner):
            return
        log.warning("stream is read at its limit", stream=name, events_per_second=limit)
        try:
            while self._host.wanted().get(name) == settings:
                try:
                    if await self._read(name, limit):
                        log.info("stream has caught up at its limit", stream=name)
                        return
                except (KafkaError, TimeoutError, BodyUnavailable, OwnedElsewhere, OSError) as error:
                    log.warning("stream not read at its limit yet", stream=name, reason=repr(error))
                    await asyncio.sleep(spread(RETRY))
        finally:
            self._changes.held.discard(name)
            self.runners.pop(name, None)

    async def _read(self, name: str, limit: int) -> bool:
        """Read the log of a stream at its limit, and let it join; False if it has other settings."""
        (runner,) = await self._host.prepare([name])
        problem = Problem(code=Code.EVENTS_LIMITED, number=limit)
        runner.warn("limit", (Condition(kind="wait", problem=problem),))
        self.runners[name] = runner

        async def pause(events: int) -> bool:
            left = events / limit
            while (wanted := self._host.wanted().get(name)) == runner.settings and left > 0:
                await asyncio.sleep(min(left, _LOOK))
                left -= _LOOK
            return wanted == runner.settings

        try:
            joined = await self._changes.catch_up(runner, pause)
        finally:
            if name not in self._host.streams:
                await runner.stop(0.0)
        if joined:
            runner.warn("limit", ())
        return joined
