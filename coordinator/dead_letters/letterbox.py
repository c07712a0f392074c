"""Dead letters of one partition for one assignment: waiting ones and sent ones."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from aiokafka import ConsumerRecord

from sluicegate.coordinator.telemetry.messages import format_problem
from sluicegate.events.dead_letters import Letter, Place
from sluicegate.events.problems import Problem

_MARK: Final = "letters="

Key = tuple[int, str]
"""Offset of the message, and reason code."""


class Unsent(NamedTuple):
    """A letter that waits; an incomplete one is completed from the log before it is sent."""

    letter: Letter
    complete: bool

    @property
    def key(self) -> Key:
        return self.letter.place.offset, self.letter.code


class Letterbox:
    """Sends each letter once, across restarts of the coordinator.

    A letter has the same id in every life of a coordinator. Before the first letter is sent, the box reads
    the letters that are already in the topic. The metadata of the group's offset has the mark to read from.
    Every letter of a message at or after that offset is at the mark or after it.
    """

    def __init__(self, topic: str, partition: int, wake: Callable[[], None]) -> None:
        self.topic = topic
        self.partition = partition
        self.mark = 0
        """Offset in the dead-letter topic; letters of messages from `first` on do not precede it."""
        self.known = False
        """True once the topic was read from the mark to its end."""
        self._first = 0
        self._wake = wake
        self._waiting: dict[Key, Unsent] = {}
        self._sent: dict[Key, tuple[str, int]] = {}
        """Id of each letter in the topic, and its offset there."""
        self._done: set[Key] = set()
        """Letters that this life has sent, or found in the topic."""
        self._end = 0

    def open(self, first: int, note: str) -> None:
        """Start from the group's offset and its metadata; earlier messages are already handled."""
        self._first = first
        number = note.removeprefix(_MARK)
        # Without a note, the topic is read from its start.
        self.mark = int(number) if note.startswith(_MARK) and number.isdigit() else 0

    def put(self, record: ConsumerRecord, problem: Problem, stream: str | None) -> None:
        """Add a letter for a message, unless it precedes the group's offset or its letter is sent."""
        place = Place(record.topic, record.partition, record.offset, record.timestamp)
        reason, headers = format_problem(problem, stream or ""), tuple(record.headers)
        letter = Letter(place, str(problem.code), reason, record.key, record.value, headers)
        self._put(Unsent(letter, complete=True))

    def put_body(self, offset: int, body: bytes, problem: Problem, stream: str) -> None:
        """Add a letter for a message of which only the malformed body is in memory."""
        place = Place(self.topic, self.partition, offset, 0)
        letter = Letter(place, str(problem.code), format_problem(problem, stream), None, body, ())
        self._put(Unsent(letter, complete=False))

    def _put(self, unsent: Unsent) -> None:
        offset, _ = key = unsent.key
        if offset < self._first or key in self._done:
            return
        self._waiting.setdefault(key, unsent)
        self._wake()

    def found(self, id_: str, letter: Letter, offset: int) -> None:
        """Note a letter that is in the topic."""
        if (letter.place.topic, letter.place.partition) == (self.topic, self.partition):
            self._sent.setdefault((letter.place.offset, letter.code), (id_, offset))

    def read_to(self, end: int) -> None:
        """Note the end offset to which the topic was read."""
        self.known, self._end = True, end

    def next(self, most: int, size: int) -> list[Unsent]:
        """Return the next letters to send, the oldest first: at most `most`, of about `size` bytes."""
        batch: list[Unsent] = []
        for unsent in self._waiting.values():
            if len(batch) == most or size <= 0:
                break
            batch.append(unsent)
            size -= unsent.letter.size
        return batch

    def is_sent(self, unsent: Unsent) -> bool:
        """Return True if a letter is in the topic, and need not be sent again."""
        id_, _ = self._sent.get(unsent.key, ("", 0))
        # An incomplete letter has no final id, so its place and code identify it.
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
        """Number of letters without an acknowledgement."""
        return len(self._waiting)

    def first_waiting(self) -> int | None:
        """Return the first offset whose letter is not acknowledged; it must not be released."""
        return min((offset for offset, _ in self._waiting), default=None)

    def note(self, first: int) -> str:
        """Return the metadata to commit with an offset of the group."""
        if not self.known:
            return f"{_MARK}{self.mark}"
        held = (at for (offset, _), (_, at) in self._sent.items() if offset >= first)
        return f"{_MARK}{min(held, default=self._end)}"

    def released(self, first: int) -> None:
        """Drop the letters before a committed offset: every message there has been handled."""
        self._first = first
        self._sent = {key: held for key, held in self._sent.items() if key[0] >= first}
        self._done = {key for key in self._done if key[0] >= first}
