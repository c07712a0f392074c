"""The active session of a thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
