"""The letter of a message without a stream, from a newer release."""

from aiokafka import ConsumerRecord

from sluicegate.coordinator.stream.letters import Letterbox
from sluicegate.events.codec import read_record
from sluicegate.events.problems import Code, Problem

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


def message(offset: int) -> ConsumerRecord:
    return ConsumerRecord("events", 0, offset, 0, 0, None, b"{}", None, 0, 2, ())


def put(box: Letterbox, *offsets: int) -> None:
    for offset in offsets:
        box.put(message(offset), Problem(code=Code.UNDECODABLE, number=offset), None)


def sent(box: Letterbox, first: int) -> None:
    """Let every letter that waits be acknowledged, from an offset of the topic of letters on."""
    for count, unsent in enumerate(box.next(1_000, 1 << 20)):
        box.acknowledged(unsent, first + count)


def test_a_letter_before_the_groups_offset_was_sent_by_a_former_owner() -> None:
    box = Letterbox("events", 0, lambda: None)
    box.open(5, "letters=70")
    put(box, 3, 4, 5)
    assert [each.key[0] for each in box.next(10, 10_000)] == [5]


def test_the_first_letter_that_waits_holds_the_offset() -> None:
    box = Letterbox("events", 0, lambda: None)
    box.open(0, "")
    assert box.first_waiting() is None
    put(box, 9, 3, 6)
    assert box.first_waiting() == 3
    sent(box, 0)
    assert box.first_waiting() is None


def test_the_mark_precedes_the_letter_of_the_first_message_that_is_read_again() -> None:
    """The next owner reads the letters from the mark on, and sends none of them again."""
    box = Letterbox("events", 0, lambda: None)
    box.open(0, "letters=70")
    assert box.note(0) == "letters=70", "the topic was not read yet"
    box.read_to(80)
    put(box, 3, 6)
    sent(box, 90)
    assert (box.note(2), box.note(3), box.note(4), box.note(7)) == (
        *("letters=90", "letters=90"),
        *("letters=91", "letters=92"),
    )


def test_a_message_that_is_read_twice_has_one_letter() -> None:
    box = Letterbox("events", 0, lambda: None)
    box.open(0, "")
    box.read_to(0)
    put(box, 3, 3)
    assert box.waiting == 1
    sent(box, 0)
    put(box, 3)
    assert box.waiting == 0
