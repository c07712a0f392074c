"""The letter of a message without a stream, from a newer release."""

from aiokafka import ConsumerRecord

from sluicegate.coordinator.dead_letters.letterbox import Letterbox
from sluicegate.events.codec import read_record
from sluicegate.events.problems import Code

HEADERS = (("ce_type", b"sluicegate.files.written.v99"),)


def test_the_letter_of_a_newer_message_without_a_stream_speaks_of_none() -> None:
    """It stalls no stream, and the command that its text names shows it."""
    box = Letterbox("events", 0, lambda: None)
    flaw = read_record(7, 0, HEADERS, b"{}").flaw
    assert flaw is not None
    box.put(ConsumerRecord("events", 0, 7, 0, 0, None, b"{}", None, 0, 2, HEADERS), flaw.problem, flaw.stream)
    (unsent,) = box.next(10, 10_000)
    assert unsent.letter.code == Code.UNKNOWN_TYPE
    assert "Stream" not in unsent.letter.reason
    assert "sluicegate.files.written.v99" in unsent.letter.reason
    assert unsent.letter.reason.endswith("The message is kept: `sluicegate dead-letters list`.")
