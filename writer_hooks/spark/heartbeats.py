"""Heartbeats and closings of the regions of one session, sent from a thread of its own.

Spark's listener queues a `Signal` for each event of a query. `Heartbeats` keeps a `Run` for each query that
has started and not ended, and sends its heartbeats. No file and no completion depends on this thread: if it
fails, commits of other regions wait up to `alignment_timeout`, and nothing is lost.
"""

import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Final, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from sluicegate.kafka.clients import spread
from sluicegate.writer_hooks.commit_feed import Followers
from sluicegate.writer_hooks.errors import (
    ACKNOWLEDGED,
    BatchUnfinished,
    Failures,
    HookError,
    PublishFailed,
    RegionReplaced,
    RegistrationUnanswered,
)
from sluicegate.writer_hooks.options import PATIENCE, Repetition, SinkOptions
from sluicegate.writer_hooks.publisher import publish
from sluicegate.writer_hooks.region import Event, Live, Region, Registered
from sluicegate.writer_hooks.spark.checkpoint import (
    FOLDER,
    CheckpointLocation,
    IncarnationMarker,
    root_of,
    stream_of,
)
from sluicegate.writer_hooks.spark.incarnation import check_live, end_region, question, rest_region
from sluicegate.writer_hooks.spark.location import Location
from sluicegate.writer_hooks.spark.preflight import troubles, wrong_options
from sluicegate.writer_hooks.spark.registry import Registry
from sluicegate.writer_hooks.upload.overdue import Committed, OverdueUploads, keep_uploading

_log = logging.getLogger(__name__)

_OWN: Final = re.compile(r"sluicegate\.(?:writer_hooks\.errors|lakes\.port)\.(\w+: .*)")
"""An error of the hooks, or of a table, in the text of a failed run. Its sentences have no secrets."""
_OTHERS: Final = re.compile(r"^(?:Caused by: )?(?:[\w.$]*\.)?(\w+(?:Error|Exception))\b", re.MULTILINE)
"""The class of any other error there."""
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
"""Spark's name of an error."""
_LONGEST_SEARCH: Final = 0.5
"""Longest pause in seconds between two attempts to find the options of a run."""
_REACH: Final = 10.0
"""Seconds for Kafka to respond before it is reported as unreachable."""
_LEAST: Final = 0.5
"""Minimum time in seconds for the last heartbeat."""
_GRACE: Final = 2.0
"""Additional seconds for the thread to end after its deadline."""
_CLOSING: Final = 60.0
"""Seconds for a coordinator to answer a query that ends without a batch; other regions wait meanwhile."""

# --- batches that earlier runs have left to uploaders -------------------------------------------------
#
# A run that ends before `upload.timeout` reports no lost files. So the next runs measure the time of its
# newest batch together: the first of them notes the batch in the checkpoint location, and the time stays
# until the batch is committed.


class InheritedBatch(BaseModel):
    """Newest batch that was completed when a run began."""

    model_config = ConfigDict(frozen=True)

    incarnation: str
    batch: int
    since: float
    """Time of the note, in seconds since the Unix epoch."""


def inherited_batch(
    uri: str, marker: IncarnationMarker, committed: int | None, now: float
) -> InheritedBatch | None:
    """Return the batch of earlier runs whose events may be missing; note it if it is a new one.

    `committed` is the newest committed batch of the incarnation, if it is known; `now` is in seconds since
    the Unix epoch. Raises BadCheckpointLocation.
    """
    location, stream = Location(root_of(uri)), stream_of(uri)
    name = f"{FOLDER}/unsent.json" if stream is None else f"{FOLDER}/unsent/{stream}.json"
    note, known = _read_note(location.read(name)), -1 if committed is None else committed
    if note is not None and note.incarnation == marker.incarnation and note.batch > known:
        return note
    newest = CheckpointLocation(uri).newest_completed()
    if newest is None or newest < marker.first or newest <= known:
        if note is not None:
            location.delete(name)
        return None
    note = InheritedBatch(incarnation=marker.incarnation, batch=newest, since=now)
    location.write(name, note.model_dump_json().encode())
    return note


def _read_note(content: bytes | None) -> InheritedBatch | None:
    try:
        return None if content is None else InheritedBatch.model_validate_json(content)
    except ValidationError:
        return None  # Its time begins again.


# --- runs of queries, as the listener knows them ------------------------------------------------------

FIRST_SEARCH: Final = 0.05
FIRST_QUESTION: Final = 30.0
"""Seconds without a commit, while a completed batch waits for one, before the coordinator is asked."""
_LONGEST_QUESTION: Final = 480.0
"""The longest pause in seconds between two such questions."""
_MOST_BATCHES: Final = 1_000

Options = Mapping[str, str]
Finder = Callable[[], Options | None]
"""Function that returns the options of a run's sink: None while unknown, empty for another sink."""


Ender = Callable[[str], bool]
"""Function that ends a run, which fails with the given message. It does not wait for the end.

It returns False if the run is over already.
"""

Over = Callable[[], bool]
"""Function that returns True if a run is over, perhaps before Spark has reported its end."""


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
    end: Ender | None = None
    """None: this process cannot end the run, which fails at its next batch."""
    over: Over | None = None
    """None: only Spark's report of the end is known, as of a run in another process."""
    batch: int | None = None
    """Number of the batch of a progress."""
    error: str = ""
    """Error of a failed run as Spark prints it, with its causes."""


class Signals(Protocol):
    """Receiver of signals."""

    def put(self, signal: Signal) -> None:
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
    end: Ender | None = None
    over: Over | None = None
    idle: bool = False
    ended: bool = False
    """The query has ended without error. The run is kept until the log contains that its region is idle."""
    failed: str = ""
    """Error of a run that has failed. It is kept until the log contains its last word."""
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
    overdue: OverdueUploads | None = None
    """Batches whose files are left to uploaders, if the options say so."""
    completed: int | None = None
    """Newest batch with rows that has ended."""
    committed: int | None = None
    """Committed batch as of the newest heartbeat."""
    question: Repetition | None = None
    """Times of the questions, while a completed batch waits for its commit."""
    inherited: int | None = None
    """Newest batch that earlier runs have completed, while its commit is not known."""
    missed: Failures = field(default_factory=Failures)
    """Heartbeats that were not sent."""
    wall_clock: Callable[[], float] = time.time
    """Function that returns the seconds since the Unix epoch."""
    search_pause: float = FIRST_SEARCH
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

        Without a commit nobody else reports that the log does not know this run, as after an adoption.
        `committed` is the newest committed batch of its incarnation.
        """
        waits = self.completed is not None and (committed is None or committed < self.completed)
        if not waits or committed != self.committed:
            self.committed, self.question = committed, None
        if not waits:
            return False
        if self.question is None:
            self.question = Repetition(now + FIRST_QUESTION, FIRST_QUESTION, _LONGEST_QUESTION)
        return self.question.is_due(now)

    def report_overdue(
        self, options: SinkOptions, incarnation: str, committed: int | None, ask: Committed
    ) -> None:
        """Report batches whose files were left to uploaders that did not send them in time.

        `committed` is the newest committed batch of the incarnation, if it is known; `ask` asks for it.
        Raises as `publish` does, and BadCheckpointLocation.
        """
        if options.uploads is None:
            return
        in_spool = keep_uploading(options.uploads, options.region, incarnation)
        overdue = self.overdue or OverdueUploads(options.region, options.uploads)
        if self.overdue is None:
            self._inherit(options, incarnation, committed, overdue)
        self.overdue = overdue
        for number, at in self.batches.items():
            overdue.complete(number, at)
        self.batches.clear()
        if committed is not None:
            overdue.commit(committed)
        overdue.report(incarnation, time.monotonic(), in_spool, ask)
        if self.inherited is not None and self.inherited <= overdue.committed:
            # The next run begins with what this one has completed.
            self._inherit(options, incarnation, overdue.committed, overdue)
            self.inherited = None

    def _inherit(
        self, options: SinkOptions, incarnation: str, committed: int | None, overdue: OverdueUploads
    ) -> None:
        """Count the time of the newest batch that earlier runs have completed."""
        if self.marker is None or self.marker.incarnation != incarnation:
            return
        now = self.wall_clock()
        found = inherited_batch(options.checkpoint_location, self.marker, committed, now)
        self.inherited = None if found is None else found.batch
        if found is not None:
            overdue.complete(found.batch, time.monotonic() - max(0.0, now - found.since))

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
        planned = CheckpointLocation(options.checkpoint_location).planned(marker.first)
        event = region.registration(marker.incarnation, marker.base, planned=planned)
        return Registered(marker.incarnation, event.envelope.id), [event]

    def last_registration(
        self, options: SinkOptions, registry: Registry | None
    ) -> tuple[Registered | None, list[Event]]:
        """Return the registration of a run that has ended, like `registration`."""
        if self.marker is None:
            # The run has ended before its first heartbeat.
            self.marker = CheckpointLocation(options.checkpoint_location).marker()
        return self.registration(options, registry)


def _last_error(text: str) -> str:
    """Return the cause of a failed run, from its text; that of others may have secrets, so it is left out."""
    if own := _OWN.findall(text):
        return str(own[-1])
    names = [found[-1] for each in (_OTHERS, _CONDITION) if (found := each.findall(text))]
    return f"the query failed: {', '.join(names) or 'Spark gives no cause'}. The log of its driver has more"


# --- the sender ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Heartbeats:
    """Sender of events for signals. No signal is waited for; the next heartbeat replaces one that fails."""

    interval: float
    idle_after: float
    outcomes: Followers = field(default_factory=Followers)
    """Followers of the regions, active while their queries run."""
    registry: Registry | None = None
    """Registrations of the workers."""
    _signals: "queue.SimpleQueue[Signal | None]" = field(default_factory=queue.SimpleQueue)
    _runs: dict[str, Run] = field(default_factory=dict)
    _thread: threading.Thread | None = None
    _until: float = 0.0
    """Deadline of `stop`, in monotonic seconds; 0 before `stop`."""

    def put(self, signal: Signal) -> None:
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
            for signal in self._queued():
                if signal is None:
                    self._finish()
                    return
                self._handle(signal)
            self._beat_due()

    def _queued(self) -> Iterator[Signal | None]:
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
        self._runs = {name: run for name, run in self._runs.items() if run.ended or run.failed}
        while self._runs and time.monotonic() < self._until:
            self._beat_due()
            time.sleep(min(self._pause() or 0.0, max(0.0, self._until - time.monotonic())))
        for run in (each for each in self._runs.values() if each.ended):
            _log.error(
                "%s: the driver ends, and Kafka has not acknowledged that the region is idle. %s. Commits of "
                "the stream's other regions wait for it, each up to alignment_timeout; start the query again "
                "to end that",
                *(run.name, ACKNOWLEDGED),
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
            run = Run(signal.run, signal.query, signal.find, now, now + FIRST_SEARCH, signal.end, signal.over)
            self._runs[signal.query] = run
        if run.id != signal.run:
            return  # a late signal of a run that was replaced
        if signal.kind in (Kind.ENDED, Kind.FAILED):
            del self._runs[signal.query]
            if run.followed is not None:
                self.outcomes.leave(run.followed, run.query)
            if signal.kind is Kind.ENDED:
                self._end(run, now)
                return
            if own := _OWN.findall(signal.error):
                # Spark names only "Writing job failed" if the sink fails at the end of a batch.
                _log.error("%s has failed: %s", run.name, own[-1])
            run.failed, run.due = _last_error(signal.error), now
            self._runs[run.query] = run
        elif signal.kind is not Kind.STARTED:
            self._update_idle(run, signal, now)

    def _update_idle(self, run: Run, signal: Signal, now: float) -> None:
        if signal.rows > 0:
            run.last_rows = now
            run.note_batch(signal.batch, now)
        idle = signal.kind is Kind.IDLE or (signal.rows == 0 and now - run.last_rows >= self.idle_after)
        if idle != run.idle:
            run.idle, run.due = idle, now

    def _beat(self, run: Run) -> None:
        """Send a heartbeat. Its failure must end neither the query nor the thread."""
        try:
            is_sent = self._send(run)
        except Exception as error:
            self._log_missed(run, error)
        else:
            if is_sent:
                self._log_sent_again(run)
        if run.options is None:
            # Spark plans a query soon after its start. An early check reports a wrong option before the first
            # batch fails.
            run.search_pause = min(2 * run.search_pause, self.interval, _LONGEST_SEARCH)
            run.due = time.monotonic() + run.search_pause
        else:
            run.due = time.monotonic() + (spread(self.interval) if run.missed.count else self.interval)

    @staticmethod
    def _log_sent_again(run: Run) -> None:
        if missed := run.missed.clear():
            _log.warning("%s: heartbeats are sent again, after %d that were not", run.name, missed)

    def _send(self, run: Run) -> bool:
        """Send what is due. Return True if a heartbeat was acknowledged."""
        if run.ended:
            self._send_last(run)
            return False
        if run.failed:
            self._send_last_word(run)
            return False
        if run.options is None and self._options(run):
            try:
                self._examine(run)
                if run.options:
                    self._begin(run, SinkOptions.parse(run.options))
            except BaseException:
                # The next heartbeat begins again, since a run that is not followed learns of no commit.
                run.options = None
                raise
        options = self._options(run)
        if not options:
            return False
        parsed = SinkOptions.parse(options)
        # Until the events are acknowledged, the first batch may not register: the later one of two
        # registrations is in force, and this thread would not know it.
        with self.registry.registering(run.query, wait=False) if self.registry else nullcontext(True) as free:
            sent = self._send_heartbeat(run, parsed) if free else None
        if sent is not None:
            self._report_overdue(run, parsed, sent)
        if run.doubted and run.idle and run.registered is not None:
            self._ask(run, parsed, run.registered)
        return sent is not None

    def _send_heartbeat(self, run: Run, options: SinkOptions) -> Registered | None:
        """Return the registration of the heartbeat that was sent; None if the run has none."""
        registered, events = run.registration(options, self.registry)
        if registered is None:
            return None
        if registered == run.registered:
            self._compare(run, registered)
        # Spark reports the end of a batch late, and perhaps while the next one runs: its location decides.
        pause = CheckpointLocation(options.checkpoint_location).pause() if run.idle else None
        if pause is not None and self.registry is not None:
            # Noted first: the event may be in the log without an acknowledgement.
            self.registry.record_idle(run.query)
        after = pause.after if pause is not None else None
        interval = max(1, round(self.interval * 1000))
        beat = options.region.heartbeat(registered, idle=pause is not None, after=after, interval=interval)
        events = [*events, *self._question(run, options, registered), beat]
        publish(options.region, events, self.interval)
        run.registered = registered
        return registered

    def _question(self, run: Run, options: SinkOptions, own: Registered) -> list[Event]:
        """Return a probe if a batch waits for its commit and a question is due.

        Nobody waits for the answer: it arrives with the outcomes of the region.
        """
        committed = self.registry.committed(run.query, own.incarnation) if self.registry else None
        if self.registry is None or not run.is_question_due(committed, time.monotonic()):
            return []
        found = question(options, own)
        return [found] if found is not None else []

    def _report_overdue(self, run: Run, options: SinkOptions, own: Registered) -> None:
        committed = self.registry.committed(run.query, own.incarnation) if self.registry else None
        run.report_overdue(options, own.incarnation, committed, partial(self._committed, options, own))

    def _committed(self, options: SinkOptions, own: Registered) -> int | None:
        """Return the committed batch of an incarnation, -1 for none; None if no coordinator answers."""
        try:
            answer = check_live(self._impatient(options, PATIENCE), own)
        except HookError:
            return None
        if answer.live != own.incarnation:
            return None
        at = answer.committed
        return at.checkpoint if at is not None and at.incarnation == own.incarnation else -1

    def _impatient(self, options: SinkOptions, least: float = 0.0) -> SinkOptions:
        """Return options that wait for an answer until the next heartbeat, or `least` seconds."""
        limit = min(max(self.interval, least), options.region.registration_timeout)
        return replace(options, region=replace(options.region, registration_timeout=limit))

    def _begin(self, run: Run, options: SinkOptions) -> None:
        """Note the incarnation that the run started with, and follow its region.

        After a reset the location contains another one, which this run must not use.
        """
        run.marker = CheckpointLocation(options.checkpoint_location).marker()
        if self.registry is not None and run.marker is not None:
            found_at_start = self.registry.incarnation(run.query)
            if found_at_start is None:
                self.registry.begin(run.query, run.marker.incarnation)
            elif found_at_start != run.marker.incarnation:
                run.marker = None
        run.followed = options.region
        committed = None if self.registry is None else partial(self.registry.commit, run.query)
        self.outcomes.follow(run.followed, run.query, partial(setattr, run, "live"), committed)

    def _compare(self, run: Run, registered: Registered) -> None:
        """Have the query ask before its next batch if the newest notification does not name its own run.

        It may be the repetition of an old one, so it decides nothing itself.
        """
        live = run.contradicted(registered)
        # `close_region` registers after the end of a query, perhaps before Spark has reported that end.
        if live is None or self.registry is None or (run.over is not None and run.over()):
            return
        if live.incarnation is None:
            found = "the coordinator says that no incarnation of its region is live"
        else:
            other = "another process" if live.incarnation == registered.incarnation else live.incarnation
            found = f"the newest answer of the coordinator names {other}"
        _log.warning(
            "%s: %s, and this query runs the incarnation %s; it asks the coordinator before its next batch, "
            "and fails if its own one has ended or was replaced",
            *(run.name, found, registered.incarnation),
        )
        self.registry.doubt(run.query)
        run.doubted = True

    def _ask(self, run: Run, options: SinkOptions, own: Registered) -> None:
        """Ask in place of the next batch, which an idle source may delay. End a run that was replaced."""
        if self.registry is None or not self.registry.take_doubt(run.query):
            run.doubted = False  # a batch has asked
            return
        try:
            check_live(self._impatient(options), own)
        except RegionReplaced as error:
            # Under Spark Connect, this process cannot end the run: its next batch fails.
            self.registry.doubt(run.query)
            # A run that is over was perhaps replaced by the closing of its own region.
            if run.end is None or run.end(f"{type(error).__name__}: {error}"):
                _log.error("%s: %s", run.name, error)
        except HookError:
            self.registry.doubt(run.query)  # the next heartbeat or batch asks again
            return
        run.doubted = False

    def _send_last(self, run: Run) -> None:
        """Publish that the region of an ended query is idle.

        A region with an unfinished batch gets no heartbeat, because it is not idle.
        """
        timeout = self.interval
        if self._until:
            timeout = max(_LEAST, self._until - time.monotonic())
        try:
            parsed = SinkOptions.parse(run.options or {})
            registered, events = run.last_registration(parsed, self.registry)
            rest_region(parsed, registered, timeout, events)
        except BatchUnfinished as error:
            _log.info("%s", error)
        except (PublishFailed, RegistrationUnanswered):
            raise  # the next heartbeat retries it
        except HookError as error:
            self._log_unannounced(run, error)
        del self._runs[run.query]

    def _send_last_word(self, run: Run) -> None:
        """Publish the error of a run that has failed, for the status of its region."""
        try:
            parsed = SinkOptions.parse(self._options(run) or {})
            registered, unpublished = run.last_registration(parsed, self.registry)
            # The log does not know a run that has not registered.
            if registered is not None and not unpublished:
                number = CheckpointLocation(parsed.checkpoint_location).unfinished()
                word = parsed.region.declining(registered, number, "query-failed", run.failed)
                publish(parsed.region, [word], self.interval)
        except PublishFailed:
            raise  # the next heartbeat retries it
        except HookError as error:
            _log.info("the error of %s was not published: %s", run.name, error)
        del self._runs[run.query]

    def _log_missed(self, run: Run, error: Exception) -> None:
        if not run.missed.add():
            return
        effect = (
            "Until one arrives, commits of the stream's other regions may wait for this one, which is idle"
            if run.idle or run.ended
            else "Its files and commits do not depend on it"
        )
        _log.warning(
            "%s: a heartbeat was not sent (%d in a row): %s. %s; the next one follows in %g s",
            run.name,
            run.missed.count,
            error,
            effect,
            self.interval,
        )

    def _examine(self, run: Run) -> None:
        """Log the problems of a sink before its first batch, which an idle source may delay."""
        wrong = wrong_options(run.options or {})
        if wrong:
            _log.error(
                "%s cannot write: %s. Spark asks the sink at the first batch only, and the query fails then; "
                "stop it, correct the options, and start it again",
                run.name,
                "; ".join(wrong),
            )
            # Empty options mark the run as one of another sink, so it gets no heartbeats.
            run.options = {}
            return
        for trouble in troubles(SinkOptions.parse(run.options or {}), _REACH):
            _log.error("%s: its batches will fail as long as this lasts: %s", run.name, trouble)

    @staticmethod
    def _options(run: Run) -> Options | None:
        if run.options is None:
            run.options = run.find()
        return run.options

    def _end(self, run: Run, now: float) -> None:
        """Close a bounded region. Any other region becomes idle until its query starts again."""
        try:
            options = self._options(run)
            if not options:
                return
            parsed = SinkOptions.parse(options)
            if parsed.region.bounded:
                limit = min(parsed.region.registration_timeout, _CLOSING)
                parsed = replace(parsed, region=replace(parsed.region, registration_timeout=limit))
                registered, events = run.last_registration(parsed, self.registry)
                end_region(parsed, registered, events)
            else:
                run.ended, run.due = True, now
                self._runs[run.query] = run
        except BatchUnfinished as error:
            _log.info("%s", error)
        except Exception as error:
            self._log_unannounced(run, error)

    @staticmethod
    def _log_unannounced(run: Run, error: Exception) -> None:
        _log.error(
            "%s: its end was not announced: %s. %s. Commits of the stream's other regions may wait for it; "
            "announce it with sluicegate.writer_hooks.close_region(options), or start the query again",
            *(run.name, error, ACKNOWLEDGED),
        )
