"""Heartbeats and closings of the regions of one session, sent from a thread of its own."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final

from sluicegate.events.envelope import EventType
from sluicegate.events.models import RegionHeartbeat
from sluicegate.kafka.pauses import spread
from sluicegate.writer_hooks.errors import (
    BatchUnfinished,
    HookError,
    PublishFailed,
    RegistrationUnanswered,
)
from sluicegate.writer_hooks.outcomes import Live, Outcomes
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import Event, Region
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from sluicegate.writer_hooks.spark.closing import end_region, rest_region
from sluicegate.writer_hooks.spark.examining import troubles, wrong_options
from sluicegate.writer_hooks.spark.incarnation import Registered, restart_event
from sluicegate.writer_hooks.spark.options import SinkOptions
from sluicegate.writer_hooks.spark.registry import Registry

_log = logging.getLogger(__name__)

_FIRST_LOOK: Final = 0.05
_LOOK: Final = 0.5
_REACH: Final = 10.0
"""Seconds for Kafka to respond before it is reported as unreachable."""
_LEAST: Final = 0.5
"""Minimum time in seconds for the last heartbeat."""
_GRACE: Final = 2.0
"""Additional seconds for the thread to end after its deadline."""

Options = Mapping[str, str]
Finder = Callable[[], Options | None]
"""Function that returns the options of a run's sink: None while unknown, empty for another sink."""


class Kind(StrEnum):
    """Kind of a signal from Spark."""

    STARTED = "started"
    PROGRESS = "progress"
    IDLE = "idle"
    ENDED = "ended"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Signal:
    """Notification of Spark about a run of a query."""

    kind: Kind
    query: str
    run: str
    find: Finder
    rows: int = 0


@dataclass(slots=True)
class _Run:
    """State of one run of a query."""

    id: str
    query: str
    find: Finder
    last_rows: float
    due: float
    idle: bool = False
    ended: bool = False
    """The query has ended without error. The run is kept until the log contains that its region is idle."""
    marker: IncarnationMarker | None = None
    """Marker that the run found in its checkpoint location."""
    registered: Registered | None = None
    """Registration of the run: that of its first batch, or one of this thread before it."""
    live: Live | None = None
    """The newest answer of the coordinator for the region that was not compared yet."""
    options: Options | None = None
    followed: Region | None = None
    """Region that this run follows in `outcomes`."""
    missed: int = 0
    """Number of consecutive heartbeats that were not sent."""
    look: float = _FIRST_LOOK
    """Seconds between two attempts to find the options."""

    @property
    def name(self) -> str:
        """Description of the region, or else of the query, for messages."""
        found = {key.lower(): value for key, value in (self.options or {}).items()}
        if "region" in found and "stream" in found:
            return f"region {found['region']} of stream {found['stream']}"
        return f"query {self.query}"


@dataclass(slots=True)
class Heartbeats:
    """Sender of events for signals. `tell` never blocks; the next heartbeat replaces one that fails."""

    interval: float
    idle_after: float
    outcomes: Outcomes = field(default_factory=Outcomes)
    """Followers of the regions, active while their queries run."""
    registry: Registry | None = None
    """Registrations of the workers."""
    _signals: "queue.SimpleQueue[Signal | None]" = field(default_factory=queue.SimpleQueue)
    _runs: dict[str, _Run] = field(default_factory=dict)
    _thread: threading.Thread | None = None
    _until: float = 0.0
    """Deadline of `stop`, in monotonic seconds; 0 before `stop`."""

    def tell(self, signal: Signal) -> None:
        """Queue a signal; the first one starts the thread."""
        if self._thread is None:
            self._until = 0.0
            self._thread = threading.Thread(target=self._work, name="sluicegate-heartbeats", daemon=True)
            self._thread.start()
        self._signals.put(signal)

    def stop(self, timeout: float) -> None:
        """Handle the queued signals, wait until the last heartbeats are acknowledged, then end the thread.

        `timeout` is in seconds and limits the wait.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            self._until = time.monotonic() + timeout
            self._signals.put(None)
            thread.join(timeout + _GRACE)
            self.outcomes.stop()

    def _work(self) -> None:
        while True:
            for signal in self._told():
                if signal is None:
                    self._finish()
                    return
                self._handle(signal)
            self._beat_due()

    def _told(self) -> Iterator[Signal | None]:
        """Yield all queued signals, after a wait for the first one until the next heartbeat is due.

        All are handled before the next heartbeat, so a query that restarts immediately is not reported as
        idle.
        """
        with suppress(queue.Empty):
            yield self._signals.get(timeout=self._pause())
            while True:
                yield self._signals.get_nowait()

    def _beat_due(self) -> None:
        for run in list(self._runs.values()):
            if run.due <= time.monotonic():
                self._beat(run)

    def _finish(self) -> None:
        """Wait until the last heartbeat of each ended query is acknowledged, before the driver ends."""
        self._runs = {name: run for name, run in self._runs.items() if run.ended}
        while self._runs and time.monotonic() < self._until:
            self._beat_due()
            time.sleep(min(self._pause() or 0.0, max(0.0, self._until - time.monotonic())))
        for run in self._runs.values():
            _log.error(
                "%s: the driver ends, and Kafka has not acknowledged that the region is idle. What it wrote "
                "is safe. Commits of the stream's other regions wait for it, each up to alignment_timeout; "
                "start the query again to end that",
                run.name,
            )

    def _pause(self) -> float | None:
        """Return the seconds until the next heartbeat, None if no region needs one."""
        if not self._runs:
            return None
        return max(0.0, min(run.due for run in self._runs.values()) - time.monotonic())

    def _handle(self, signal: Signal) -> None:
        now = time.monotonic()
        run = self._runs.get(signal.query)
        if signal.kind is Kind.STARTED or run is None:
            run = _Run(signal.run, signal.query, signal.find, last_rows=now, due=now + _FIRST_LOOK)
            self._runs[signal.query] = run
        if run.id != signal.run:
            return  # a late signal of a run that was replaced
        if signal.kind in (Kind.ENDED, Kind.FAILED):
            del self._runs[signal.query]
            if run.followed is not None:
                self.outcomes.leave(run.followed, run.query)
            if signal.kind is Kind.ENDED:
                self._end(run, now)
        elif signal.kind is not Kind.STARTED:
            self._note_rows(run, signal, now)

    def _note_rows(self, run: _Run, signal: Signal, now: float) -> None:
        if signal.rows > 0:
            run.last_rows = now
        idle = signal.kind is Kind.IDLE or (signal.rows == 0 and now - run.last_rows >= self.idle_after)
        if idle != run.idle:
            run.idle, run.due = idle, now

    def _beat(self, run: _Run) -> None:
        """Send a heartbeat. Its failure must end neither the query nor the thread."""
        try:
            self._send(run)
        except Exception as error:
            self._tell_missed(run, error)
        else:
            self._tell_sent_again(run)
        if run.options is None:
            # Spark plans a query soon after its start. An early check reports a wrong option before the first
            # batch fails.
            run.look = min(2 * run.look, self.interval, _LOOK)
            run.due = time.monotonic() + run.look
        else:
            run.due = time.monotonic() + (spread(self.interval) if run.missed else self.interval)

    @staticmethod
    def _tell_sent_again(run: _Run) -> None:
        if run.missed:
            _log.warning("%s: heartbeats are sent again, after %d that were not", run.name, run.missed)
        run.missed = 0

    def _send(self, run: _Run) -> None:
        if run.ended:
            self._rest(run)
            return
        if run.options is None and self._options(run):
            self._examine(run)
            if run.options:
                self._begin(run, SinkOptions.parse(run.options))
        options = self._options(run)
        if not options:
            return
        parsed = SinkOptions.parse(options)
        # Until the events are acknowledged, the first batch may not register: the later one of two
        # registrations is in force, and this thread would not know it.
        with self.registry.registering(run.query, wait=False) if self.registry else nullcontext(True) as free:
            if free:
                self._send_heartbeat(run, parsed)

    def _send_heartbeat(self, run: _Run, options: SinkOptions) -> None:
        registered, events = self._registration(run, options)
        if registered is None:
            return
        if registered == run.registered:
            self._compare(run, registered)
        interval = max(1, round(self.interval * 1000))
        body = RegionHeartbeat(idle=run.idle, interval=interval, run=registered.run)
        region = options.region
        beat = region.event(EventType.REGION_HEARTBEAT, registered.incarnation, body)
        shared_publisher(region.kafka).publish(region.events_topic, [*events, beat], self.interval)
        run.registered = registered

    def _begin(self, run: _Run, options: SinkOptions) -> None:
        """Note the incarnation that the run started with, and follow its region.

        After a reset the location contains another one, which this run must not use.
        """
        run.marker = Checkpoint(options.checkpoint_location).marker()
        if self.registry is not None and run.marker is not None:
            self.registry.begin(run.query, run.marker.incarnation)
        run.followed = options.region
        self.outcomes.follow(run.followed, run.query, partial(setattr, run, "live"))

    def _registration(self, run: _Run, options: SinkOptions) -> tuple[Registered | None, list[Event]]:
        """Return the registration of the run, and events to publish before it counts.

        A run without a batch is a plain restart, which registers here without a wait: its source may be idle
        for long. Its first batch registers once more, and waits for the answer.
        """
        found = self.registry.registered(run.query) if self.registry is not None else None
        marker, region = run.marker, options.region
        if found is not None or run.registered is not None:
            return found or run.registered, []
        if marker is None or marker.resetting or marker.query is None:
            return None, []
        place = (region.stream, region.name, region.assignment.number)
        if (marker.stream, marker.region, marker.assignment) != place:
            return None, []
        event = restart_event(region, Checkpoint(options.checkpoint_location), marker)
        return Registered(marker.incarnation, event.envelope.id), [event]

    def _compare(self, run: _Run, registered: Registered) -> None:
        """Have the query ask before its next batch if the newest answer states another incarnation or run.

        The answer may be the repetition of an old one, so it decides nothing itself.
        """
        live, run.live = run.live, None
        if live is None or live == Live(*registered) or self.registry is None:
            return
        _log.warning(
            "%s: the newest answer of the coordinator names the incarnation %s, and this query runs %s; it "
            "asks the coordinator before its next batch, and fails if it was replaced",
            *(run.name, live.incarnation, registered.incarnation),
        )
        self.registry.doubt(run.query)

    def _rest(self, run: _Run) -> None:
        """Publish that the region of an ended query is idle.

        A region with an unfinished batch gets no heartbeat, because it is not idle.
        """
        timeout = self.interval
        if self._until:
            timeout = max(_LEAST, self._until - time.monotonic())
        try:
            rest_region(SinkOptions.parse(run.options or {}), self._last_registration(run), timeout)
        except BatchUnfinished as error:
            _log.info("%s", error)
        except (PublishFailed, RegistrationUnanswered):
            raise  # the next heartbeat retries it
        except HookError as error:
            self._tell_unannounced(run, error)
        del self._runs[run.query]

    def _tell_missed(self, run: _Run, error: Exception) -> None:
        run.missed += 1
        if run.missed & (run.missed - 1):
            return  # logged the first time, the second, the fourth, the eighth ...
        effect = (
            "Until one arrives, commits of the stream's other regions may wait for this one, which is idle"
            if run.idle or run.ended
            else "Its files and commits do not depend on it"
        )
        _log.warning(
            "%s: a heartbeat was not sent (%d in a row): %s. %s; the next one follows in %g s",
            run.name,
            run.missed,
            error,
            effect,
            self.interval,
        )

    def _examine(self, run: _Run) -> None:
        """Log the problems of a sink before its first batch, which an idle source may delay."""
        wrong = wrong_options(run.options or {})
        if wrong is not None:
            _log.error(
                "%s cannot write: %s. Spark asks the sink at the first batch only, and the query fails then; "
                "stop it, correct the options, and start it again",
                run.name,
                wrong,
            )
            # Empty options mark the run as one of another sink, so it gets no heartbeats.
            run.options = {}
            return
        for trouble in troubles(SinkOptions.parse(run.options or {}), _REACH):
            _log.error("%s: its batches will fail as long as this lasts: %s", run.name, trouble)

    def _last_registration(self, run: _Run) -> Registered | None:
        """Return the registration of a run that has ended; None if it made none."""
        found = self.registry.registered(run.query) if self.registry is not None else None
        return found or run.registered

    @staticmethod
    def _options(run: _Run) -> Options | None:
        if run.options is None:
            run.options = run.find()
        return run.options

    def _end(self, run: _Run, now: float) -> None:
        """Close a bounded region. Any other region becomes idle until its query starts again."""
        try:
            options = self._options(run)
            if not options:
                return
            if SinkOptions.parse(options).region.bounded:
                end_region(SinkOptions.parse(options), self._last_registration(run))
            else:
                run.ended, run.due = True, now
                self._runs[run.query] = run
        except BatchUnfinished as error:
            _log.info("%s", error)
        except Exception as error:
            self._tell_unannounced(run, error)

    @staticmethod
    def _tell_unannounced(run: _Run, error: Exception) -> None:
        _log.error(
            "%s: its end was not announced: %s. What it wrote is safe, but commits of the stream's other "
            "regions may wait for it; announce it with sluicegate.writer_hooks.close_region(options), or "
            "start the query again",
            run.name,
            error,
        )
