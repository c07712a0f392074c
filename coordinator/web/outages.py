"""Outages of Kafka and of Redis, as the page and the HTTP interface report them."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from sluicegate.coordinator.observe.messages import iso_time
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.web.model import Outage

KAFKA: Final = (
    "Kafka at {address} does not answer the coordinator on host {host}: {detail}. It reads, decides and "
    "commits nothing until then, and all values are as of {since}. Nothing is lost: what writers have "
    "published is read later. Start the brokers, or repair the network to them; `sluicegate check` names "
    "what fails. The coordinator connects again by itself."
)
REDIS: Final = (
    "Redis at {address} does not answer: {detail}. Commits continue. Streams of other coordinators are shown "
    "as of {since}, and other services read old views. Start Redis, or correct redis.url in the settings; "
    "`sluicegate check` names what fails. The views are then written again by themselves."
)
HISTORY: Final = (
    "Cuts and dead letters cannot be read from Kafka: {detail}. They are shown as of {since}. The "
    "coordinator needs READ on the topics of commits and of dead letters; `sluicegate check` names what "
    "fails. It is tried again by itself."
)


class Silence(NamedTuple):
    """A server that does not answer."""

    detail: str
    since: int
    """Time of its last answer in Unix milliseconds."""


KafkaSilence = Callable[[], Silence | None]


class Watched:
    """A server that is asked again and again, with the time of its last answer."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self._answered = now()

    def answered(self) -> None:
        """Note an answer."""
        self.failure, self._answered = None, now()

    def failed(self, detail: str) -> None:
        """Note that it does not answer."""
        self.failure = detail

    @property
    def silence(self) -> Silence | None:
        """Return its failure, with the time of its last answer; None: it answers."""
        return None if self.failure is None else Silence(self.failure, self._answered)


def outage_of_kafka(silence: Silence, settings: Settings, host: str) -> Outage:
    """Return the outage of the brokers."""
    return _outage("kafka", KAFKA, silence, address=settings.kafka.bootstrap_servers, host=host)


def outage_of_redis(silence: Silence, address: str) -> Outage:
    """Return the outage of the state store; `address` has no password."""
    return _outage("redis", REDIS, silence, address=address)


def outage_of_history(silence: Silence) -> Outage:
    """Return the reason for which cuts and dead letters are old."""
    return _outage("history", HISTORY, silence)


def _outage(part: str, template: str, silence: Silence, **more: str) -> Outage:
    seconds = silence.since - silence.since % 1000
    values = {"detail": silence.detail.rstrip(". "), "since": iso_time(seconds) or str(silence.since)}
    return Outage.model_validate(
        {"part": part, "message": template.format(**values, **more), "since": silence.since}
    )


def now() -> int:
    """Return the time in Unix milliseconds."""
    return time.time_ns() // 1_000_000
