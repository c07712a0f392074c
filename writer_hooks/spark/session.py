"""Preparation of a Spark session by `attach`."""

import atexit
import logging
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4
from weakref import WeakKeyDictionary

from sluicegate.writer_hooks.commit_feed import Followers, OnOutcome
from sluicegate.writer_hooks.spark.batch import ListenerState
from sluicegate.writer_hooks.spark.preflight import has_data_source, preflight, require_spark
from sluicegate.writer_hooks.spark.registry import ATTACHED, Registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluicegate.writer_hooks.spark.listener import RegionListener


# --- the active session of a thread -------------------------------------------------------------------


@contextmanager
def active_in_thread(spark: "SparkSession") -> Iterator[None]:
    """Make the session the active one of this thread, in which Spark looks for formats of Python.

    The one before is active again after the block. If there was none, the session stays active: Spark makes a
    session active in the thread that creates it, and in no other thread of Python.
    """
    internal: Any = spark
    if not hasattr(internal, "_jsparkSession"):
        # A session of Spark Connect has no JVM here, and needs none.
        yield
        return
    sessions = internal._jvm.SparkSession
    former = sessions.getActiveSession()
    sessions.setActiveSession(internal._jsparkSession)
    try:
        yield
    finally:
        if former.isDefined():
            sessions.setActiveSession(former.get())


# --- attach -------------------------------------------------------------------------------------------


def attach(
    spark: "SparkSession",
    *,
    heartbeat_interval: float = 5.0,
    idle_after: float = 10.0,
    on_outcome: OnOutcome | None = None,
    listener_state: Callable[[int], Mapping[str, str]] | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Prepare a session: send heartbeats for its regions, and register `writeStream.format("sluicegate")`.

    Spark has that format from 4.1 on. `ForeachBatch` works with every supported release.

    - `heartbeat_interval`: seconds between heartbeats of a region.
    - `idle_after`: seconds of batches without rows after which a region counts as idle. A source without new
      data counts as idle immediately.
    - `on_outcome`: called in a thread of the driver, with the outcome of each commit for each region that
      runs here. It never delays a batch, and its exceptions are only logged.
    - `listener_state`: called with the id of each completed batch. ForeachBatch calls it in the driver, the
      data source in a process on the driver's machine. It returns texts by the names of listeners, which
      become part of the checkpoint. Its exceptions fail the batch.
    - `options`: options of a sink, `checkpointLocation` among them; `preflight` checks them immediately.

    Spark knows the format in the calling thread only: a thread that starts queries calls it as well. Repeated
    calls are allowed, and the first one of a session counts.

    Raises HookError if PySpark is missing or too old, and the errors of `preflight`.
    """
    require_spark("attach")
    with active_in_thread(spark):
        if spark not in _attached:
            intervals = heartbeat_interval, idle_after
            _attached[spark] = _attach(spark, intervals, on_outcome, listener_state)
    if options is not None:
        preflight(options)


_log = logging.getLogger(__name__)

_BYTES_PER_BATCH: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_SPARKS_BYTES: Final = ("67108864", "67108864b", "64m", "64mb")
_BEST_BYTES: Final = "2147483647"

_FOLDER: Final = str(Path(tempfile.gettempdir()) / f"sluicegate-{uuid4().hex}")

_attached: "WeakKeyDictionary[SparkSession, RegionListener]" = WeakKeyDictionary()


_registry: Final = Registry(_FOLDER)
# Exit functions run in reverse order. This one runs last, because listeners that close still read the folder.
atexit.register(_registry.remove)


def _attach(
    spark: "SparkSession",
    intervals: tuple[float, float],
    on_outcome: OnOutcome | None,
    listener_state: ListenerState | None,
) -> "RegionListener":
    # They import PySpark, and `attach` names what to install if that is missing.
    from sluicegate.writer_hooks.spark.heartbeats import Heartbeats
    from sluicegate.writer_hooks.spark.listener import RegionListener

    # A process that is ended by a signal does not remove its own folder.
    _registry.remove_dead()
    try:
        _registry.hold()
    except OSError as error:
        _log.warning("no folder can be made in %s (%s): there will be no heartbeats", _FOLDER, error)
    _tune(spark)
    if not _is_remote(spark):
        _check_python(spark.sparkContext.pythonExec)
    if has_data_source():
        _register(spark, listener_state)
    signals = partial(Heartbeats, *intervals, Followers(on_outcome), Registry(_FOLDER))
    listener = RegionListener(_FOLDER, signals)
    if not _is_remote(spark):
        listener.look_into(spark)
        _at_exit(listener.close)
    spark.streams.addListener(listener)
    ATTACHED.registry = _registry
    ATTACHED.listener_state = ATTACHED.listener_state or listener_state
    ATTACHED.on_streams.append(listener.add_streams)
    return listener


def _check_python(used: str) -> None:
    """Warn if Spark's workers run another Python, which may lack the packages of the first batch."""
    found = shutil.which(used)
    if found is not None and Path(found).absolute().parent != Path(sys.executable).absolute().parent:
        _log.warning(
            "Spark runs its Python workers with %s, and this driver runs %s. If sluicegate is not installed "
            "there, the first batch fails with ModuleNotFoundError: set PYSPARK_PYTHON=%s before the session "
            "is made",
            *(found, sys.executable, sys.executable),
        )


def _at_exit(work: Callable[[], None]) -> None:
    """Run a function when the driver ends, while it can still connect.

    Ordinary exit functions run after Python stops starting threads, and a connection needs them for DNS. The
    hook used here is the one of Python's own thread pools.
    """
    # The thread pools must register their own exit function first: functions run in reverse order.
    import_module("concurrent.futures.thread")
    register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
    register(work)


def _register(spark: "SparkSession", listener_state: ListenerState | None) -> None:
    from sluicegate.writer_hooks.spark.source import SluicegateSource

    # A subclass carries the folder's name to the workers.
    held = None if listener_state is None else staticmethod(listener_state)
    attributes = {"registry_folder": _FOLDER, "listener_state": held}
    spark.dataSource.register(type(SluicegateSource.__name__, (SluicegateSource,), attributes))


def _is_remote(spark: "SparkSession") -> bool:
    return not hasattr(spark, "_jsparkSession")


def _tune(spark: "SparkSession") -> None:
    """Apply a setting that makes the writer up to three times as fast, unless the user has set another."""
    from pyspark.errors import PySparkException

    current = _setting(spark, _BYTES_PER_BATCH)
    if current is not None and current.lower() in _SPARKS_BYTES:
        try:
            spark.conf.set(_BYTES_PER_BATCH, _BEST_BYTES)
        except PySparkException as error:
            _log.warning("%s could not be set (%s); set it to %s", _BYTES_PER_BATCH, error, _BEST_BYTES)


def _setting(spark: "SparkSession", name: str) -> str | None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        value = spark.conf.get(name)
    except (PySparkException, Py4JError):
        return None  # This release does not have the setting.
    return None if value is None else str(value)
