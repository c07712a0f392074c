"""The listener that turns what Spark says about its queries into heartbeats and closings."""

import time
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery, StreamingQueryListener

from sluicegate.writer_hooks.outcomes import OnOutcome, Outcomes
from sluicegate.writer_hooks.spark.heartbeats import Finder, Heartbeats, Kind, Options, Signal
from sluicegate.writer_hooks.spark.registry import Registry
from sluicegate.writer_hooks.spark.source import NAME

_LAST_SIGNALS: Final = 5.0  # seconds for Spark's last signals to arrive when the driver ends
_LAST_EVENTS: Final = 15.0  # seconds for the events made of them
_POLL: Final = 0.05


class RegionListener(StreamingQueryListener):  # type: ignore[misc]
    """Callbacks only take note: they run in Spark's own threads. Copied to the server under Spark Connect."""

    def __init__(
        self, folder: str, interval: float, idle_after: float, on_outcome: OnOutcome | None = None
    ) -> None:
        self._folder = folder
        self._interval = interval
        self._idle_after = idle_after
        self._on_outcome = on_outcome
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
            self._queries.started(str(event.id), str(event.runId))
        self._tell(Kind.STARTED, event)

    def onQueryProgress(self, event: Any) -> None:
        """Note the end of a batch."""
        self._tell(Kind.PROGRESS, event.progress, int(event.progress.numInputRows))

    def onQueryIdle(self, event: Any) -> None:
        """Note that the sources have nothing new."""
        self._tell(Kind.IDLE, event)

    def onQueryTerminated(self, event: Any) -> None:
        """Note the end of a run."""
        self._tell(Kind.ENDED if event.exception is None else Kind.FAILED, event)
        if self._queries is not None:
            self._queries.told(str(event.runId))

    def close(self) -> None:
        """Send what is still to be sent, when the driver ends."""
        if self._queries is not None:
            self._queries.await_news(time.monotonic() + _LAST_SIGNALS)
        if self._heartbeats is not None:
            self._heartbeats.stop(_LAST_EVENTS)

    def _tell(self, kind: Kind, about: Any, rows: int = 0) -> None:
        if self._heartbeats is None:
            self._heartbeats = Heartbeats(self._interval, self._idle_after, Outcomes(self._on_outcome))
        query, run = str(about.id), str(about.runId)
        self._heartbeats.tell(Signal(kind, query, run, self._finder(query, run), rows))

    def _finder(self, query: str, run: str) -> Finder:
        """Ask the sink's workers first, then the query itself, which is held from here on."""
        registry = Registry(self._folder)
        ask = self._queries.asker(run) if self._queries is not None else _unknown
        return lambda: registry.options(query) or ask()


def _unknown() -> Options | None:
    return None


class ClassicQueries:
    """The session's queries, asked through the JVM: a run without batches never reaches the workers."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._running: dict[str, StreamingQuery] = {}

    def started(self, query: str, run: str) -> None:
        """Keep hold of a run: when it has ended, the session no longer knows it."""
        found = self._session.streams.get(query)
        if found is not None:
            self._running[run] = found

    def told(self, run: str) -> None:
        """The end of a run has been told."""
        self._running.pop(run, None)

    def await_news(self, deadline: float) -> None:
        """Wait for the end of those runs to be told that have ended."""
        while time.monotonic() < deadline and any(_over(query) for query in list(self._running.values())):
            time.sleep(_POLL)

    def asker(self, run: str) -> Finder:
        """A question for the options of a run's sink, to be asked at any time."""
        query = self._running.get(run)
        return _unknown if query is None else lambda: self._sink_options(query)

    def _sink_options(self, query: StreamingQuery) -> Options | None:
        try:
            plan = query._jsq.streamingQuery().logicalPlan()
            if (
                plan.getClass().getSimpleName() != "WriteToMicroBatchDataSource"
                or plan.table().name() != NAME
            ):
                return {}
            converters = self._session._jvm.scala.jdk.javaapi.CollectionConverters
            return {str(name): str(value) for name, value in converters.asJava(plan.writeOptions()).items()}
        except Py4JError:
            return None  # not planned yet, failed before that, or the JVM is gone


def _over(query: StreamingQuery) -> bool:
    try:
        return not query.isActive
    except Py4JError:
        return False
