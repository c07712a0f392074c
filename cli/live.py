"""What the coordinator at the address of the settings says of its streams."""

from typing import Any, Final

import aiohttp

from sluicegate.coordinator.settings.model import Settings

SECONDS: Final = 3.0
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - listened on, not asked


async def ask_coordinator(settings: Settings) -> dict[str, dict[str, Any]]:
    """Each stream that the coordinator has, as /status shows it; none if it does not answer.

    It may run elsewhere, or be another deployment's, and the records say what it would.
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
    ours = isinstance(found, dict) and (found.get("group"), found.get("topic_prefix")) == (
        kafka.group_id,
        kafka.topic_prefix,
    )
    return found["streams"] if ours else {}
