"""The listener that turns what Spark says about its queries into heartbeats and closings."""

import time
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery, StreamingQueryListener

from sluicegate.writer_hooks.spark.heartbeats import Heartbeats, Options, Signal
from sluicegate.writer_hooks.spark.registry import Registry
from sluicegate.writer_hooks.spark.source import NAME

_LAST_SIGNALS: Final = 5.0  # seconds for Spark's last signals to arrive when the driver ends
_LAST_EVENTS: Final = 15.0  # seconds for the events made of them
_POLL: Final = 0.05


class RegionListener(StreamingQueryListener):  # type: ignore[misc]
    """Callbacks only take note: they run in Spark's own threads. Copied to the server under Spark Connect."""

    def __init__(self, folder: str, interval: float, idle_after: float) -> None:
        self._folder = folder
        self._interval = interval
        self._idle_after = idle_after
        self._heartbeats: Heartbeats | None = None
        self._queries: ClassicQueries | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_heartbeats": None, "_queries": None}

    def look_into(self, session: SparkSession) -> None:
        """Let the listener ask the session's queries for what no worker has told it."""
        self._queries = ClassicQueries(session)

    def onQueryStarted(self, event: Any) -> None:
        """Note the start of a run; called before its first batch."""
        Registry(self._folder).new_run(str(event.id))
        if self._queries is not None:
            self._queries.started(str(event.id))
        self._tell(Signal(str(event.id), "started"))

    def onQueryProgress(self, event: Any) -> None:
        """Note the end of a batch."""
        progress = event.progress
        self._tell(Signal(str(progress.id), "progress", int(progress.numInputRows)))

    def onQueryIdle(self, event: Any) -> None:
        """Note that the sources have nothing new."""
        self._tell(Signal(str(event.id), "idle"))

    def onQueryTerminated(self, event: Any) -> None:
        """Note the end of a run."""
        self._tell(Signal(str(event.id), "failed" if event.exception is not None else "ended"))

    def close(self) -> None:
        """Send what is still to be sent, when the driver ends."""
        if self._queries is not None:
            self._queries.await_news(time.monotonic() + _LAST_SIGNALS)
        if self._heartbeats is not None:
            self._heartbeats.stop(_LAST_EVENTS)
        Registry(self._folder).remove()

    def _tell(self, signal: Signal) -> None:
        if self._heartbeats is None:
            self._heartbeats = Heartbeats(self._find, self._interval, self._idle_after)
        self._heartbeats.tell(signal)
        if self._queries is not None and signal.kind in ("ended", "failed"):
            self._queries.ended(signal.query)

    def _find(self, query: str) -> Options | None:
        options = Registry(self._folder).options(query)
        if options is None and self._queries is not None:
            return self._queries.sink_options(query)
        return options


class ClassicQueries:
    """The session's queries, asked through the JVM: a run without batches never reaches the workers."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._running: dict[str, StreamingQuery] = {}
        self._ended: dict[str, StreamingQuery] = {}

    def started(self, query: str) -> None:
        """Keep hold of a query: when it has ended, the session no longer knows it."""
        found = self._session.streams.get(query)
        if found is not None:
            self._running[query] = found

    def ended(self, query: str) -> None:
        """The end of a query was told; its last run can still be asked about."""
        if query in self._running:
            self._ended = {query: self._running.pop(query)}

    def await_news(self, deadline: float) -> None:
        """Wait for the end of those runs to be told that have ended."""
        while time.monotonic() < deadline and any(_over(query) for query in list(self._running.values())):
            time.sleep(_POLL)

    def sink_options(self, query: str) -> Options | None:
        """The options of a query's sink, empty if it is another sink, None as long as that is unknown."""
        found = self._running.get(query) or self._ended.get(query)
        if found is None:
            return None
        try:
            execution = found._jsq.streamingQuery()
            plan = execution.logicalPlan()
            if (
                plan.getClass().getSimpleName() != "WriteToMicroBatchDataSource"
                or plan.table().name() != NAME
            ):
                return {}
            converters = self._session._jvm.scala.jdk.javaapi.CollectionConverters
            options = {
                str(name): str(value) for name, value in converters.asJava(plan.writeOptions()).items()
            }
        except Py4JError:
            return None  # not planned yet, failed before that, or the JVM is gone
        return options


def _over(query: StreamingQuery) -> bool:
    try:
        return not query.isActive
    except Py4JError:
        return False
