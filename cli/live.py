"""Status of the streams, from the coordinator at the address of the settings."""

from typing import Any, Final

import aiohttp

from sluicegate.coordinator.settings.model import Settings

SECONDS: Final = 3.0
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - listened on, not asked


async def ask_coordinator(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the status of each stream of the coordinator; an empty mapping if it does not answer.

    The coordinator may run on another host, or the address may belong to another deployment. The caller then
    uses the state records.
    """
    if settings.http.port == 0:
        return {}
    host = _EVERYWHERE.get(settings.http.host, settings.http.host)
    url = f"http://{f'[{host}]' if ':' in host else host}:{settings.http.port}/status"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as session,
            session.get(url) as answer,
        ):
            found = await answer.json()
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return {}
    kafka = settings.kafka
    # Another deployment may listen on this address; its streams can have the same names.
    ours = isinstance(found, dict) and (found.get("group"), found.get("topic_prefix")) == (
        kafka.group_id,
        kafka.topic_prefix,
    )
    return found["streams"] if ours else {}
