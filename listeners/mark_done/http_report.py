"""Report of a mark to an HTTP server, in the form of Paimon's."""

import json
from collections.abc import Mapping
from typing import Final

import aiohttp

from sluicegate.listeners.port import Done, Failed, Result, Unknown

_LONGEST: Final = 64 << 10
"""Bytes of an answer that are read."""
_SHOWN: Final = 200


async def post(
    http: aiohttp.ClientSession,
    url: str,
    fields: Mapping[str, object],
    headers: Mapping[str, str],
    seconds: float,
) -> Result:
    """Send a report. An answer of 200 to 299 is done, unless its JSON has a `result` other than SUCCESS."""
    limit = aiohttp.ClientTimeout(total=seconds)
    try:
        async with http.post(
            url, json=fields, headers=dict(headers), timeout=limit, allow_redirects=False
        ) as answer:
            text = (await answer.content.read(_LONGEST)).decode(errors="replace")
            return _judge(answer.status, text)
    except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
        return Failed(f"{_place(url)} cannot be reached: {error}. See whether the server runs")
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        # The server may have taken the report.
        return Unknown(
            f"{_place(url)} gave no answer: {type(error).__name__} {error}. It gets the "
            "report again, with the same Idempotency-Key"
        )


def _judge(status: int, text: str) -> Result:
    if not 200 <= status < 300:
        return Failed(
            f"the server answered {status}: {text[:_SHOWN]}. Correct http_url, http_headers or the server"
        )
    try:
        found = json.loads(text)
    except ValueError:
        return Done()
    result = found.get("result") if isinstance(found, dict) else None
    if isinstance(result, str) and result.upper() != "SUCCESS":
        return Failed(f"the server answered with the result {result[:_SHOWN]!r} instead of SUCCESS")
    return Done()


def _place(url: str) -> str:
    """Return a URL without its query and credentials, which may be secret."""
    return url.split("?")[0].rpartition("@")[2]
