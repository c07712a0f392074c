"""Status of the streams, from the coordinator at the address of the settings."""

import ssl
from functools import cache
from http import HTTPStatus
from typing import Any, Final

import click

from sluicegate.cli.errors import UserError
from sluicegate.coordinator.settings.model import REALM, HttpSettings, Settings, read_tokens
from sluicegate.kafka.settings import UnusableFile

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
    found = await _ask(settings.http)
    kafka = settings.kafka
    # Another deployment may listen on this address; its streams can have the same names.
    ours = isinstance(found, dict) and (found.get("group"), found.get("topic_prefix")) == (
        kafka.group_id,
        kafka.topic_prefix,
    )
    return found if ours else None


async def _ask(http: HttpSettings) -> Any:
    """Return the answer of the coordinator; None if it gives none. Raises UserError for an unusable file."""
    # Most commands ask no coordinator, and the client takes a good part of the time of a short command.
    import aiohttp

    host = _EVERYWHERE.get(http.host, http.host)
    scheme = "http" if http.certificate_file is None and http.ca_file is None else "https"
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{http.port}/status"
    try:
        tokens = read_tokens(http)
    except UnusableFile as error:
        raise UserError(str(error)) from error
    headers = {"Authorization": f"Bearer {tokens[0].decode()}"} if tokens else {}
    context = ssl.create_default_context(cafile=http.ca_file)
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS), headers=headers) as session,
            session.get(url, ssl=context) as answer,
        ):
            if answer.status == HTTPStatus.UNAUTHORIZED and REALM in answer.headers.get(
                "WWW-Authenticate", ""
            ):
                _note(
                    f"the coordinator at {url} refuses the token of this command. Give it one of the "
                    "coordinator's: http.token_files"
                )
                return None
            return await answer.json()
    except aiohttp.ClientConnectorCertificateError as error:
        _note(
            f"the coordinator at {url} is not trusted: {error.certificate_error}. Set http.ca_file and "
            "http.host to what its certificate has"
        )
        return None
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return None


@cache
def _note(text: str) -> None:
    """Print a note once: without the coordinator, a command shows the state records."""
    click.echo(f"note: {text}", err=True)
