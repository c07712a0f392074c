"""The log of every golden case survives the wire: a replica that reads messages has the same state."""

from collections.abc import Iterator

import pytest

from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.state_records import decode_record, encode_record
from sluicegate.events.codec import Flaw, read_files, read_record
from sluicegate.events.encoding import Message, encode_event, encode_notification
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import CheckpointCompleted
from sluicegate.events.notifications import Notification, read_notification
from sluicegate.events.orders import skipped_record
from sluicegate.events.problems import Code
from tests.golden.coordinator import STREAM, World
from tests.golden.script import Script
from tests.golden.test_cases import FILES


def messages(world: World) -> Iterator[tuple[int, int, Message]]:
    """Yield the log of a case as messages, with offset and append time."""
    for offset, entry in enumerate(world.log):
        kind, region, incarnation = entry.envelope.type, entry.envelope.region, entry.envelope.incarnation
        if offset in world.newer:
            plain = Envelope(entry.envelope.id, EventType.STREAM_POLICY, STREAM)
            message = encode_event(plain, world.settings.policy, entry.time)
            newer = {"ce_type": f"sluicegate.{kind}.v3", "ce_region": region, "ce_incarnation": incarnation}
            headers = dict(message.headers) | {name: value.encode() for name, value in newer.items() if value}
            message = message._replace(headers=list(headers.items()))
        else:
            body = world.files(offset) if kind is EventType.FILES_WRITTEN else entry.body
            if isinstance(body, CheckpointCompleted) and entry.envelope.writer:
                # The reader names the event itself, in place of its files.
                body = body.model_copy(update={"events": (), "files": world.files(offset)})
            message = encode_event(entry.envelope, body or world.settings.policy, entry.time)
        if offset in world.garbled:
            message = message._replace(value=b"no JSON")
        yield offset, entry.time, message


def read_directly(world: World) -> Replica:
    """Return a replica that has applied the records of a case as they are."""
    replica = Replica(STREAM, 0)
    for offset in range(len(world.log)):
        if (record := world.read(offset)) is not None:
            replica.step(record)
    return replica


def read_messages(world: World) -> Replica:
    """Return a replica that has applied the same records after their way over the wire."""
    replica = Replica(STREAM, 0)
    for offset, time, message in messages(world):
        record, flaw = read_record(offset, time, message.headers, message.value)
        assert (flaw is not None and flaw.stalls) == (offset in world.newer)
        held = offset in world.garbled and world.log[offset].envelope.type is not EventType.FILES_WRITTEN
        assert (flaw is not None and flaw.problem.code is Code.MALFORMED_BODY) == held
        skipped = world.read(offset) if offset in world.newer else None
        if skipped is not None:
            record = skipped_record(offset, time, message.headers, skipped.skipped)
        if record is None:
            continue
        replica.step(record)
        if record.envelope.writer and offset not in world.garbled:
            assert read_files(record.envelope, message.value) == world.files(offset)
    return replica


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def world(request: pytest.FixtureRequest) -> World:
    script = Script()
    script.run(request.param.read_text(encoding="utf-8"))
    return script.world


def test_a_log_means_the_same_after_the_wire(world: World) -> None:
    expected, found = read_directly(world), read_messages(world)
    assert found.state == expected.state
    assert found.applied == expected.applied
    for name, pending in expected.log.pending.items():
        again = found.log.pending[name]
        assert [each.position for each in again.sealed] == [each.position for each in pending.sealed]
        parts = {number: each.parts for number, each in pending.checkpoints.items()}
        assert {number: each.parts for number, each in again.checkpoints.items()} == parts


def test_a_state_record_survives(world: World) -> None:
    assert world.record is not None, "each case ends with a record"
    record = StateRecord.model_validate_json(world.record)
    assert decode_record(STREAM, encode_record(record)) == record
    for due in record.due:
        notification = Notification(due.id, due.type, STREAM, due.region, due.incarnation, due.body)
        message = encode_notification(notification, 0)
        found = read_notification(message.headers, message.value)
        assert not isinstance(found, Flaw)
        assert found == notification
