"""Listener that turns Spark's query events into signals, of which heartbeats and closings are made."""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery, StreamingQueryListener
from pyspark.sql.streaming.listener import JStreamingQueryListener

from sluicegate.writer_hooks.errors import HookError
from sluicegate.writer_hooks.options import NAME
from sluicegate.writer_hooks.spark.checkpoint import incarnations_in
from sluicegate.writer_hooks.spark.heartbeats import (
    Ender,
    Finder,
    Kind,
    Options,
    Over,
    Signal,
    Signals,
)
from sluicegate.writer_hooks.spark.registry import ATTACHED, Registry, stream_key

_LAST_SIGNALS: Final = 5.0  # seconds for Spark's last signals to arrive when the driver ends
_LAST_EVENTS: Final = 15.0  # seconds for the events made of them
_POLL: Final = 0.05
_FAILED: Final = "STREAM_FAILED"
"""Spark's error class of a query that has failed."""
_FOREACH: Final = "ForeachBatchSink"
_WATCH: Final = 0.5  # seconds between two checks for queries that are being stopped

_log = logging.getLogger(__name__)


class _Callbacks(JStreamingQueryListener):  # type: ignore[misc]
    """Called by the JVM, in one thread for all queries.

    PySpark makes Python objects of all parts of a progress, with a call to the JVM for each value. Short
    batches end faster than that, and their events would queue up.
    """

    def onQueryProgress(self, jevent: Any) -> None:
        """Pass on what the listener uses of a progress."""
        told = json.loads(jevent.progress().json())
        progress = SimpleNamespace(
            id=told["id"], runId=told["runId"], numInputRows=told["numInputRows"], batchId=told["batchId"]
        )
        self.pylistener.onQueryProgress(SimpleNamespace(progress=progress))


class RegionListener(StreamingQueryListener):  # type: ignore[misc]
    """Streaming query listener. Its callbacks only queue signals, because they run in Spark's own threads.

    Under Spark Connect it is pickled and runs on the server.
    """

    def __init__(self, folder: str, make_signals: Callable[[], Signals]) -> None:
        """Make a listener; `make_signals` makes the receiver of its signals, in the listener's process."""
        self._folder = folder
        self._make_signals = make_signals
        self._signals: Signals | None = None
        self._queries: ClassicQueries | None = None
        self._callbacks: Any = None
        self._runs: dict[str, str] = {}
        """By query, its current run."""
        self._streams: dict[str, tuple[str, ...]] = {}
        """By run, the keys of its streams, if it writes several."""

    def __getstate__(self) -> dict[str, Any]:
        # Threads and JVM handles cannot be pickled.
        return {**self.__dict__, "_signals": None, "_queries": None, "_callbacks": None}

    @property
    def _jlistener(self) -> Any:
        """The object of the JVM that PySpark registers, in place of its own."""
        if self._callbacks is None:
            self._callbacks = SparkContext._jvm.PythonStreamingQueryListenerWrapper(_Callbacks(self))
        return self._callbacks

    def look_into(self, session: SparkSession) -> None:
        """Let the listener read sink options from the session's queries, if the workers recorded none."""
        self._queries = ClassicQueries(session, Registry(self._folder))

    def onQueryStarted(self, event: Any) -> None:
        """Record the start of a run; called before its first batch."""
        if self._queries is not None:
            self._queries.started(str(event.id), str(event.runId))
        else:
            Registry(self._folder).new_run(str(event.id))
        query, run = str(event.id), str(event.runId)
        self._runs[query] = run
        self._signal(Kind.STARTED, event)
        streams = {} if self._queries is None else self._queries.streams(run)
        if set(streams) - {query}:
            self.add_streams(query, list(streams))

    def add_streams(self, query: str, keys: Sequence[str]) -> None:
        """Send heartbeats for each stream of a query, which the registry has by these keys from now on."""
        run = self._runs.get(query)
        if run is None or run in self._streams:
            return
        self._streams[run] = tuple(keys)
        for key in keys:
            self._send(Kind.STARTED, key, run, self._stream_finder(run, key))

    def onQueryProgress(self, event: Any) -> None:
        """Record the end of a batch."""
        progress = event.progress
        self._signal(Kind.PROGRESS, progress, int(progress.numInputRows), batch=int(progress.batchId))

    def onQueryIdle(self, event: Any) -> None:
        """Record that the sources have no new data."""
        self._signal(Kind.IDLE, event)

    def onQueryTerminated(self, event: Any) -> None:
        """Record the end of a run."""
        error = event.exception
        self._signal(Kind.ENDED if error is None else Kind.FAILED, event, error=error or "")
        run = str(event.runId)
        if self._queries is not None:
            self._queries.forget(run)
        self._streams.pop(run, None)
        if self._runs.get(str(event.id)) == run:
            del self._runs[str(event.id)]

    def close(self) -> None:
        """Send the remaining events when the driver ends."""
        if self._queries is not None:
            self._queries.await_ends(time.monotonic() + _LAST_SIGNALS)
        if self._signals is not None:
            self._signals.stop(_LAST_EVENTS)

    def _signal(
        self, kind: Kind, about: Any, rows: int = 0, error: str = "", batch: int | None = None
    ) -> None:
        query, run = str(about.id), str(about.runId)
        self._send(kind, query, run, self._finder(query, run), rows, error, batch)
        for key in self._streams.get(run, ()):
            self._send(kind, key, run, self._stream_finder(run, key), rows, error, batch)

    def _send(
        self,
        kind: Kind,
        key: str,
        run: str,
        finder: Finder,
        rows: int = 0,
        error: str = "",
        batch: int | None = None,
    ) -> None:
        if self._signals is None:
            self._signals = self._make_signals()
        queries = self._queries
        end, over = (None, None) if queries is None else queries.ending(run)
        self._signals.put(Signal(kind, key, run, finder, rows, end, over, batch, error))

    def _finder(self, query: str, run: str) -> Finder:
        """Return a finder that reads the registry of the workers first, then the query itself.

        The query is looked up now, because the session drops it when it ends.
        """
        registered = self._registry_finder(query)
        ask = self._queries.asker(run) if self._queries is not None else None

        def find() -> Options | None:
            # Each of several streams has signals of its own.
            return {} if run in self._streams else registered() or (None if ask is None else ask())

        return find

    def _stream_finder(self, run: str, key: str) -> Finder:
        registered = self._registry_finder(key)
        known = None if self._queries is None else self._queries.streams(run).get(key)
        return lambda: registered() or known

    def _registry_finder(self, key: str) -> Finder:
        registry = Registry(self._folder)
        return lambda: registry.options(key)


class ClassicQueries:
    """Queries of a session, read through the JVM, because a run without batches never starts a worker."""

    def __init__(self, session: SparkSession, registry: Registry) -> None:
        self._session = session
        self._registry = registry
        self._running: dict[str, StreamingQuery] = {}
        self._newest: dict[str, str] = {}
        """By query, its current run, until it is marked as stopped."""
        self._functions: dict[str, Mapping[str, Options]] = {}
        """By run with ForeachBatch, the options of its streams, by their keys."""
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None

    def started(self, query: str, run: str) -> None:
        """Keep a reference to a run, because the session drops it when it ends."""
        found = self._session.streams.get(query)
        with self._lock:
            self._registry.new_run(query)
            if found is None:
                return
            self._note_function(query, run, found)
            self._running[run] = found
            self._newest[query] = run
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="sluicegate-stops", daemon=True)
                self._watcher.start()

    def _note_function(self, query: str, run: str, found: StreamingQuery) -> None:
        """Record the options and the incarnations that a run with ForeachBatch begins with.

        After a reset the location has another incarnation, which this run must not use. For the data source,
        its heartbeats do the same once its options are known.
        """
        try:
            execution = found._jsq.streamingQuery()
            if execution.sink().getClass().getSimpleName() != _FOREACH:
                return
            location = str(execution.resolvedCheckpointRoot())
            self._functions[run] = ATTACHED.options_at(query, location)
            for stream, incarnation in incarnations_in(location).items():
                self._registry.begin(query if stream is None else stream_key(query, stream), incarnation)
        except (Py4JError, HookError, OSError) as error:
            _log.info("the incarnations of query %s are unknown at its start: %s", query, error)

    def forget(self, run: str) -> None:
        """Forget a run whose end was reported."""
        with self._lock:
            self._running.pop(run, None)
            self._functions.pop(run, None)
            self._newest = {query: newest for query, newest in self._newest.items() if newest != run}

    def _watch(self) -> None:
        """Mark runs that are being stopped, for their workers.

        Spark's `stop` waits for the workers without a notification to them.
        """
        while True:
            with self._lock:
                watched = dict(self._newest)
                if not watched:
                    self._watcher = None
                    return
            for query, run in watched.items():
                if (held := self._running.get(run)) is not None and _over(held):
                    self._mark_stopped(query, run)
            time.sleep(_WATCH)

    def _mark_stopped(self, query: str, run: str) -> None:
        with self._lock:
            if self._newest.get(query) != run:
                return  # the query was started again
            del self._newest[query]
            try:
                self._registry.stop_run(query)
            except OSError as error:
                _log.warning("the stop of query %s could not be told to its workers: %s", query, error)

    def await_ends(self, deadline: float) -> None:
        """Wait until the end of all ended runs is reported, or until the deadline, in monotonic seconds."""
        while time.monotonic() < deadline and any(_over(query) for query in list(self._running.values())):
            time.sleep(_POLL)

    def streams(self, run: str) -> Mapping[str, Options]:
        """Return the options of the streams of a run with ForeachBatch, as far as its function is known."""
        return self._functions.get(run, {})

    def asker(self, run: str) -> Finder | None:
        """Return a function that returns the options of a run's sink. It may be called at any time."""
        query = self._running.get(run)
        if query is None:
            return None
        known = self.streams(run).get(str(query.id))

        def ask() -> Options | None:
            found = self._sink_options(query)
            return known if found is None else found

        return ask

    def ending(self, run: str) -> tuple[Ender | None, Over | None]:
        """Return functions that fail a run and that return if it is over. They may be called at any time."""
        query = self._running.get(run)
        return (None, None) if query is None else (partial(self._fail, query), partial(_over, query))

    def _fail(self, query: StreamingQuery, message: str) -> bool:
        """Stop a query. Its error is this message, as far as the release of Spark allows that.

        Spark itself fails a query only in a batch, and a query with an idle source has none. Return False if
        the query is over already.
        """
        if _over(query):
            return False
        try:
            jvm = self._session._jvm
            reported = jvm.PythonUtils.toScalaMap({"id": query.id, "runId": query.runId, "message": message})
            cause = jvm.java.lang.IllegalStateException(message)
            error = jvm.org.apache.spark.sql.streaming.StreamingQueryException(
                message, cause, _FAILED, reported
            )
            getattr(query._jsq.streamingQuery(), "streamDeathCause_$eq")(error)
        except (Py4JError, TypeError) as problem:
            _log.warning(
                "the query %s ends without an error: Spark does not take one (%s)", query.id, problem
            )
        # The stop waits for a batch that runs, and the heartbeats of other regions must not wait for it.
        threading.Thread(target=_stop, args=(query,), name="sluicegate-ends", daemon=True).start()
        return True

    def _sink_options(self, query: StreamingQuery) -> Options | None:
        try:
            execution = query._jsq.streamingQuery()
            if execution.sink().getClass().getSimpleName() == _FOREACH:
                return None  # If its function is unknown here, its first batch registers.
            plan = execution.logicalPlan()
            if (
                plan.getClass().getSimpleName() != "WriteToMicroBatchDataSource"
                or plan.table().name() != NAME
            ):
                return {}
            converters = self._session._jvm.scala.jdk.javaapi.CollectionConverters
            return {str(name): str(value) for name, value in converters.asJava(plan.writeOptions()).items()}
        except Py4JError:
            return None  # not planned yet, failed before that, or the JVM has ended


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except (Py4JError, PySparkException) as error:
        _log.warning("the query %s could not be stopped: %s", query.id, error)


def _over(query: StreamingQuery) -> bool:
    try:
        return not query.isActive
    except Py4JError:
        # The JVM does not respond: the run counts as active, because no end was observed.
        return False
