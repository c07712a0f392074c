"""State of each stream for status, dashboards and other services: a view that no decision depends on.

A coordinator writes the view after each commit, from the stream's state record. `port.py` has the models
and the port, `redis_store.py` keeps views in Redis in a form that people can read, `memory.py` is for tests
and for a service without Redis. One contract suite holds the two to the same behaviour. A view has a stamp,
and an older one never replaces a newer one. A store that is away delays views, never commits; a lost one is
written again with the next commit."""

from sluicegate.state_store.memory import MemoryStateStore
from sluicegate.state_store.opening import open
from sluicegate.state_store.port import (
    AssignmentView,
    ConditionView,
    FurtherTableView,
    ListenerView,
    PendingView,
    ProblemView,
    RegionView,
    SavepointView,
    Stamp,
    StateStore,
    StateStoreError,
    StateStoreUnavailable,
    StreamView,
    UnreadableView,
    WaitingView,
)

__all__ = [
    "AssignmentView",
    "ConditionView",
    "FurtherTableView",
    "ListenerView",
    "MemoryStateStore",
    "PendingView",
    "ProblemView",
    "RegionView",
    "SavepointView",
    "Stamp",
    "StateStore",
    "StateStoreError",
    "StateStoreUnavailable",
    "StreamView",
    "UnreadableView",
    "WaitingView",
    "open",
]
