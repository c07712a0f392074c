"""One request of a listener to a server, and the URL of a server as a setting."""

from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from pydantic import AfterValidator

from sluicegate.listeners.port import Failed, Unknown

_LONGEST: Final = 64 << 10
"""Bytes of an answer that are read."""


def _check_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL such as https://example.com/hooks/commits")
    if parts.username or parts.password:
        raise ValueError("must not contain credentials: they would be in logs. Use the setting for secrets")
    return value


Url = Annotated[str, AfterValidator(_check_url)]


class Answer(NamedTuple):
    """Answer of a server."""

    status: int
    text: str

    @property
    def is_success(self) -> bool:
        """True for 200 to 299."""
        return 200 <= self.status < 300


async def post(
    http: aiohttp.ClientSession, url: str, body: bytes, headers: Mapping[str, str], seconds: float
) -> Answer | Failed | Unknown:
    """Send a body, and return the answer. Redirects are not followed."""
    place, limit = url.split("?")[0], aiohttp.ClientTimeout(total=seconds)
    try:
        async with http.post(url, data=body, headers=headers, timeout=limit, allow_redirects=False) as answer:
            return Answer(answer.status, (await answer.content.read(_LONGEST)).decode(errors="replace"))
    except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
        return Failed(f"{place} cannot be reached ({error}). Start the server, or correct the URL")
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        # The server may have taken the request.
        return Unknown(f"{place} gave no answer ({error!r}). It gets the request again, with the same id")
