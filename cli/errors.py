"""Errors that a user can solve: one message, exit status 2."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import click
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    TopicAuthorizationFailedError,
)

from sluicegate.coordinator.replay.decisions import ReplayRefused
from sluicegate.coordinator.settings.model import CannotServe, Settings, SettingsError
from sluicegate.kafka.clients import started
from sluicegate.kafka.internals import LoginRefused
from sluicegate.kafka.permissions import Client, Permission, format_grants, lacking
from sluicegate.kafka.topics import BrokersUnavailable, TopicError
from sluicegate.lakes.port import TableRefused

T = TypeVar("T")

USER_ERROR: Final = 2
_CLIENTS: Final = {
    ("run", ""): Client.COORDINATOR,
    ("check", ""): Client.COORDINATOR,
    ("topics", ""): Client.CREATOR,
    ("stream", "recover"): Client.KEEPER,
    ("stream", "forget"): Client.KEEPER,
    ("stream", "adopt"): Client.KEEPER,
    **{(noun, ""): Client.OPERATOR for noun in ("assignment", "commit", "region", "stream")},
    ("dead-letters", "retry"): Client.OPERATOR,
    ("dead-letters", "drop"): Client.OPERATOR,
    ("replay", "repair"): Client.OPERATOR,
}
_FORBIDDEN: Final = (
    # Of a producer that may write to no topic at all.
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
)
_NO_BROKER: Final = "Unable to bootstrap"
_SOON: Final = 2.0
"""Seconds in which brokers usually answer."""
_AWAY: Final = (KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError, TimeoutError)


class UserError(click.ClickException):
    """Error of a user; click prints it as `Error: ...`, without a traceback."""

    exit_code = USER_ERROR


def kafka_away(settings: Settings, error: BaseException) -> str:
    """Format the message for an unreachable Kafka, with a remedy."""
    text = _short(error)
    if isinstance(error, LoginRefused) or isinstance(error.__cause__, LoginRefused):
        refused = error if isinstance(error, LoginRefused) else error.__cause__
        return (
            f"Kafka at {settings.kafka.bootstrap_servers} refuses the login of this client: {refused}; check "
            "kafka.security"
        )
    # The client's message repeats the address in an unreadable form.
    detail = "" if _NO_BROKER in text else f" ({text})"
    return (
        f"Kafka at {settings.kafka.bootstrap_servers} does not answer{detail}; check "
        "kafka.bootstrap_servers, kafka.security, and that the brokers run and can be reached from here"
    )


@contextmanager
def as_user_errors(settings: Settings) -> Iterator[None]:
    """Turn errors that a user can solve into UserError. Other errors are bugs and keep their traceback."""
    try:
        yield
    except _AWAY as error:
        raise UserError(kafka_away(settings, error)) from error
    except KafkaError as error:
        if error.retriable or type(error) is KafkaError:
            # For example while a group's coordinator is being elected. The plain class is raised if no broker
            # answers a request for metadata.
            raise UserError(kafka_away(settings, error)) from error
        raise UserError(_refused(settings, error)) from error
    except BrokersUnavailable as error:
        raise UserError(kafka_away(settings, error)) from error
    except (SettingsError, TopicError, CannotServe, ReplayRefused, TableRefused) as error:
        raise UserError(str(error)) from error


def _refused(settings: Settings, error: KafkaError) -> str:
    """Format the message for a refusal of the brokers, with the permissions that this client lacks."""
    text = f"Kafka at {settings.kafka.bootstrap_servers} refuses: {_short(error)}"
    if isinstance(error, _FORBIDDEN) and (grants := _grants(settings, str(error))):
        return f"{text}. Grant this client {grants}"
    return f"{text}; check kafka.security and the permissions"


def _grants(settings: Settings, error: str) -> str:
    """Return the permissions that the running command lacks, on the topic of the error if it has one."""
    kafka = settings.kafka
    where = kafka.topic_prefix, kafka.group_id
    context = click.get_current_context(silent=True)
    words = context.command_path.split()[1:] if context is not None else []
    found: list[Permission] = []
    with suppress(KafkaError, TimeoutError, OSError):
        found = asyncio.run(lacking(kafka.client_options(), client_of_command(words), *where))
    named = [each for each in found if each.topic and f"{kafka.topic_prefix}.{each.topic}" in error]
    return format_grants(named or found, *where)


def client_of_command(words: Sequence[str]) -> Client:
    """Return the kind of client that a command is, by its words: `stream`, `pause`."""
    noun, verb, *_ = (*words, "", "")
    return _CLIENTS.get((noun, verb)) or _CLIENTS.get((noun, "")) or Client.READER


def run_async(settings: Settings, work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine of a command. Raises UserError for errors that a user can solve."""
    # Warnings of the Kafka client would mix with the output of the command; its errors arrive as exceptions.
    clients = logging.getLogger("aiokafka")
    level = clients.level
    clients.setLevel(logging.CRITICAL + 1)
    try:
        with as_user_errors(settings):
            return asyncio.run(_noting_outage(settings, work))
    finally:
        clients.setLevel(level)


async def _noting_outage(settings: Settings, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work; print a note early if it waits for brokers that do not answer."""
    running = asyncio.ensure_future(work)
    await asyncio.wait({running}, timeout=_SOON)
    if not running.done() and not await _answers(settings):
        kafka = settings.kafka
        click.echo(
            f"note: Kafka at {kafka.bootstrap_servers} does not answer. The command waits for it up to "
            f"{kafka.request_timeout:g} s (kafka.request_timeout)",
            err=True,
        )
    return await running


async def _answers(settings: Settings) -> bool:
    """Return True if a broker answers within some seconds."""
    options = {**settings.kafka.client_options(), "request_timeout_ms": round(1000 * _SOON)}
    try:
        async with started(AIOKafkaConsumer(enable_auto_commit=False, **options)):
            return True
    except (KafkaError, TimeoutError, OSError):
        return False


def _short(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
