"""An order to skip a record that the state includes already, since a newer release had applied it."""

from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.state import LogState, SkippedRecord
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import StreamCommand
from sluicegate.events.problems import Code
from tests.golden.coordinator import STREAM
from tests.golden.writing import SETTINGS

NEWER = LogRecord(3, 0, Envelope("e3", EventType.STREAM_POLICY, STREAM), None, skipped="digest")


def order(offset: int, digest: str) -> LogRecord:
    body = StreamCommand(command="skip", offset=3, digest=digest)
    return LogRecord(offset, 0, Envelope(f"o{offset}", EventType.STREAM_COMMAND, STREAM), body)


def started(*skipped: SkippedRecord) -> StreamMachine:
    """Return a machine that starts from a record as of offset 5, and has read offset 3 again."""
    state = LogState(skipped=list(skipped))
    machine = StreamMachine(
        STREAM, 0, StateRecord(stream=STREAM, applied=5, low_water=0, state=state), SETTINGS
    )
    assert machine.step(NEWER).ignored is None
    return machine


def test_an_order_that_comes_too_late_stalls_the_stream() -> None:
    machine = started()
    other = machine.step(order(6, "another")).ignored
    assert other is not None
    assert (other.code, machine.conditions()) == (Code.NOT_APPLICABLE, [])
    late = machine.step(order(7, "digest")).ignored
    assert late is not None
    assert (late.code, late.number, late.other) == (Code.SKIPPED_LATE, 3, 7)
    assert [each.problem.code for each in machine.conditions()] == [Code.SKIPPED_LATE]
    after = machine.step(order(8, "digest")).ignored
    assert after == late, "nothing is applied any more"


def test_an_order_after_a_record_that_has_its_effect_changes_nothing() -> None:
    machine = started(SkippedRecord(offset=3, digest="digest"))
    assert machine.step(order(6, "digest")).ignored is None
    again = machine.step(order(7, "digest")).ignored
    assert again is not None
    assert (again.code, machine.conditions()) == (Code.DUPLICATE, [])
