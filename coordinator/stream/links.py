"""Resources of one session of the service that the effects of all its streams share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog
from aiokafka import ConsumerRecord

from sluicegate.coordinator.observe.metrics import Metrics
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.letters import DeadLetters, Letterbox
from sluicegate.coordinator.stream.other_groups import group_named
from sluicegate.events.orders import Skips
from sluicegate.kafka.bodies import BodyFetcher, Budget
from sluicegate.kafka.clients import EndOffsets
from sluicegate.kafka.producer import SessionProducer
from sluicegate.kafka.topics import TopicNames
from sluicegate.lakes.threads import CommitThreads
from sluicegate.state_store import StateStore

if TYPE_CHECKING:
    from sluicegate.coordinator.observe.spans import OtelSpans


log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Partitions:
    """Number of partitions of each topic."""

    events: int
    commits: int
    state: int


@dataclass
class Links:
    """Clients of external systems, and shared objects of this process."""

    settings: Settings
    """The settings in force; a reload replaces them."""
    topics: TopicNames
    partitions: Partitions
    producer: SessionProducer
    fetcher: BodyFetcher
    ends: EndOffsets
    store: StateStore | None
    threads: CommitThreads
    budget: Budget
    dead_letters: DeadLetters
    metrics: Metrics
    spans: "OtelSpans | None" = None
    """Makes the spans of commits; None without the extra `otel`, or if nobody asks for them."""


class Rivals:
    """Other groups that decide for the streams of an assigned partition."""

    def __init__(self, own: str) -> None:
        self._own = own
        self.seen: str | None = None
        """The last other group; None if there was none."""

    def look(self, stream: str, decision: ConsumerRecord) -> None:
        """Log a decision of another group, once for each change of the group."""
        other = group_named(decision.headers)
        if other is None or other in (self._own, self.seen):
            return
        self.seen = other
        log.error(
            "another group of coordinators decides for this stream: nothing is doubled in the table by it, "
            "but registrations and commits are announced twice; give both one kafka.group_id, or stop one",
            stream=stream,
            group=self._own,
            other=other,
            offset=decision.offset,
        )


class LogPartition(Protocol):
    """The partition, as seen by one of its streams."""

    number: int
    letters: Letterbox
    rivals: Rivals
    skips: Skips

    async def end_offset(self) -> int:
        """Return the end offset: the last offset plus one. Raises KafkaError."""
        ...

    async def release_offsets(self) -> None:
        """Commit the smallest offset that any stream of the partition needs. Raises KafkaError."""
        ...
