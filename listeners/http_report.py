"""Reports to an HTTP server, in the form of those that Paimon sends of its marks."""

import json
from collections.abc import Mapping
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

import aiohttp
from pydantic import AfterValidator, Field, SecretStr, model_validator

from sluicegate.listeners.port import Done, Failed, Options, Result, Unknown

_LONGEST: Final = 64 << 10
"""Bytes of an answer that are read."""
_SHOWN: Final = 200


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL that begins with http:// or https:// and names a host")
    return text


class ReportOptions(Options):
    """Settings of the action `http-report`, beside those of the type."""

    actions: tuple[str, ...]
    http_url: Annotated[str, AfterValidator(_url)] | None = None
    """Address of `http-report`."""
    http_params: str = ""
    """Text that each report contains as `params`."""
    http_headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Further headers of each report. Values are not shown."""
    http_timeout: Annotated[float, Field(gt=0, le=3_600)] = 30.0
    """Seconds for one report."""

    @model_validator(mode="after")
    def _check_actions(self) -> Self:
        if len({*self.actions}) < len(self.actions):
            raise ValueError("actions has one twice. Name each once")
        check_pair(self.actions, "http-report", "http_url", self.http_url)
        return self


def check_pair(actions: tuple[str, ...], action: str, name: str, value: object) -> None:
    """Raise ValueError if only one of an action and its setting is there."""
    if action in actions and value is None:
        raise ValueError(f"the action {action} needs {name}. Set it, or remove the action")
    if action not in actions and value is not None:
        raise ValueError(f"{name} is set, and actions lacks {action}. Add the action, or remove {name}")


async def send_report(
    http: aiohttp.ClientSession, options: ReportOptions, key: str, fields: Mapping[str, object]
) -> Result:
    """Send a report with the params and the headers of the settings, under an idempotency key."""
    headers = {name: value.get_secret_value() for name, value in options.http_headers.items()}
    headers["Idempotency-Key"] = key
    return await post(
        http, options.http_url or "", {"params": options.http_params, **fields}, headers, options.http_timeout
    )


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
