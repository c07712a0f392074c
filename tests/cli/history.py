"""The log of one stream, filled by a test in place of queries and coordinators."""

import asyncio
import time
import uuid
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer
from click.testing import Result

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import Condition, StateRecord
from sluicegate.coordinator.core.undo import revert_digest
from sluicegate.coordinator.stream.state_records import encode_record
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import NO_CHECKPOINT, Envelope, EventType, LogRecord, partition_of
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    CutCommitted,
    CutReverted,
    RegionClosed,
    RegionRegistered,
    SnapshotRef,
    StreamPolicy,
)
from sluicegate.events.orders import is_note
from tests.cli.deployment import PARTITIONS, Deployment

STREAM = "flights"


@dataclass
class History:
    """A stream whose log the test writes. What it appends must have an effect."""

    deployment: Deployment
    replica: Replica = field(default_factory=lambda: Replica(STREAM, partition_of(STREAM, PARTITIONS)))
    _unsent: list[LogRecord] = field(default_factory=list)

    @property
    def state(self) -> LogState:
        """Return the state as of the last record that this object has read."""
        return self.replica.state

    def begin(self) -> "History":
        """Create the topics, and write the record and the policy that a coordinator writes first."""
        self.deployment.create_topics()
        self.record()
        self.append(EventType.STREAM_POLICY, StreamPolicy(number=1))
        return self

    def record(self, *conditions: Condition) -> None:
        """Write the state record as of now, as a coordinator does."""
        record = StateRecord(
            stream=STREAM,
            applied=self.replica.applied,
            low_water=self.replica.log.low_water(self.replica.applied + 1),
            state=self.state,
            conditions=conditions,
        )
        self.deployment.write_state((STREAM.encode(), encode_record(record)))

    def register(self, region: str, incarnation: str, *regions: str, number: int = 0, after: int = 0) -> None:
        """Register a new incarnation at the region's position."""
        assignment = Assignment(number=number, regions=regions or (region,), after=after)
        body = RegionRegistered(base=self.replica.log.state.region(region).position, assignment=assignment)
        self.append(EventType.REGION_REGISTERED, body, region, incarnation)

    def complete(self, region: str, *checkpoints: int) -> None:
        """Complete checkpoints without files in the region's live incarnation."""
        for number in checkpoints:
            life = self.state.regions[region].incarnation
            assert life is not None
            sealed = self.replica.log.sealed(region)
            before = sealed[-1].position if sealed else self.replica.log.state.region(region).position
            body = CheckpointCompleted(
                events=(),
                predecessor=before,
                source_digest=f"d{number}",
                source_offsets=f'{{"at": {number}}}',
            )
            self.append(EventType.CHECKPOINT_COMPLETED, body, region, life.id, number)

    def close(self, region: str, final: int | None) -> None:
        """End a region by its driver."""
        held = self.state.regions[region]
        assert held.incarnation is not None
        assert held.run is not None
        body = RegionClosed(final=final, run=held.run)
        self.append(EventType.REGION_CLOSED, body, region, held.incarnation.id)

    def decide(self) -> None:
        """Decide a cut of everything that is sealed."""
        sealed = {name: self.replica.log.sealed(name) for name in self.state.regions}
        moves = {name: each[-1].position for name, each in sealed.items() if each}
        self.append(EventType.CUT_DECIDED, cuts.decision(self.replica.log, moves))

    def commit(self) -> None:
        """Append the outcome that the unresolved decision is visible."""
        made = self.state.unresolved
        assert made is not None
        head = SnapshotRef(id=made.id, identity=f"i{made.id}")
        body = CutCommitted(decision=made.id, digest=made.digest, table="t", snapshot=head)
        self.append(EventType.CUT_COMMITTED, body)

    def revert(self) -> None:
        """Append the outcome that the unresolved decision was reverted, as an order in the log demands."""
        made = self.state.unresolved
        assert made is not None
        digest = revert_digest(made)
        assert digest is not None
        self.append(EventType.CUT_REVERTED, CutReverted(decision=made.id, digest=digest, table="t"))

    def append(
        self,
        kind: EventType,
        body: Body,
        region: str = "",
        incarnation: str = "",
        checkpoint: int = NO_CHECKPOINT,
    ) -> None:
        """Apply an event. `send` puts it into the log, at the offset that it has here."""
        envelope = Envelope(uuid.uuid4().hex, kind, STREAM, region, incarnation, checkpoint)
        record = LogRecord(self.replica.applied + 1, _now(), envelope, body)
        applied = self.replica.step(record)
        assert applied.ignored is None, (record, applied.ignored)
        self._unsent.append(record)

    def run(self, *arguments: str) -> Result:
        """Send everything, run a command, and read what it has appended."""
        self.send()
        result = self.deployment.run(*arguments)
        self.read()
        return result

    def send(self) -> None:
        """Append the new events to the stream's partition."""
        if self._unsent:
            asyncio.run(self._send())

    async def _send(self) -> None:
        kafka = self.deployment.settings.kafka
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, acks="all") as producer:
            for record in self._unsent:
                assert record.body is not None
                message = encode_event(record.envelope, record.body, record.time)
                sent = await producer.send_and_wait(
                    kafka.topic_names().events,
                    message.value,
                    key=message.key,
                    headers=message.headers,
                    partition=self.replica.partition,
                )
                assert sent.offset == record.offset
        self._unsent.clear()

    def read(self) -> None:
        """Apply what a command has appended. Every record but a note must have an effect."""
        for record in self.deployment.events(STREAM):
            if record.offset > self.replica.applied:
                applied = self.replica.step(record)
                assert is_note(record.body) or applied.ignored is None, (record, applied.ignored)


def _now() -> int:
    return time.time_ns() // 1_000_000
