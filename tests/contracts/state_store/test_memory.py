"""What the twin in memory has beyond the contract: outages on demand."""

import pytest

from sluicegate.state_store import MemoryStateStore, StateStoreUnavailable, StreamView

VIEW = StreamView(stream="s", revision=1, updated_at=0, commit_user="u")


async def test_an_outage_on_demand() -> None:
    store = MemoryStateStore()
    await store.write(VIEW)
    store.available = False
    for call in (store.write(VIEW), store.read("s"), store.streams(), store.remove("s"), store.ping()):
        with pytest.raises(StateStoreUnavailable):
            await call
    store.available = True
    assert await store.read("s") == VIEW


async def test_a_wipe_forgets_revisions_too() -> None:
    store = MemoryStateStore()
    await store.write(VIEW)
    store.wipe()
    assert await store.streams() == []
    assert await store.write(VIEW.model_copy(update={"revision": 0}))
