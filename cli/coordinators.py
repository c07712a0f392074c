"""Coordinators that run: the status of their streams, from the one at the address of the settings."""

import asyncio
import ssl
import time
from functools import cache
from http import HTTPStatus
from typing import Any, Final

import click
from aiokafka.errors import KafkaError

from sluicegate.cli.errors import UserError
from sluicegate.cli.kafka import count_members, partition_count, read_records
from sluicegate.coordinator.settings.model import REALM, HttpSettings, Settings, read_tokens
from sluicegate.events.envelope import partition_of
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
                _note_once(
                    f"the coordinator at {url} refuses the token of this command. Give it one of the "
                    "coordinator's: http.token_files"
                )
                return None
            return await answer.json()
    except aiohttp.ClientConnectorCertificateError as error:
        _note_once(
            f"the coordinator at {url} is not trusted: {error.certificate_error}. Set http.ca_file and "
            "http.host to what its certificate has"
        )
        return None
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return None


@cache
def _note_once(text: str) -> None:
    """Print a note once: without the coordinator, a command shows the state records."""
    click.echo(f"note: {text}", err=True)


# Streams that no coordinator serves although some run: members of a group with different settings.

PATIENCE: Final = 10.0
"""Seconds in which coordinators that have just started join their group and write the first state records."""
_AGAIN: Final = 0.5
"""Seconds between two looks."""


async def unserved_streams(settings: Settings) -> list[str]:
    """Return the streams that no coordinator serves, after PATIENCE for coordinators that have just started.

    Other checks report problems of Kafka and of the topics.
    """
    deadline = time.monotonic() + PATIENCE
    try:
        while found := await _find_unserved(settings):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(_AGAIN)
    except (KafkaError, UserError, TimeoutError, OSError):
        return []
    return found


async def _find_unserved(settings: Settings) -> list[str]:
    """Return the streams of the settings that nobody serves. Raises KafkaError, UserError, TimeoutError."""
    if not await count_members(settings):
        return []
    count = await partition_count(settings, settings.kafka.topic_names().events)
    records, member = await read_records(settings), await ask_member(settings)
    return [
        stream
        for stream in settings.streams
        if is_unserved(stream, partition_of(stream, count), member, recorded=stream in records)
    ]


def is_unserved(stream: str, partition: int, member: dict[str, Any] | None, *, recorded: bool) -> bool:
    """Return True if the running coordinators are known not to serve a stream.

    `member` is the answer of one of them; None if it does not answer. Its `partitions` are those whose
    streams it has started. `recorded` is True if the stream has a state record. The first owner writes one
    at once.
    """
    if member is not None:
        if stream in member["streams"]:
            return False
        if str(partition) in member["partitions"]:
            return True
    return not recorded


def format_unserved(stream: str, group: str) -> str:
    """Format the message for a stream that nobody serves."""
    return (
        f"coordinators run in group {group}, but none of them serves stream {stream}. Give all members of "
        "the group the same settings, and send them SIGHUP or restart them. If one has just started, look "
        "again in some seconds"
    )
