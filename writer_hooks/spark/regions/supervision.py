"""Supervision of one region's query, in a thread of its own: start, failure, pause, reset, end.

A failure has one of three reactions. Most queries are restarted, after a pause that grows. A query whose
incarnation has ended is reset to the committed position first. A query that no restart helps stays stopped,
so that the reason is seen.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from sluicegate.events.models import Position
from sluicegate.events.problems import Code
from sluicegate.writer_hooks.errors import HookError, LocationUnavailable
from sluicegate.writer_hooks.spark.regions.division import RegionsFailed
from sluicegate.writer_hooks.spark.regions.query import ONCE, RegionQuery
from sluicegate.writer_hooks.spark.registry import ATTACHED

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


_log = logging.getLogger(__name__)

_ERROR: Final = re.compile(r"sluicegate\.writer_hooks\.errors\.(\w+)|^(\w+):")
"""Also without the module, as the end of an idle query names it."""
_REFUSED: Final = re.compile(
    r"\(incarnation [^\s,()]+, ([a-z-]+)\)|the reset of .* was refused \(([a-z-]+)\)"
)
"""The code of a refused registration, or of a refused reset."""
_UNMENDABLE: Final = frozenset(
    {
        "BadCheckpointLocation",
        "BadListenerState",
        "BadOption",
        "EventTooLarge",
        "NotOurs",
        "PreflightFailed",
        "RegistrationRefused",
        "TopicMissing",
    }
)
_OTHER_PROCESS: Final = "another process runs"
"""Part of an error: a reset would only take the region away from that process."""
_PASSING: Final = frozenset(
    {Code.NO_POLICY, Code.ASSIGNMENT_OPEN, Code.ASSIGNMENT_UNRESOLVED, Code.BASE_UNRESOLVED}
)
"""Refusals that end by themselves."""
_MOVED_ON: Final = frozenset({Code.BASE_DIFFERS, Code.INCARNATION_LIVE})
"""Refusals of a reset during which newer decisions came. The next try begins at the newest one."""
_OF_ROWS: Final = "sluicegate.lakes.port.SchemaMismatch"
"""Error of a task whose rows have other columns than the table."""
_MAY_APPEAR: Final = "[PATH_NOT_FOUND]"
"""Condition of an error of Spark that ends when somebody creates the folder of the source."""
_VARYING: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")
"""Ids and numbers, which are other ones in the same error of the next run."""
UNPLANNABLE: Final = 5
"""Errors of planning in a row after which a query that never ran has failed."""
_POLL: Final = 0.2  # seconds
_PATIENCE: Final = 10.0
"""Seconds for which an end with a drain waits for a registration."""
_random: Final = SystemRandom()


# --- reactions to failures ----------------------------------------------------------------------------


class Reaction(StrEnum):
    """Reaction to the failure of a query."""

    RESTART = "restart"
    RESET = "reset"
    """The location is set back to the committed position first."""
    FAIL = "fail"
    """No restart helps."""


def reaction(error: str) -> Reaction:
    """Return the reaction to the text of an error, which contains the class of the hooks' own errors."""
    names = [long or short for long, short in _ERROR.findall(error)]
    name = names[-1] if names else ""
    if name == "RegionReplaced":
        return Reaction.FAIL if _OTHER_PROCESS in error else Reaction.RESET
    if name == "RegistrationRefused":
        codes = _REFUSED.findall(error)
        registration, reset = codes[-1] if codes else ("", "")
        if registration == Code.INCARNATION_ENDED:
            return Reaction.RESET
        if (registration or reset) in _PASSING or reset in _MOVED_ON:
            return Reaction.RESTART
    return Reaction.FAIL if name in _UNMENDABLE else Reaction.RESTART


def planning_error(error: BaseException) -> str | None:
    """Return what is equal in each repetition of an error of planning; None for another error.

    Such an error is that of a query whose columns, options or functions do not fit. A cause of the error
    counts too, because an error of planning may end a query that has started.
    """
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, AnalysisException) and _MAY_APPEAR not in str(each):
            return _same(str(each))
        each = getattr(each, "_cause", None) or each.__cause__
    return _same(_OF_ROWS) if _OF_ROWS in str(error) else None


def _same(text: str) -> str:
    return _VARYING.sub("", text.partition("\n")[0])


# --- the supervisor -----------------------------------------------------------------------------------


class State(StrEnum):
    """State of a region's query."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """A pause before the next start."""
    RESETTING = "resetting"
    STOPPED = "stopped"
    ENDED = "ended"
    """The query came to its own end, as with the trigger availableNow."""
    FAILED = "failed"
    """No restart helps, or there were too many."""


_LAST: Final = frozenset({State.STOPPED, State.ENDED, State.FAILED})


@dataclass(frozen=True, slots=True)
class RegionStatus:
    """State of a region at one moment."""

    region: str
    state: State = State.STARTING
    batch: int | None = None
    """Newest completed batch of this run of the query."""
    rows: int | None = None
    """Rows of that batch."""
    committed: Position | None = None
    """Committed position, as far as the runner has seen."""
    restarts: int = 0
    last_error: str = ""


class RegionSupervisor:
    """Supervisor of one region's query. `stop` ends it; `join` waits for its end."""

    def __init__(self, query: RegionQuery, trigger: dict[str, Any] | None = None) -> None:
        self.query = query
        self._trigger = trigger
        self._status = RegionStatus(query.name)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._at_once = threading.Event()
        self._reset_reason: str | None = None
        """Reason for which the location must be reset although the query runs."""
        self._failures = 0
        self._unplannable: list[str] = []
        """The newest errors of planning, as far as they are equal and follow each other."""
        self._thread = threading.Thread(target=self._run, name=f"sluicegate-region-{query.name}", daemon=True)

    def start(self) -> None:
        """Start the query in the background."""
        self._thread.start()

    def stop(self, *, drain: bool) -> None:
        """Ask for the end: after the batch under way with `drain`, else at once."""
        if not drain:
            self._at_once.set()
        self._stop.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; return True if it has come."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def status(self) -> RegionStatus:
        """Return the present state."""
        with self._lock:
            return self._status

    def set_committed(self, position: Position | None) -> None:
        """Note the committed position."""
        self._set(committed=position)

    def request_reset(self, reason: str) -> None:
        """Have the query stopped, its location reset, and the query started again."""
        self._reset_reason = reason

    def _set(self, **changes: Any) -> None:
        with self._lock:
            self._status = replace(self._status, **changes)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._supervise()
        except Exception as error:
            _log.exception("region %s: the runner's own thread failed", self.query.name)
            self._fail(error)
        if self.status().state not in _LAST:
            self._set(state=State.STOPPED)

    def _supervise(self) -> None:
        while not self._stop.is_set():
            error = self._attempt(self._one_run)
            if error is None:
                if self._reset_reason is None:
                    return
                wanted, reason = Reaction.RESET, self._reset_reason
            else:
                wanted, reason = reaction(f"{_class_name(error)}: {error}"), str(error)
                if not self._await_restart(error, wanted):
                    return
            if wanted is Reaction.RESET and not self._reset(reason):
                return
            self._set(restarts=self.status().restarts + 1)

    def _attempt(self, work: Callable[[], None]) -> Exception | None:
        try:
            work()
        except (HookError, PySparkException, Py4JError, OSError) as error:
            return error
        return None

    def _one_run(self) -> None:
        """Start the query, and follow it to its end. Raises the error that ended it."""
        self._set(state=State.STARTING)
        if self.query.is_resetting():
            self.query.reset("a reset that was interrupted", self._stop.is_set)
        self.query.announce(self._stop.is_set)
        query = self.query.start(self._trigger)
        self._set(state=State.RUNNING)
        try:
            is_over = self._follow(query)
        except BaseException:
            # Nobody would stop it later, and it would keep its name.
            with suppress(PySparkException, Py4JError):
                query.stop()
            raise
        if not is_over:
            return
        self._update_progress(query)
        if (error := query.exception()) is not None:
            raise error
        self._set(state=State.ENDED)

    def _follow(self, query: "StreamingQuery") -> bool:
        """Follow a query; return True when it has ended by itself."""
        while query.isActive:
            self._update_progress(query)
            if self._stop.wait(_POLL):
                self._end(query)
                return False
            if self._reset_reason is not None:
                query.stop()
                return False
        return True

    def _update_progress(self, query: "StreamingQuery") -> None:
        """Record the newest progress. A batch ends a row of failures."""
        progress = query.lastProgress
        if progress is None:
            return
        number = int(progress["batchId"])
        if number != self.status().batch:
            if not self._has_completed():
                return
            self._failures = 0
        self._set(batch=number, rows=int(progress["numInputRows"]))

    def _has_completed(self) -> bool:
        """Return True if a batch of the location is completed, and its storage answers."""
        try:
            return self.query.checkpoint.newest_completed() is not None
        except LocationUnavailable:
            return False  # Spark uses the same storage, and ends the query if it has to.

    def _await_restart(self, error: Exception, wanted: Reaction) -> bool:
        """Count a failure, and wait; return False if no start follows."""
        self._failures += 1
        exhausted = self.query.settings.backoff.is_exhausted(self._failures)
        if wanted is Reaction.FAIL or exhausted or self._is_unplannable(error):
            self._fail(error)
            return False
        pause = self.query.settings.backoff.pause(self._failures, _random)
        self._set(state=State.WAITING, last_error=str(error))
        _log.warning(
            "region %s: its query failed (%d in a row), %s follows in %.1f s: %s",
            *(self.query.name, self._failures, wanted, pause, str(error)),
        )
        return not self._stop.wait(pause)

    def _is_unplannable(self, error: Exception) -> bool:
        """Return True if a query that never ran has failed with one error of planning several times."""
        found = planning_error(error)
        if found is None or self.status().batch is not None:
            self._unplannable.clear()
            return False
        self._unplannable = [each for each in self._unplannable if each == found] + [found]
        return len(self._unplannable) >= UNPLANNABLE

    def _reset(self, reason: str) -> bool:
        """Reset the location, and try again while that fails; return False if the query may not start."""
        while not self._stop.is_set():
            self._set(state=State.RESETTING)
            error = self._attempt(lambda: self._set_back(reason))
            if error is None:
                self._reset_reason = None
                return True
            # Another reset would be refused in the same way.
            wanted = reaction(f"{_class_name(error)}: {error}")
            if not self._await_restart(error, Reaction.FAIL if wanted is Reaction.RESET else wanted):
                return False
        return False

    def _set_back(self, reason: str) -> None:
        done = self.query.reset(reason[:500], self._stop.is_set)
        _log.warning(
            "region %s was set back to its committed position %s; its new incarnation is %s; %d batches are "
            "in %s",
            *(self.query.name, done.position, done.incarnation, done.moved, done.backup),
        )

    def _fail(self, error: Exception) -> None:
        self._set(state=State.FAILED, last_error=str(error))
        _log.error("region %s has failed, and is not started again: %s", self.query.name, error)

    # --- the end ----------------------------------------------------------------------------------

    def _end(self, query: "StreamingQuery") -> None:
        """Stop the query. With a drain, a batch that was begun is finished."""
        if not self._at_once.is_set():
            self._wait_for_batch(query)
        began = _is_registered(query)
        query.stop()
        if (error := query.exception()) is not None:
            self._set(last_error=str(error))
        if self._at_once.is_set() or not self.query.is_unfinished():
            return
        if not began:
            _log.warning(
                "region %s: no coordinator answers, so its planned batch is left to the next run",
                self.query.name,
            )
            return
        # Spark began another batch before it stopped. One run of it leaves nothing planned.
        again = self.query.start(dict(ONCE))
        self._finish(again)
        if (error := again.exception()) is not None:
            self._set(last_error=str(error))
            _log.warning(
                "region %s: its last batch failed, the next run repeats it: %s", self.query.name, error
            )

    def _wait_for_batch(self, query: "StreamingQuery") -> None:
        checkpoint, since = self.query.checkpoint, time.monotonic()
        before = checkpoint.newest_completed()
        while (
            query.isActive
            and query.status["isTriggerActive"]
            and checkpoint.newest_completed() == before
            and not _is_unanswered(query, since)
            and not self._at_once.wait(_POLL)
        ):
            self._update_progress(query)

    def _finish(self, query: "StreamingQuery") -> None:
        """Follow the run of the last batch to its end, and stop it if no coordinator answers."""
        since = time.monotonic()
        while query.isActive and not _is_unanswered(query, since) and not self._at_once.wait(_POLL):
            self._update_progress(query)
        if query.isActive:
            query.stop()
        self._update_progress(query)


def _is_registered(query: "StreamingQuery") -> bool:
    """Return True if this run of a query has registered. Until then, it has written nothing."""
    registry = ATTACHED.registry
    return registry is None or registry.registered(str(query.id)) is not None


def _is_unanswered(query: "StreamingQuery", since: float) -> bool:
    """Return True if a query has waited for its registration for long; `since` is in monotonic seconds."""
    return time.monotonic() - since > _PATIENCE and not _is_registered(query)


def finish_planned(queries: Sequence[RegionQuery], stopped: threading.Event) -> None:
    """Complete the batches that are planned, and start what never started, until the event is set.

    Raises RegionsFailed.
    """
    supervisors = [RegionSupervisor(query, dict(ONCE)) for query in queries if query.is_unfinished()]
    for each in supervisors:
        each.start()
    for each in supervisors:
        while not each.join(_POLL):
            if stopped.is_set():
                each.stop(drain=True)
    ends = [each.status() for each in supervisors]
    failed = [each for each in ends if each.state is not State.ENDED]
    if failed and not stopped.is_set():
        raise RegionsFailed(
            "the division cannot change before the old regions have finished: "
            + "; ".join(f"region {each.region}: {each.last_error}" for each in failed)
        )


def _class_name(error: Exception) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"
