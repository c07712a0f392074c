"""Runs of queries, as the listener knows them, and the registrations that their events name."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from sluicegate.writer_hooks.backpressure import Repetition
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.region import Event, Live, Region, Registered
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from sluicegate.writer_hooks.spark.registry import Registry
from sluicegate.writer_hooks.spark.unsent import inherited
from sluicegate.writer_hooks.upload.here import keep_uploading
from sluicegate.writer_hooks.upload.losses import Committed, Losses

FIRST_LOOK: Final = 0.05
FIRST_QUESTION: Final = 30.0
"""Seconds without a commit, while a completed batch waits for one, before the coordinator is asked."""
_QUESTIONS: Final = 480.0
"""The longest pause in seconds between two such questions."""
_MOST_BATCHES: Final = 1_000

Options = Mapping[str, str]
Finder = Callable[[], Options | None]
"""Function that returns the options of a run's sink: None while unknown, empty for another sink."""


Ender = Callable[[str], bool]
"""Function that ends a run, which fails with the given message. It does not wait for the end.

It returns False if the run is over already.
"""


def no_ender(_: str) -> bool:
    """Do nothing: a run that this process cannot end fails at its next batch."""
    return True


Over = Callable[[], bool]
"""Function that returns True if a run is over, perhaps before Spark has reported its end."""


def unknown_end() -> bool:
    """Return False: of a run in another process, only Spark's report of its end is known."""
    return False


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
    end: Ender = no_ender
    over: Over = unknown_end
    batch: int | None = None
    """Number of the batch of a progress."""
    error: str = ""
    """Error of a failed run as Spark prints it, with its causes."""


class Signals(Protocol):
    """Receiver of signals."""

    def tell(self, signal: Signal) -> None:
        """Queue a signal; never blocks."""
        ...

    def stop(self, timeout: float) -> None:
        """Handle the queued signals, for at most so many seconds."""
        ...


@dataclass(slots=True)
class Run:
    """State of one run of a query."""

    id: str
    query: str
    find: Finder
    last_rows: float
    due: float
    end: Ender = no_ender
    over: Over = unknown_end
    idle: bool = False
    ended: bool = False
    """The query has ended without error. The run is kept until the log contains that its region is idle."""
    marker: IncarnationMarker | None = None
    """Marker that the run found in its checkpoint location."""
    registered: Registered | None = None
    """Registration of the run: that of its first batch, or one of this thread before it."""
    live: Live | None = None
    """The newest answer of the coordinator for the region that was not compared yet."""
    doubted: bool = False
    """The next batch of the query has to ask if its incarnation is still live."""
    options: Options | None = None
    followed: Region | None = None
    """Region that this run follows in `outcomes`."""
    batches: dict[int, float] = field(default_factory=dict)
    """Batches with rows that have ended since the last heartbeat, with the times in monotonic seconds."""
    losses: Losses | None = None
    """Reports of lost files, if they are left to uploaders."""
    completed: int | None = None
    """Newest batch with rows that has ended."""
    committed: int | None = None
    """Committed batch as of the newest heartbeat."""
    question: Repetition | None = None
    """Times of the questions, while a completed batch waits for its commit."""
    inherited: int | None = None
    """Newest batch that earlier runs have completed, while its commit is not known."""
    missed: int = 0
    """Number of consecutive heartbeats that were not sent."""
    wall_clock: Callable[[], float] = time.time
    """Function that returns the seconds since the Unix epoch."""
    look: float = FIRST_LOOK
    """Seconds between two attempts to find the options."""

    @property
    def name(self) -> str:
        """Description of the region, or else of the query, for messages."""
        found = {key.lower(): value for key, value in (self.options or {}).items()}
        if "region" in found and "stream" in found:
            return f"region {found['region']} of stream {found['stream']}"
        return f"query {self.query}"

    def note_batch(self, number: int | None, now: float) -> None:
        """Note the end of a batch with rows: its completion is in the log. Only the newest ones are kept."""
        if number is not None:
            self.completed = number
            self.batches[number] = now
            if len(self.batches) > _MOST_BATCHES:
                del self.batches[min(self.batches)]

    def is_question_due(self, committed: int | None, now: float) -> bool:
        """Return True if the coordinator is to be asked for the region, and then not for a while.

        Without a commit nobody else says that the log does not know this run, as after an adoption.
        `committed` is the newest committed batch of its incarnation.
        """
        waits = self.completed is not None and (committed is None or committed < self.completed)
        if not waits or committed != self.committed:
            self.committed, self.question = committed, None
        if not waits:
            return False
        if self.question is None:
            self.question = Repetition(now + FIRST_QUESTION, FIRST_QUESTION, _QUESTIONS)
        return self.question.is_due(now)

    def report_losses(
        self, options: SinkOptions, incarnation: str, committed: int | None, ask: Committed
    ) -> None:
        """Report batches whose files were left to uploaders that did not send them in time.

        `committed` is the newest committed batch of the incarnation, if it is known; `ask` asks for it.
        Raises as `publish` does, and BadCheckpointLocation.
        """
        if options.uploads is None:
            return
        here = keep_uploading(options.uploads, options.region, incarnation)
        losses = self.losses or Losses(options.region, options.uploads)
        if self.losses is None:
            self._inherit(options, incarnation, committed, losses)
        self.losses = losses
        for number, at in self.batches.items():
            losses.complete(number, at)
        self.batches.clear()
        if committed is not None:
            losses.commit(committed)
        losses.report(incarnation, time.monotonic(), here, ask)
        if self.inherited is not None and self.inherited <= losses.committed:
            # The next run begins with what this one has completed.
            self._inherit(options, incarnation, losses.committed, losses)
            self.inherited = None

    def _inherit(self, options: SinkOptions, incarnation: str, committed: int | None, losses: Losses) -> None:
        """Count the time of the newest batch that earlier runs have completed."""
        if self.marker is None or self.marker.incarnation != incarnation:
            return
        now = self.wall_clock()
        found = inherited(options.checkpoint_location, self.marker, committed, now)
        self.inherited = None if found is None else found.batch
        if found is not None:
            losses.complete(found.batch, time.monotonic() - max(0.0, now - found.since))

    def contradicted(self, registered: Registered) -> Live | None:
        """Return the newest answer if it states another incarnation or run than this registration.

        Answers from before the one to this registration name the run before it. Each answer is taken once.
        """
        live = self.live
        if live is None or registered.run not in live.answered:
            return None
        self.live = None
        return live if (live.incarnation, live.run) != tuple(registered) else None

    def registration(
        self, options: SinkOptions, registry: Registry | None
    ) -> tuple[Registered | None, list[Event]]:
        """Return the registration of the run, and the event that makes it if it was not published yet.

        A run without a batch is a plain restart, which registers without a wait: its source may be idle for
        long. Its first batch registers once more, and waits for the answer.
        """
        found = registry.registered(self.query) if registry is not None else None
        marker, region = self.marker, options.region
        if found is not None or self.registered is not None:
            return found or self.registered, []
        if marker is None or marker.resetting or marker.query is None:
            return None, []
        place = (region.stream, region.name, region.assignment.number)
        if (marker.stream, marker.region, marker.assignment) != place:
            return None, []
        planned = Checkpoint(options.checkpoint_location).planned(marker.first)
        event = region.registration(marker.incarnation, marker.base, planned=planned)
        return Registered(marker.incarnation, event.envelope.id), [event]

    def last_registration(
        self, options: SinkOptions, registry: Registry | None
    ) -> tuple[Registered | None, list[Event]]:
        """Return the registration of a run that has ended, like `registration`."""
        if self.marker is None:
            # The run has ended before its first heartbeat.
            self.marker = Checkpoint(options.checkpoint_location).marker()
        return self.registration(options, registry)
