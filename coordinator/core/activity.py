"""Drivers' activity: the time of each region's newest event, and silent regions.

Idleness is no part of it: that is in the log (`heartbeat` in replica.py, `Log.is_idle`). Activity is work in
hand. A silent region counts as not idle only once the coordinator has logged that. A cut asks
for less: it does not wait for a silent region (`Candidate.align`). `is_silent` is the one rule, also for the
page and for `status`. They count from append times, and the core by its own clock from when it has read them.
"""

from collections.abc import Iterator
from typing import Final

from sluicegate.coordinator.core.effects import Append
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.state import RegionPhase, RegionState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.events.envelope import EventType, LogRecord
from sluicegate.events.models import CheckpointCompleted, RegionHeartbeat, RegionRegistered
from sluicegate.events.problems import Code, Problem

HEARTBEATS: Final = 3
"""Number of heartbeats in a row that a driver may miss."""


_MOST_STRAYS: Final = 100
"""Regions whose stray queries are shown."""


def is_silent(region: RegionState, interval: int | None, unheard: int, silence: int) -> bool:
    """Return True if a region's driver is silent.

    It has announced a heartbeat each `interval`, and its newest event is `unheard` milliseconds old. That is
    more than `silence`, and more than three intervals. A driver without an interval is never silent.
    """
    if interval is None or not region.run or not region.accepts_checkpoints:
        return False
    return unheard > max(silence, HEARTBEATS * interval)


class Activity:
    """The activity of the drivers of one stream."""

    def __init__(self, log: Log, record: StateRecord, silence: int) -> None:
        """`silence` as of `is_silent`."""
        self.heard = dict(record.heard)
        """By region, the append time of its driver's newest event."""
        self.intervals = dict(record.intervals)
        """By region, the milliseconds between its heartbeats."""
        self._log = log
        self._silence = silence
        self._heard_at: dict[str, int] = {}
        """By region, the time by the own clock when its newest event was read."""
        self.strays: dict[str, Problem] = {}
        """Regions that are not live, and of which a query still runs with an incarnation that has ended."""
        self._stray_until: dict[str, int] = {}
        """By such a region, the time by the own clock until which another event is expected."""
        self._settled: frozenset[str] = frozenset()

    def observe(self, record: LogRecord, ignored: Problem | None, now: int) -> None:
        """Note an event of a region's driver."""
        name, body = record.envelope.region, record.body
        if not name or (isinstance(body, RegionHeartbeat) and body.silent):
            # A coordinator sent it.
            return
        if ignored is not None and ignored.code is Code.NOT_LIVE:
            self._note_stray(record, now)
            return
        if isinstance(body, RegionRegistered):
            if ignored is not None or body.probe:
                # It is no sign of the live incarnation: another driver asks, or one that was refused.
                return
            if body.rests:
                # No heartbeat is expected.
                self.intervals.pop(name, None)
        elif isinstance(body, RegionHeartbeat):
            if body.interval is not None:
                self.intervals[name] = body.interval
            elif body.idle:
                # The last heartbeat of a query that has ended: no other one is expected.
                self.intervals.pop(name, None)
        self.heard[name], self._heard_at[name] = record.time, now

    def _note_stray(self, record: LogRecord, now: int) -> None:
        """Note an event of a query that runs although its incarnation has ended, and no other one lives."""
        name, life, body = record.envelope.region, record.envelope.incarnation, record.body
        interval = None
        if isinstance(body, RegionHeartbeat):
            interval = body.interval
            if interval is None:
                # The last heartbeat of a query that has ended.
                self.strays.pop(name, None)
                return
        elif not isinstance(body, CheckpointCompleted):
            return
        if life not in self._log.state.ended or self._is_live(name):
            return
        if len(self.strays) >= _MOST_STRAYS and name not in self.strays:
            # An event can name any region, and each state record has all conditions.
            return
        self.strays[name] = Problem(code=Code.STILL_RUNNING, region=name, incarnation=life)
        self._stray_until[name] = now + max(self._silence, HEARTBEATS * (interval or 0))

    def settle(self, now: int) -> bool:
        """Forget queries that have stopped, and regions that live again; return True if there are others."""
        for name in list(self.strays):
            if now > self._stray_until[name] or self._is_live(name):
                del self.strays[name]
        before, self._settled = self._settled, frozenset(self.strays)
        return before != self._settled

    def _is_live(self, name: str) -> bool:
        return self._log.state.region(name).phase is RegionPhase.LIVE

    def silent(self, now: int) -> Iterator[str]:
        """Yield the silent regions."""
        for name, region in self._log.state.regions.items():
            if name not in self.intervals:
                continue
            unheard = now - self._heard_at.setdefault(name, now)
            if is_silent(region, self.intervals[name], unheard, self._silence):
                yield name

    def next_append(self, now: int) -> Append | None:
        """Return the event that calls an idle region not idle, if its driver is silent.

        An idle region that crashes may have new rows in its source: the watermark must not pass them.
        """
        for name in self.silent(now):
            region = self._log.state.regions[name]
            if region.incarnation is not None and region.run and self._log.is_idle(name):
                body = RegionHeartbeat(idle=False, silent=True, run=region.run)
                return Append(EventType.REGION_HEARTBEAT, body, name, region.incarnation.id)
        return None
