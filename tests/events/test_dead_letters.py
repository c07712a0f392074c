"""Letters of messages that no topic takes whole."""

import time

import pytest

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


@pytest.mark.slow
def test_a_letter_is_shortened_in_linear_time() -> None:
    """A message of the default size has up to 500,000 headers, and all streams wait meanwhile."""

    def seconds(count: int) -> float:
        start = time.process_time()
        letter(count).shortened()
        return time.process_time() - start

    assert min(seconds(200_000) for _ in range(3)) < 40 * min(seconds(20_000) for _ in range(3))
