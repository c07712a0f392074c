"""Driver of one region without Spark: it registers, completes checkpoints, and ends the region.

A driver keeps nothing on disk. Each start begins a new incarnation at the region's committed position, whose
source offsets the coordinator returns. So the caller's source continues exactly there, also after a crash.
What an earlier driver completed after that position does not count any more, and is read again.

The newest driver of a region is the one that counts. An older one that is still alive raises RegionReplaced.
"""

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from sluicegate.events.encoding import Message
from sluicegate.events.envelope import EventType
from sluicegate.events.models import Position
from sluicegate.kafka.clients import spread
from sluicegate.writer_hooks.commit_feed import CommitFeed, OnOutcome
from sluicegate.writer_hooks.driver_state import (
    DRIVER,
    CommittedCheckpoint,
    DriverState,
    begin_incarnation,
    completion,
    offsets_text,
    parsed_offsets,
)
from sluicegate.writer_hooks.errors import (
    ACKNOWLEDGED,
    BadOption,
    EventTooLarge,
    Failures,
    HookError,
    NotOurs,
    RegionReplaced,
)
from sluicegate.writer_hooks.numbering import keys_of, numbers_of, read_floor
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.publisher import publish, publish_completion
from sluicegate.writer_hooks.region import Event, Region, Registered
from sluicegate.writer_hooks.upload.overdue import OverdueUploads, keep_uploading
from sluicegate.writer_hooks.writer import OpenCheckpoint, WriterResult, this_process

_log = logging.getLogger(__name__)

_BEGINNING: Final = "null"
"""Source offsets of a checkpoint that was given up before anything of the source was completed."""
_LAST: Final = 10.0
"""Seconds for Kafka to acknowledge the last heartbeat."""


@dataclass(frozen=True, slots=True)
class _Completion:
    """A completion that was published, perhaps without an acknowledgement."""

    number: int
    event: Event
    gives_up: bool
    """True: it has no rows, because the checkpoint was given up."""


class RegionDriver:
    """Driver of one region. Its methods block, and may be called from several threads.

    Checkpoints are completed in the order in which they began. Their numbers have no gaps.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        heartbeat_interval: float = 5.0,
        idle_after: float = 10.0,
        take_over: bool = False,
        on_commit: Callable[[CommittedCheckpoint], None] | None = None,
        on_outcome: OnOutcome | None = None,
    ) -> None:
        """Make a driver; nothing is connected yet. Raises BadOption.

        - `options`: as those of the Spark sink, without `checkpointLocation`.
        - `heartbeat_interval`: seconds between two heartbeats.
        - `idle_after`: seconds without an open checkpoint after which no commit waits for the region.
        - `take_over`: also begin where another kind of driver has written the region. The caller then finds
          the place in its source itself.
        - `on_commit`: called in some thread, with each newly committed checkpoint. Its exceptions are logged.
        - `on_outcome`: called in a thread of the driver, with the outcome of each decision for the region: it
          was committed, it fell back, or the decision was reverted. Its exceptions are logged.
        """
        self._options = dict(options)
        self._sink = SinkOptions.parse(options, located=False)
        self._region = self._sink.region
        self._take_over = take_over
        self._state = DriverState(self._region, on_commit, on_outcome)
        self._feed = CommitFeed(self._region, self._state.apply, self._state.doubt)
        self._heartbeats = DriverHeartbeats(self._region, heartbeat_interval, idle_after)
        self._incarnation = ""
        self._registered: Registered | None = None
        self._base: Position | None = None
        """Position that the incarnation started from."""
        self._floor: int | None = None
        """Floor of the sequence numbers; None: the table has no keys."""
        self._previous: Position | None = None
        """The newest completed checkpoint, or the base."""
        self._completing = threading.Lock()
        """Held while a completion is published: one at a time, in their order."""
        self._beginning = threading.Lock()
        """Held while a checkpoint begins: its number may have to be in the log first."""
        self._next = 0
        """Number of the next checkpoint to be begun."""
        self._offsets: str | None = _BEGINNING
        """Source offsets of the newest completed checkpoint, as JSON; None: nobody has stated them."""
        self._unacknowledged: _Completion | None = None
        self._process: int | None = None
        """Process that has started the driver."""

    # --- the start --------------------------------------------------------------------------------

    def start(self) -> CommittedCheckpoint | None:
        """Register, wait for the answer, and return the position to continue after.

        None: nothing of the source is committed yet, so begin at its beginning. The position is committed.
        Its `source_offsets` are None if nobody has stated them, as after an adoption; the place in the source
        is the caller's to find then, until a checkpoint is completed with its own.
        While a decision that moves the region has no outcome, the call waits for it, as long as the option
        `registration.timeout` states. A driver starts once, also after an error. Raises RegistrationRefused,
        RegistrationUnanswered, PublishFailed, TopicMissing, SourceOffsetsUnknown, or RegionReplaced: another
        driver has registered meanwhile. Raises LakeError if the format has tables with keys, and this one
        cannot be opened.
        """
        if self._process is not None:
            raise HookError("this driver was started already; make another RegionDriver to start again")
        self._process = os.getpid()
        try:
            self._feed.start()
            keys = keys_of(self._sink)
            registered, base, offsets = begin_incarnation(self._region, DRIVER, take_over=self._take_over)
            self._floor = read_floor(self._sink, keys)
        except BaseException:
            self._feed.stop()
            raise
        self._registered, self._incarnation = registered, registered.incarnation
        self._base = self._previous = base
        self._next = self._first_open()
        after = None
        if base is not None:
            self._offsets = offsets
            # Checkpoints that were given up at the beginning of the source have no place in it.
            if offsets != _BEGINNING:
                after = CommittedCheckpoint(base.checkpoint, parsed_offsets(offsets), base)
        self._state.begin(registered, after)
        uploads = self._sink.uploads
        overdue = OverdueUploads(self._region, uploads) if uploads is not None else None
        self._heartbeats.start(
            registered,
            lambda: self._state.check_waiting(registered, base),
            lambda: self._report_overdue(registered, overdue),
        )
        return after

    # --- checkpoints ------------------------------------------------------------------------------

    def begin(self) -> OpenCheckpoint:
        """Begin the next checkpoint.

        After a pause, its beginning is in the log on return: commits do not pass its rows. Raises
        RegionReplaced if another driver has taken the region, TooManyUncommitted if the options say so, and
        PublishFailed. With `backpressure = wait` the call waits for commits.
        """
        registered = self._require_live()
        self._state.await_commits(self._sink.backpressure, self._require_live)
        with self._beginning:
            number = self._next
            numbers = numbers_of(self._floor, number - _number_of(self._base))
            self._heartbeats.begin(number)
            with self._state.lock:
                self._next = number + 1
        return OpenCheckpoint(
            self._options, registered.incarnation, number, process=this_process(), numbers=numbers
        )

    def give_up(self, checkpoint: OpenCheckpoint) -> None:
        """Complete a checkpoint, and all that began after it, without rows, at the place before them.

        Nothing that was written for them counts, and their range of the source has to be read again. Raises
        HookError if the checkpoint was completed, if its completion may be in the log, or if another one is
        open before it, and the errors of `complete`.
        """
        self._give_up(self._own_number(checkpoint))

    def _give_up(self, number: int | None = None) -> None:
        """Give up all open checkpoints, of which this one has to be the first."""
        registered = self._require_live()
        with self._completing:
            before = self._unacknowledged
            if before is not None and not before.gives_up:
                raise HookError(
                    f"the completion of checkpoint {before.number} may be in the log already, so it cannot "
                    "be given up. Repeat the call of complete, with the same arguments"
                )
            if number is not None:
                self._require_next(number)
            while self._first_open() < self._next:
                self._complete(registered, self._first_open(), None, self._offsets, None, {})

    def complete(
        self,
        checkpoint: OpenCheckpoint,
        results: Iterable[WriterResult],
        *,
        source_offsets: Any,
        watermark: int | None = None,
        listeners: Mapping[str, str] | None = None,
    ) -> None:
        """Complete a checkpoint: the files of these results count, and nothing else does.

        - `source_offsets`: the place in the caller's source after this checkpoint, as JSON data, at most
          65,536 characters. `start` returns it after a restart.
        - `watermark`: in milliseconds since the Unix epoch. Without it, the highest event time counts.
        - `listeners`: state of listeners by their names, as of this checkpoint.

        On return, Kafka has acknowledged the completion, and no crash loses the checkpoint. After
        PublishFailed, repeat the call with the same arguments, or start a new driver. Raises RegionReplaced.
        """
        registered, offsets = self._require_live(), offsets_text(source_offsets)
        found = tuple(results)
        with self._completing:
            number = self._own_number(checkpoint)
            self._require_next(number)
            self._complete(registered, number, found, offsets, watermark, listeners or {})

    def _complete(
        self,
        registered: Registered,
        number: int,
        results: Sequence[WriterResult] | None,
        offsets: str | None,
        watermark: int | None,
        listeners: Mapping[str, str],
    ) -> None:
        """Complete the next checkpoint; without results it is given up."""
        body = completion(
            (registered.incarnation, number),
            results or (),
            predecessor=self._previous,
            source_offsets=offsets,
            watermark=watermark,
            listeners=listeners,
        )
        position = Position(incarnation=registered.incarnation, checkpoint=number, digest=body.source_digest)
        event = self._region.event(
            EventType.CHECKPOINT_COMPLETED, registered.incarnation, body, checkpoint=number
        )
        is_repeated = self._unacknowledged is not None
        event = self._same_as_before(_Completion(number, event, results is None))
        held = [message for result in results or () for message in result.held]
        self._state.add_completed(CommittedCheckpoint(number, parsed_offsets(offsets), position))
        self._publish(event, held, number, is_repeated=is_repeated)
        with self._state.lock:
            self._unacknowledged, self._previous, self._offsets = None, position, offsets
            self._heartbeats.complete(number)

    def _publish(self, event: Event, held: Sequence[Message], number: int, *, is_repeated: bool) -> None:
        try:
            publish_completion(self._region, [event], held, self._sink.message_max_bytes)
        except EventTooLarge:
            # The broker has refused it now. An earlier try may have brought it into the log.
            if not is_repeated:
                self._unacknowledged = None
                self._state.remove_completed(number)
            raise

    def _same_as_before(self, now: _Completion) -> Event:
        """Return the event of an earlier call whose acknowledgement is missing, which must be equal."""
        before = self._unacknowledged
        if before is None:
            self._unacknowledged = now
            return now.event
        if before.event.body != now.event.body:
            raise HookError(
                f"the completion of checkpoint {now.number} may be in the log with other content. Repeat the "
                "call with the arguments of the first one, or start a new driver"
            )
        return before.event

    def _require_next(self, number: int) -> None:
        first = self._first_open()
        if number < first:
            raise HookError(
                f"checkpoint {number} was completed already, so its range of the source counts; begin the "
                "next one after it"
            )
        if number > first:
            raise HookError(
                f"checkpoint {number} cannot be completed before checkpoint {first}; complete that first, or "
                "give up all that are open"
            )

    def _first_open(self) -> int:
        previous = self._previous
        return previous.checkpoint + 1 if previous is not None else 0

    def _own_number(self, checkpoint: OpenCheckpoint) -> int:
        if checkpoint.incarnation != self._incarnation or checkpoint.number >= self._next:
            raise NotOurs(
                f"checkpoint {checkpoint.number} of {checkpoint.incarnation} is not open in this driver "
                f"({self._incarnation}); give one that its `begin` has returned"
            )
        return checkpoint.number

    def _require_live(self) -> Registered:
        """Return the registration in force. If a notification names another one, the coordinator is asked."""
        registered = self._registered
        if self._process not in (None, os.getpid()):
            raise HookError(
                "this driver was started in another process. Give an OpenCheckpoint to workers, and complete "
                "it in the process where it began"
            )
        if registered is None:
            raise HookError("this driver was not started, or has ended; call `start`, or make another one")
        self._state.check(registered, self._base)
        return registered

    def _report_overdue(self, registered: Registered, overdue: OverdueUploads | None) -> None:
        """Report files that were not sent in time, and keep those of this machine on their way."""
        uploads = self._sink.uploads
        if overdue is None or uploads is None:
            return
        oldest, committed = self._state.oldest(), self._state.committed
        if committed is not None and committed.position.incarnation == registered.incarnation:
            overdue.commit(committed.number)
        if oldest is not None:
            overdue.complete(*oldest)
        in_spool = keep_uploading(uploads, self._region, registered.incarnation)
        overdue.report(registered.incarnation, time.monotonic(), in_spool)

    def decline(self, checkpoint: OpenCheckpoint, reason: str = "") -> None:
        """Say that an open checkpoint will not be completed soon: with partial commits, none waits for it.

        It stays open, and may be completed later. `sluicegate status` shows the first 1,000 characters of
        `reason`, which must not have secrets. Raises PublishFailed and RegionReplaced.
        """
        registered, number = self._require_live(), self._own_number(checkpoint)
        publish(self._region, [self._region.declining(registered, number, "declined", reason)])

    # --- commits ----------------------------------------------------------------------------------

    @property
    def committed(self) -> CommittedCheckpoint | None:
        """The newest checkpoint of this region known to be committed, with its source offsets."""
        return self._state.committed

    def await_commit(self, checkpoint: OpenCheckpoint, timeout: float | None = None) -> CommittedCheckpoint:
        """Wait until a completed checkpoint is committed, and return the newest committed one.

        Without a timeout, in seconds, the wait ends with the commit, or with RegionReplaced. Raises
        TimeoutError; nothing is lost then, and the commit may still follow.
        """
        number = self._own_number(checkpoint)
        if number >= self._first_open():
            raise HookError(f"checkpoint {number} is not completed; call `complete` before the wait")
        return self._state.await_commit(number, timeout, self._require_live)

    # --- the end ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop the driver: commits of other regions do not wait for this one until its next start.

        Completed checkpoints are committed as always, and open ones are given up. Repeated calls are allowed.
        In a process that was forked from the one of the driver, this does nothing.
        """
        if self._process not in (None, os.getpid()):
            return
        is_finished = True
        if self._registered is not None and self._first_open() < self._next:
            try:
                self._give_up()
            except HookError as error:
                # A completion may be in the log, so the region is not idle.
                is_finished = False
                self._say_last_word()
                _log.error(
                    "region %s of %s: its open checkpoints were not given up (%s). %s. Commits of the "
                    "stream's other regions may wait for it; start a driver of it to end that",
                    *(self._region.name, self._region.stream, error, ACKNOWLEDGED),
                )
        self._end(idle=is_finished)

    def _say_last_word(self) -> None:
        """Decline what is open, as far as Kafka is there: the process ends with work under way."""
        if self._registered is None:
            return
        last = self._region.declining(self._registered, self._next - 1, "process-ended", "")
        with suppress(HookError):
            publish(self._region, [last], min(_LAST, self._region.publish_timeout))

    def close(self) -> int | None:
        """End the region after its last completed checkpoint, whose number is returned; None: there is none.

        A bounded source ends so. A later start opens the region again. Raises HookError if a checkpoint is
        open, and PublishFailed.
        """
        registered = self._require_live()
        with self._state.lock:
            first, following = self._first_open(), self._next
        if first != following:
            raise HookError(
                f"the region {self._region.name} has open checkpoints from {first} on; complete them or give "
                "them up before `close`"
            )
        own = self._previous is not None and self._previous.incarnation == registered.incarnation
        final = self._previous.checkpoint if own and self._previous is not None else None
        publish(self._region, [self._region.closing(registered, final)])
        self._end(idle=False)
        return final

    def _end(self, *, idle: bool) -> None:
        self._heartbeats.stop(idle=idle)
        self._feed.stop()
        self._registered = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _number_of(base: Position | None) -> int:
    return -1 if base is None else base.checkpoint


class DriverHeartbeats:
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
        """Time from which on no checkpoint is open."""
        self._is_idle = False
        """True if the newest heartbeat that Kafka has acknowledged states idle."""
        self._newest: int | None = None
        """The newest checkpoint that has begun."""
        self._attempted: int | None = None
        """The newest checkpoint whose beginning may be in the log."""
        self._completed: int | None = None
        """The newest checkpoint that is completed: the later ones are open."""
        self._may_be_idle = False
        """True if a heartbeat may have stated idle since the newest beginning that the log has."""
        self._ended = False
        self._registered = Registered("", "")
        self._thread: threading.Thread | None = None
        self._failures = Failures()
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

        On return, the log has the beginning if a heartbeat may have stated idle before. The number is needed,
        because such a heartbeat may still be in flight. Raises PublishFailed; then nothing has begun.
        """
        with self._changed:
            # From here on no heartbeat states idle, so there is nothing else to take back.
            before, self._newest = self._newest, number
            self._attempted = number
            may_be_idle = self._may_be_idle
        if may_be_idle:
            try:
                self._send(self._region.heartbeat(self._registered, begins=number))
            except BaseException:
                with self._changed:
                    self._newest = before
                raise
        with self._changed:
            self._may_be_idle = self._is_idle = False

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
            # Nothing begins any more, so a beginning without an acknowledgement is over as well.
            last = self._region.heartbeat(self._registered, idle=True, after=self._attempted)
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
                if self._failures.add():
                    _log.warning(
                        "region %s of %s: a heartbeat was not sent (%d in a row): %s. Its files and commits "
                        "do not depend on it; the next one follows in %g s",
                        *(
                            self._region.name,
                            self._region.stream,
                            self._failures.count,
                            error,
                            self._interval,
                        ),
                    )
            else:
                self._failures.clear()
            self._pause()

    def _pause(self) -> None:
        """Wait for the next heartbeat: the interval is over, or the region became idle or active."""
        due = time.monotonic() + (spread(self._interval) if self._failures.count else self._interval)
        with self._changed:
            while not self._ended:
                at = due if self._failures.count else min(due, self._changes_at())
                left = at - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def _changes_at(self) -> float:
        """Return the time at which the last heartbeat is no longer true."""
        return math.inf if self._is_open or self._is_idle else self._rests_since + self._idle_after

    def _beat(self) -> None:
        with self._changed:
            rests = time.monotonic() - self._rests_since
            idle = not self._is_open and rests >= self._idle_after
            # Noted first: the event may be in the log without an acknowledgement.
            self._may_be_idle = self._may_be_idle or idle
            begun = self._newest
        interval = max(1, round(self._interval * 1000))
        after = begun if idle else None
        beat = self._region.heartbeat(self._registered, idle=idle, after=after, interval=interval)
        self._send(beat, self._interval)
        with self._changed:
            # A checkpoint that has begun meanwhile has taken it back.
            self._is_idle = idle and begun == self._newest

    def _send(self, event: Event, timeout: float | None = None) -> None:
        publish(self._region, [event], timeout)
