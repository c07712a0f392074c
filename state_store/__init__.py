"""The streams' light state for status, dashboards and other services; a view, never read to decide."""

from sluicegate.state_store.memory import MemoryStateStore
from sluicegate.state_store.port import (
    VIEW_VERSION,
    RegionView,
    RetryView,
    SavepointView,
    StateStore,
    StateStoreError,
    StateStoreUnavailable,
    StreamView,
    UnreadableView,
)

__all__ = [
    "VIEW_VERSION",
    "MemoryStateStore",
    "RegionView",
    "RetryView",
    "SavepointView",
    "StateStore",
    "StateStoreError",
    "StateStoreUnavailable",
    "StreamView",
    "UnreadableView",
]
