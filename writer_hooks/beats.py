"""Heartbeats of a driver without Spark, sent from a thread of its own."""

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Final

from sluicegate.events.envelope import EventType
from sluicegate.events.models import RegionHeartbeat
from sluicegate.kafka.clients import spread
from sluicegate.writer_hooks.errors import ACKNOWLEDGED, BadOption, HookError, RegionReplaced
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import Region, Registered

_log = logging.getLogger(__name__)

_LAST: Final = 10.0
"""Seconds for Kafka to acknowledge the last heartbeat."""


class Beats:
    """Heartbeats of one region. A heartbeat that fails is replaced by the next one."""

    def __init__(self, region: Region, interval: float, idle_after: float) -> None:
        if interval <= 0 or idle_after < 0:
            raise BadOption(
                f"heartbeat_interval ({interval:g}) must be above 0, and idle_after ({idle_after:g}) at "
                "least 0, in seconds"
            )
        self._region = region
        self._interval = interval
        self._idle_after = idle_after
        self._changed = threading.Condition()
        self._rests_since = time.monotonic()
        self._told_idle = False
        self._newest: int | None = None
        """The newest checkpoint that has begun."""
        self._completed: int | None = None
        """The newest checkpoint that is completed: the later ones are open."""
        self._may_be_idle = False
        """True if a heartbeat may have said idle since the newest beginning that the log has."""
        self._ended = False
        self._registered: Registered | None = None
        self._thread: threading.Thread | None = None
        self._failed = 0
        self._require_live: Callable[[], object] = lambda: None
        self._sent: Callable[[], object] = lambda: None

    def start(
        self,
        registered: Registered,
        require_live: Callable[[], object] = lambda: None,
        sent: Callable[[], object] = lambda: None,
    ) -> None:
        """Send heartbeats for a registration from now on.

        `require_live` is called before each of them. They end when it raises RegionReplaced. `sent` is called
        after each that Kafka has acknowledged.
        """
        self._registered = registered
        self._require_live, self._sent = require_live, sent
        self._rests_since = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="sluicegate-heartbeats", daemon=True)
        self._thread.start()

    def begin(self, number: int) -> None:
        """Note that a checkpoint begins. Other regions wait for it from now on.

        On return, the log has the beginning if a heartbeat may have said idle before. The number is needed,
        because such a heartbeat may still be in flight. Raises PublishFailed; then nothing has begun.
        """
        with self._changed:
            # From here on no heartbeat says idle, so there is nothing else to take back.
            before, self._newest = self._newest, number
            may_be_idle = self._may_be_idle
        if may_be_idle:
            try:
                self._send(RegionHeartbeat(begins=number, run=self._run()), self._region.publish_timeout)
            except BaseException:
                with self._changed:
                    self._newest = before
                raise
        with self._changed:
            self._may_be_idle = self._told_idle = False

    def complete(self, number: int) -> None:
        """Note that a checkpoint is completed. When none is open for a while, the region becomes idle."""
        with self._changed:
            self._completed = number
            if not self._is_open:
                self._rests_since = time.monotonic()
                self._changed.notify_all()

    @property
    def _is_open(self) -> bool:
        """Return True while a checkpoint is open."""
        return self._newest is not None and (self._completed is None or self._completed < self._newest)

    def stop(self, *, idle: bool) -> None:
        """End the thread. With `idle`, publish a last heartbeat, so that no commit waits for the region."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if thread is not threading.current_thread():
            thread.join()
        if not idle:
            return
        try:
            last = RegionHeartbeat(idle=True, after=self._newest, run=self._run())
            self._send(last, min(_LAST, self._region.publish_timeout))
        except HookError as error:
            _log.error(
                "region %s of %s: the driver ends, and Kafka has not acknowledged that the region is idle "
                "(%s). %s. Commits of the stream's other regions may wait for it, each up "
                "to alignment_timeout; start the driver again to end that",
                *(self._region.name, self._region.stream, error, ACKNOWLEDGED),
            )

    def _work(self) -> None:
        while not self._ended:
            try:
                self._require_live()
                self._beat()
                self._sent()
            except RegionReplaced as error:
                _log.error("region %s of %s: %s", self._region.name, self._region.stream, error)
                return
            except HookError as error:
                self._failed += 1
                # Logged the first time, the second, the fourth, the eighth ...
                if not self._failed & (self._failed - 1):
                    _log.warning(
                        "region %s of %s: a heartbeat was not sent (%d in a row): %s. Its files and commits "
                        "do not depend on it; the next one follows in %g s",
                        *(self._region.name, self._region.stream, self._failed, error, self._interval),
                    )
            else:
                self._failed = 0
            self._pause()

    def _pause(self) -> None:
        """Wait for the next heartbeat: the interval is over, or the region became idle or active."""
        due = time.monotonic() + (spread(self._interval) if self._failed else self._interval)
        with self._changed:
            while not self._ended:
                at = due if self._failed else min(due, self._changes_at())
                left = at - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def _changes_at(self) -> float:
        """Return the time at which the last heartbeat is no longer true."""
        return math.inf if self._is_open or self._told_idle else self._rests_since + self._idle_after

    def _beat(self) -> None:
        with self._changed:
            rests = time.monotonic() - self._rests_since
            idle = not self._is_open and rests >= self._idle_after
            # Noted first: the event may be in the log without an acknowledgement.
            self._may_be_idle = self._may_be_idle or idle
            begun = self._newest
        interval = max(1, round(self._interval * 1000))
        body = RegionHeartbeat(idle=idle, after=begun if idle else None, interval=interval, run=self._run())
        self._send(body, self._interval)
        with self._changed:
            # A checkpoint that has begun meanwhile has taken it back.
            self._told_idle = idle and begun == self._newest

    def _run(self) -> str:
        return self._registered.run if self._registered is not None else ""

    def _send(self, body: RegionHeartbeat, timeout: float) -> None:
        region = self._region
        incarnation = self._registered.incarnation if self._registered is not None else ""
        event = region.event(EventType.REGION_HEARTBEAT, incarnation, body)
        shared_publisher(region.kafka).publish(region.events_topic, [event], timeout)
