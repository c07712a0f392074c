"""Delivery of one record of the log to its stream, with its dead letters, logs and counts."""

from typing import Protocol

import structlog
from aiokafka import ConsumerRecord

from sluicegate.coordinator.core.log_state import LogState
from sluicegate.coordinator.dead_letters.letterbox import Letterbox
from sluicegate.coordinator.ownership import Rivals
from sluicegate.coordinator.stream.continuity import failed_at
from sluicegate.coordinator.stream.runner import StreamRunner
from sluicegate.events.codec import Reading
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.problems import Code, Problem

log = structlog.get_logger(__name__)


class Source(Protocol):
    """The partition, as seen by the delivery of its records."""

    letters: Letterbox
    rivals: Rivals


def deliver(source: Source, runner: StreamRunner, record: ConsumerRecord, reading: Reading) -> None:
    """Pass a record to its stream; an exception of the core stalls this stream and no other."""
    if reading.record is None:
        return
    try:
        if reading.record.envelope.type is EventType.FILES_WRITTEN:
            if runner.machine.step(reading.record).ignored is None:
                runner.bodies.keep(record.offset, reading.record.envelope, record.value or b"")
        else:
            _deliver_control(source, runner, record, reading)
    except Exception as error:
        log.exception("record not applied", stream=runner.stream, offset=record.offset)
        # The state may be half changed, so it is never recorded, and nothing is decided from it.
        runner.machine.block(failed_at(record.offset, error), record.offset, keep_record=True)


def _deliver_control(source: Source, runner: StreamRunner, record: ConsumerRecord, reading: Reading) -> None:
    """Pass an event other than `files.written` to its stream."""
    read, machine = reading.record, runner.machine
    if read is None:
        return
    envelope, replica = read.envelope, machine.replica
    if reading.flaw is not None:
        source.letters.put(record, reading.flaw.problem, runner.stream)
    if envelope.type is EventType.CUT_DECIDED and record.offset >= runner.since:
        source.rivals.look(runner.stream, record)
    fresh = record.offset > replica.applied
    applied = machine.step(read)
    ignored = applied.ignored
    if envelope.type is EventType.CHECKPOINT_COMPLETED:
        # On a second read too: the letter of the first read may not be acknowledged.
        if not fresh and _was_not_live(replica.state, envelope, record.offset):
            ignored = Problem(code=Code.NOT_LIVE)
        if ignored is not None and ignored.code is Code.NOT_LIVE:
            problem = ignored.model_copy(
                update={
                    "region": envelope.region,
                    "incarnation": envelope.incarnation,
                    "checkpoint": envelope.checkpoint,
                }
            )
            source.letters.put(record, problem, runner.stream)
    if fresh:
        runner.telemetry.applied(read, applied, inherited=record.offset < runner.since)


def _was_not_live(state: LogState, envelope: Envelope, offset: int) -> bool:
    """True if the incarnation of an event was not live at its offset, which the state is past.

    The end of an incarnation that has no successor yet is not known, so its events count as live.
    """
    region = state.regions.get(envelope.region)
    newest = region.incarnation if region is not None else None
    if newest is None:
        return envelope.incarnation not in state.ended
    if newest.id == envelope.incarnation:
        return offset < newest.from_offset
    return envelope.incarnation not in state.ended or offset > newest.from_offset
