"""Heartbeats and closings of the regions of one session, sent from a thread of its own."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sluicegate.events import EventType, RegionHeartbeat
from sluicegate.writer_hooks.errors import BatchUnfinished
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import Region
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint
from sluicegate.writer_hooks.spark.closing import close_region
from sluicegate.writer_hooks.spark.options import SinkOptions

_log = logging.getLogger(__name__)

Options = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Signal:
    """What Spark said about a query."""

    query: str
    kind: str
    """`started`, `progress`, `idle`, `ended` or `failed`."""
    rows: int = 0


@dataclass(slots=True)
class _Run:
    """One run of a query, as far as it is known."""

    last_rows: float
    idle: bool = False
    due: float = 0.0
    target: tuple[Region, str] | None = None
    options: Options | None = None


@dataclass(slots=True)
class Heartbeats:
    """Turns signals into events. `tell` never blocks; what Kafka does not take is tried again with the next.

    `find` gives the options of a query's sink: None while they are unknown, empty when it is another sink.
    """

    find: Callable[[str], Options | None]
    interval: float
    idle_after: float
    _signals: "queue.SimpleQueue[Signal | None]" = field(default_factory=queue.SimpleQueue)
    _runs: dict[str, _Run] = field(default_factory=dict)
    _thread: threading.Thread | None = None

    def tell(self, signal: Signal) -> None:
        """Take note of a signal; the first one starts the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="sluicegate-heartbeats", daemon=True)
            self._thread.start()
        self._signals.put(signal)

    def stop(self, timeout: float) -> None:
        """Handle what has been told, then end the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._signals.put(None)
            thread.join(timeout)

    def _work(self) -> None:
        while True:
            try:
                signal = self._signals.get(timeout=self._pause())
            except queue.Empty:
                pass
            else:
                if signal is None:
                    return
                self._guarded(signal.query, lambda signal=signal: self._handle(signal))  # type: ignore[misc]
            for query, run in list(self._runs.items()):
                if run.due <= time.monotonic():
                    self._guarded(query, lambda query=query, run=run: self._beat(query, run))  # type: ignore[misc]

    def _pause(self) -> float | None:
        """Seconds to the next heartbeat; None: there is nobody to beat for."""
        if not self._runs:
            return None
        return max(0.0, min(run.due for run in self._runs.values()) - time.monotonic())

    @staticmethod
    def _guarded(query: str, work: Callable[[], None]) -> None:
        """A failed heartbeat must end neither the query nor the thread; it is said and tried again."""
        try:
            work()
        except BatchUnfinished as error:
            _log.info("%s", error)
        except Exception as error:
            _log.warning("the news of the query %s could not be sent: %s", query, error)

    def _handle(self, signal: Signal) -> None:
        now = time.monotonic()
        if signal.kind == "started":
            self._runs[signal.query] = _Run(last_rows=now, due=now + self.interval)
            return
        if signal.kind in ("ended", "failed"):
            run = self._runs.pop(signal.query, None)
            if signal.kind == "ended":
                self._close(signal.query, run)
            return
        run = self._runs.setdefault(signal.query, _Run(last_rows=now))
        if signal.rows > 0:
            run.last_rows = now
        idle = signal.kind == "idle" or (signal.rows == 0 and now - run.last_rows >= self.idle_after)
        if idle != run.idle:
            run.idle, run.due = idle, now

    def _beat(self, query: str, run: _Run) -> None:
        run.due = time.monotonic() + self.interval
        target = self._target(query, run)
        if target is not None:
            region, lineage = target
            beat = region.event(EventType.REGION_HEARTBEAT, lineage, RegionHeartbeat(idle=run.idle))
            shared_publisher(region.kafka).publish(region.events_topic, [beat], self.interval)

    def _target(self, query: str, run: _Run) -> tuple[Region, str] | None:
        """The region and lineage of a run; None as long as nothing was opened, or if it is not ours."""
        options = self._options(query, run)
        if run.target is None and options:
            parsed = SinkOptions.parse(options)
            checkpoint = Checkpoint(parsed.checkpoint_location)
            marker = checkpoint.known_lineage()
            if marker is not None and checkpoint.opened(marker.lineage) is not None:
                run.target = parsed.region, marker.lineage
        return run.target

    def _options(self, query: str, run: _Run | None) -> Options | None:
        if run is not None and run.options is not None:
            return run.options
        found = self.find(query)
        if run is not None:
            run.options = found
        return found

    def _close(self, query: str, run: _Run | None) -> None:
        options = self._options(query, run)
        if options and SinkOptions.parse(options).region.bounded:
            close_region(options)
