"""The streams' light state for status, dashboards and other services; a view, never read to decide."""

from sluicegate.state_store.memory import MemoryStateStore
from sluicegate.state_store.port import (
    VIEW_VERSION,
    RegionView,
    SavepointView,
    StateStore,
    StateStoreError,
    StateStoreUnavailable,
    StreamView,
    UnreadableView,
)
from sluicegate.state_store.redis_store import RedisStateStore

__all__ = [
    "VIEW_VERSION",
    "MemoryStateStore",
    "RedisStateStore",
    "RegionView",
    "SavepointView",
    "StateStore",
    "StateStoreError",
    "StateStoreUnavailable",
    "StreamView",
    "UnreadableView",
]
