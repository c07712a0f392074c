"""Errors that a user can solve: one message, exit status 2."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click
from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, NodeNotReadyError

from sluicegate.coordinator.settings.model import Settings, SettingsError
from sluicegate.coordinator.telemetry.http import CannotServe
from sluicegate.kafka.topics import BrokersUnavailable, TopicError

T = TypeVar("T")

USER_ERROR: Final = 2
_NO_BROKER: Final = "Unable to bootstrap"
_AWAY: Final = (KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError, TimeoutError)


class UserError(click.ClickException):
    """Error of a user; click prints it as `Error: ...`, without a traceback."""

    exit_code = USER_ERROR


def kafka_away(settings: Settings, error: BaseException) -> str:
    """Format the message for an unreachable Kafka, with a remedy."""
    text = _short(error)
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
        servers = settings.kafka.bootstrap_servers
        raise UserError(
            f"Kafka at {servers} refuses: {_short(error)}; check kafka.security and the permissions"
        ) from error
    except BrokersUnavailable as error:
        raise UserError(kafka_away(settings, error)) from error
    except (SettingsError, TopicError, CannotServe) as error:
        raise UserError(str(error)) from error


def run_async(settings: Settings, work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine of a command. Raises UserError for errors that a user can solve."""
    # Warnings of the Kafka client would mix with the output of the command; its errors arrive as exceptions.
    clients = logging.getLogger("aiokafka")
    level = clients.level
    clients.setLevel(logging.CRITICAL + 1)
    try:
        with as_user_errors(settings):
            return asyncio.run(work)
    finally:
        clients.setLevel(level)


def _short(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
