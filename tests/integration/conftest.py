"""What the integration tests share beside the servers."""

import functools
import gc
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from sluicegate.coordinator.core.effects import MachineSettings
from sluicegate.coordinator.service import service
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream import partition
from sluicegate.events.envelope import partition_of
from sluicegate.kafka.topics import TopicNames
from tests.integration.coordinator import settings_for
from tests.integration.job import PARTITIONS, Job, create_table, make_topics

if TYPE_CHECKING:
    from tests.integration.sparkjob import SparkThread


LAKES: Final = ("paimon", *(pytest.param(each, marks=pytest.mark.matrix) for each in ("iceberg", "delta")))
"""Formats of a seam: one for `make test`; the contract of the lakes has the others."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what stalls or fails be tried again, and lost views be found, every 300 ms, not in 10 s or 15 s."""
    quick = functools.partial(MachineSettings, stall_pause=300, longest_pause=300)
    monkeypatch.setattr(partition, "MachineSettings", quick)
    monkeypatch.setattr(service, "VIEW_INTERVAL", 0.3)


@pytest.fixture
def collected() -> Iterator[None]:
    """Collect what the test leaves behind before anything else runs.

    The client drops futures with errors when brokers vanish; Python 3.11 fails with a SystemError when one of
    them is reported while source is being parsed, as pytest does to import modules.
    """
    yield
    gc.collect()


@dataclass(frozen=True)
class Place:
    """Topics of a test's own, and a table of the stream `flights`."""

    bootstrap: str
    prefix: str
    topics: TopicNames
    root: Path
    table: str
    lake: str = "paimon"
    """Format of the table."""
    lake_options: dict[str, str] = field(default_factory=dict)
    """Options of the table."""

    def settings(self, *streams: str, options: dict[str, Any] | None = None, **more: Any) -> Settings:
        """Settings for these streams, `flights` if none is named; all write to the one table."""
        table = {"table": self.table, "format": self.lake, "options": self.lake_options}
        named = {name: {**table, **(options or {})} for name in streams or ("flights",)}
        return settings_for(self.bootstrap, self.prefix, named, **more)

    def job(self, stream: str = "flights", **how: Any) -> Job:
        """A job of the stream."""
        how = {"lake": self.lake, "lake_options": self.lake_options, **how}
        return Job(self.bootstrap, self.topics, stream, self.table, **how)


async def place_of(lake: str, bootstrap: str, prefix: str, root: Path) -> Place:
    """Make topics, and a partitioned table of a format."""
    from tests.faults import tables

    topics = await make_topics(bootstrap, prefix)
    table = tables.create_table(root, "flights", lake)
    options = dict(tables.kind_of(table).options(table))
    return Place(bootstrap, prefix, topics, root, str(table), lake, options)


def neighbour(stream: str, *, same: bool) -> str:
    """The name of another stream whose partition is the same one, or another one."""
    home = partition_of(stream, PARTITIONS)
    return next(
        name
        for name in (f"{stream}{number}" for number in range(100))
        if (partition_of(name, PARTITIONS) == home) is same
    )


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkThread]":
    """Spark, with a thread of its own to talk to it."""
    from tests.integration.sparkjob import SparkThread

    thread = SparkThread()
    yield thread
    thread.stop()


@pytest.fixture
async def place(kafka_bootstrap: str, unique: str, tmp_path: Path) -> Place:
    """Topics and a table."""
    topics = await make_topics(kafka_bootstrap, unique)
    return Place(kafka_bootstrap, unique, topics, tmp_path, create_table(tmp_path))
