"""The real service in this process, started and stopped by tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.settings.model import Settings
from tests.integration.waiting import finished, until, watched


def settings_for(
    bootstrap: str, prefix: str, streams: dict[str, dict[str, Any]], redis_url: str | None = None, **more: Any
) -> Settings:
    """Settings of a test's own deployment."""
    return Settings.model_validate(
        {
            "kafka": {
                "bootstrap_servers": bootstrap,
                "topic_prefix": prefix,
                "group_id": prefix,
                "session_timeout": 6,
            },
            "redis": {"url": redis_url, "key_prefix": prefix} if redis_url else None,
            "http": {"port": 0},
            "streams": streams,
            **more,
        }
    )


@asynccontextmanager
async def running(settings: Settings, *, ready: bool = True) -> AsyncIterator[Service]:
    """A service that serves until the block ends, and stops gracefully then."""
    stop = asyncio.Event()
    service = Service(settings)
    task = asyncio.create_task(service.run(stop))
    try:
        with watched(task):
            if ready:
                await until(service.unready, lambda reasons: not reasons)
            yield service
    finally:
        stop.set()
        await finished(task, "the service")
