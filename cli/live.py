"""Status of the streams, from the coordinator at the address of the settings."""

from typing import Any, Final

import aiohttp

from sluicegate.coordinator.settings.model import Settings

SECONDS: Final = 3.0
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - listened on, not asked


async def ask_coordinator(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the status of each stream of the coordinator; an empty mapping if it does not answer.

    The caller then uses the state records.
    """
    member = await ask_member(settings)
    return {} if member is None else member["streams"]


async def ask_member(settings: Settings) -> dict[str, Any] | None:
    """Return the status of the coordinator with its partitions and streams; None if it does not answer.

    The coordinator may run on another host, or the address may belong to another deployment.
    """
    if settings.http.port == 0:
        return None
    host = _EVERYWHERE.get(settings.http.host, settings.http.host)
    url = f"http://{f'[{host}]' if ':' in host else host}:{settings.http.port}/status"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as session,
            session.get(url) as answer,
        ):
            found = await answer.json()
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return None
    kafka = settings.kafka
    # Another deployment may listen on this address; its streams can have the same names.
    ours = isinstance(found, dict) and (found.get("group"), found.get("topic_prefix")) == (
        kafka.group_id,
        kafka.topic_prefix,
    )
    return found if ours else None
