"""What the effects of all streams share: clients, topics, threads, memory."""

from dataclasses import dataclass

from sluicegate.coordinator.metrics import Metrics
from sluicegate.coordinator.settings import Settings
from sluicegate.coordinator.shell.bodies import BodyFetcher, Budget
from sluicegate.coordinator.shell.deadletters import DeadLetters
from sluicegate.coordinator.shell.ends import EndOffsets
from sluicegate.coordinator.shell.producer import SessionProducer
from sluicegate.coordinator.shell.threads import CommitThreads
from sluicegate.events.topics import TopicNames
from sluicegate.state_store import StateStore


@dataclass(frozen=True)
class Partitions:
    """How many partitions the topics have."""

    events: int
    commits: int
    state: int


@dataclass
class Links:
    """Everything outside of the process, and what is shared inside of it."""

    settings: Settings
    """Replaced when they are reloaded."""
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
