"""Access to the views of a deployment, for jobs and dashboards."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sluicegate.state_store.port import StateStore


@asynccontextmanager
async def open(
    url: str,
    *,
    prefix: str = "sluicegate",
    timeout: float = 2.0,  # noqa: ASYNC109 - of each call of the store, not of this one
    **options: Any,
) -> AsyncIterator[StateStore]:
    """Open the store of a deployment for the block: `async with state_store.open(url) as store`.

    - `url`: `redis.url` of the settings, such as `redis://localhost:6379/0`.
    - `prefix`: `redis.key_prefix` of the settings.
    - `timeout`: seconds for each call; a call that takes longer raises StateStoreUnavailable.
    - `options`: passed to `redis.asyncio.Redis.from_url`, such as `password` and `ssl_ca_certs`.

    Raises ValueError for an address that is none.
    """
    # Other users of this package have no Redis.
    from sluicegate.state_store.redis_store import RedisStateStore

    store = RedisStateStore(url, prefix=prefix, timeout=timeout, options=options)
    try:
        yield store
    finally:
        await store.close()
