"""State of each stream for status, dashboards and other services: a view that no decision depends on."""

from sluicegate.state_store.memory import MemoryStateStore
from sluicegate.state_store.opening import open
from sluicegate.state_store.port import (
    VIEW_VERSION,
    AssignmentView,
    ConditionView,
    ListenerView,
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
    "VIEW_VERSION",
    "AssignmentView",
    "ConditionView",
    "ListenerView",
    "MemoryStateStore",
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
