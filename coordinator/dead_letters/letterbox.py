"""The letters of one partition for one assignment: those that wait, and those that were sent."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from aiokafka import ConsumerRecord

from sluicegate.events.dead_letters import Letter, LetterCode, Place

_MARK: Final = "letters="

Key = tuple[int, str]
"""Offset and reason code."""


class Unsent(NamedTuple):
    """A letter that waits; an incomplete one is completed from the log before it is sent."""

    letter: Letter
    complete: bool

    @property
    def key(self) -> Key:
        return self.letter.place.offset, self.letter.code


class Letterbox:
    """Gives each letter out once, whatever was sent before a restart.

    A letter has the same id in every life of a coordinator. Before the first one is sent, the box learns
    which are in the topic. Where it has to look from is noted beside the group's offset: every letter of a
    message from that offset on stands at that mark or after it.
    """

    def __init__(self, topic: str, partition: int, wake: Callable[[], None]) -> None:
        self.topic = topic
        self.partition = partition
        self.mark = 0
        """Where the letters of messages from `first` on begin, in the topic of the letters."""
        self.known = False
        """The topic has been read from the mark to an end that was fetched later."""
        self._first = 0
        self._wake = wake
        self._waiting: dict[Key, Unsent] = {}
        self._sent: dict[Key, tuple[str, int]] = {}
        """The id of each letter, and where it stands."""
        self._done: set[Key] = set()
        """Letters that this life has sent, or found to be sent."""
        self._end = 0

    def open(self, first: int, note: str) -> None:
        """Begin at the group's offset, before which every message has been dealt with, and its note."""
        self._first = first
        number = note.removeprefix(_MARK)
        self.mark = int(number) if note.startswith(_MARK) and number.isdigit() else 0

    def put(self, record: ConsumerRecord, code: str, reason: str) -> None:
        """Put a message aside, unless that was done before the group's offset was committed."""
        place = Place(record.topic, record.partition, record.offset, record.timestamp)
        letter = Letter(place, code, reason, record.key, record.value, tuple(record.headers))
        self._put(Unsent(letter, complete=True))

    def put_body(self, offset: int, body: bytes, reason: str) -> None:
        """Put a message aside of which only the malformed body is at hand."""
        place = Place(self.topic, self.partition, offset, 0)
        letter = Letter(place, LetterCode.MALFORMED_BODY, reason, None, body, ())
        self._put(Unsent(letter, complete=False))

    def _put(self, unsent: Unsent) -> None:
        offset, _ = key = unsent.key
        if offset < self._first or key in self._done:
            return
        self._waiting.setdefault(key, unsent)
        self._wake()

    def found(self, id_: str, letter: Letter, offset: int) -> None:
        """Note a letter that stands in the topic."""
        if (letter.place.topic, letter.place.partition) == (self.topic, self.partition):
            self._sent.setdefault((letter.place.offset, letter.code), (id_, offset))

    def read_to(self, end: int) -> None:
        """Note that the topic has been read to this end."""
        self.known, self._end = True, end

    def next(self, most: int, size: int) -> list[Unsent]:
        """The letters to be sent next, the oldest first: at most so many, of about so many bytes."""
        batch: list[Unsent] = []
        for unsent in self._waiting.values():
            if len(batch) == most or size <= 0:
                break
            batch.append(unsent)
            size -= unsent.letter.size
        return batch

    def is_sent(self, unsent: Unsent) -> bool:
        """Return whether a letter stands in the topic, and need not be sent again."""
        id_, _ = self._sent.get(unsent.key, ("", 0))
        # What could not be completed has no id of its own.
        if unsent.key not in self._sent or (unsent.complete and id_ != unsent.letter.id):
            return False
        self._forget([unsent])
        return True

    def acknowledged(self, unsent: Unsent, offset: int) -> None:
        """Note that a letter was acknowledged at an offset of the topic."""
        self._sent[unsent.key] = (unsent.letter.id, offset)
        self._end = max(self._end, offset + 1)
        self._forget([unsent])

    def _forget(self, batch: Iterable[Unsent]) -> None:
        for unsent in batch:
            self._done.add(unsent.key)
            self._waiting.pop(unsent.key, None)

    @property
    def waiting(self) -> int:
        """How many letters are not acknowledged."""
        return len(self._waiting)

    def first_waiting(self) -> int | None:
        """The first offset whose letter is not acknowledged; it must not be released."""
        return min((offset for offset, _ in self._waiting), default=None)

    def note(self, first: int) -> str:
        """What is committed beside an offset of the group."""
        if not self.known:
            return f"{_MARK}{self.mark}"
        held = (at for (offset, _), (_, at) in self._sent.items() if offset >= first)
        return f"{_MARK}{min(held, default=self._end)}"

    def released(self, first: int) -> None:
        """Forget what stands before an offset that was committed: every message there has been dealt with."""
        self._first = first
        self._sent = {key: held for key, held in self._sent.items() if key[0] >= first}
        self._done = {key for key in self._done if key[0] >= first}
