"""Letters of messages that no topic takes whole."""

from sluicegate.events.dead_letters import Letter, Place

PLACE = Place("events", 0, 7, 0)


def letter(headers: int) -> Letter:
    """Return the letter of a message with so many headers; each has two bytes on the wire."""
    return Letter(PLACE, "no-event", "a reason", b"key", b"value", (("", None),) * headers)


def test_a_shortened_letter_has_the_headers_that_fit() -> None:
    wide = letter(3)._replace(headers=(("a", b"x"), ("b", b"x" * 20_000), ("c", b"x")))
    short = wide.shortened()
    assert (short.key, [name for name, _ in short.headers]) == (None, ["a", "c"])
    assert 0 < len(letter(100_000).shortened().headers) < 16_384
