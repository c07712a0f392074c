"""Work for a stream: a region's batches, and the ids that the table must have in the end."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from aiokafka.errors import KafkaError

from sluicegate.coordinator.tasks import end
from sluicegate.lakes.port import LakeUnavailable
from tests.faults.lives import Deployment
from tests.faults.tables import Inexact
from tests.integration.job import Job
from tests.integration.waiting import until

T = TypeVar("T")


@dataclass
class Feed:
    """One region's job; after its registration it never waits for a coordinator."""

    deployment: Deployment
    stream: str = "flights"
    region: str = "r1"
    regions: tuple[str, ...] = ("r1",)
    first: int = 0
    """The first id; regions of a stream must not overlap."""
    ids: list[int] = field(default_factory=list)
    foreign: list[int] = field(default_factory=list)
    """What another writer has put into the table."""

    async def __aenter__(self) -> "Feed":
        where = self.deployment
        self.job = Job(
            where.bootstrap,
            where.topics,
            self.stream,
            where.location(self.stream),
            region=self.region,
            regions=self.regions,
            incarnation=f"q-{self.region}",
            lake=where.lake,
            lake_options=where.options(self.stream),
        )
        await self.job.__aenter__()
        self._registration = asyncio.create_task(self._register(), name=f"registration of {self.region}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await end([self._registration])
        await self.job.__aexit__()

    @property
    def registered(self) -> bool:
        """True once a coordinator has accepted the registration."""
        return self._registration.done()

    async def register(self) -> None:
        """Wait until a coordinator has accepted the registration, which is sent with the beginning."""
        await asyncio.shield(self._registration)

    async def _register(self) -> None:
        answer = await self.job.register()
        if not answer.accepted:
            raise Inexact(f"the region {self.region} is not accepted: {answer.reason}")

    async def batch(self, tasks: int = 2, rows: int = 2) -> Sequence[int]:
        """Write, publish and complete one batch, after the registration; its ids."""
        await self.register()
        start = self.first + len(self.ids)
        groups = [range(start + n * rows, start + (n + 1) * rows) for n in range(tasks)]
        made = await self.again(*groups)
        self.ids.extend(made)
        return made

    async def again(self, *groups: Sequence[int]) -> Sequence[int]:
        """Write, publish and complete a batch of these ids, one file for each group."""
        write = partial(asyncio.to_thread, lambda: [self.job.write_files(group) for group in groups])
        files = await _insist(write)
        events = [await _insist(partial(self.job.written, each)) for each in files]
        await _insist(partial(self.job.complete, *events))
        return [each for group in groups for each in group]


async def _insist(say: Callable[[], Awaitable[T]]) -> T:
    """Do it until the broker or the store has it; done twice, only one of the two is named."""

    done: list[T] = []

    async def attempt() -> str:
        try:
            done.append(await say())
        except (KafkaError, LakeUnavailable) as error:
            return repr(error)
        return "acknowledged"

    await until(attempt, lambda outcome: outcome == "acknowledged", what="an acknowledgement")
    return done[0]
