"""Dead letters of one partition for one assignment: waiting ones and sent ones."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.observe.messages import format_cause, format_problem
from sluicegate.coordinator.observe.metrics import Metrics
from sluicegate.events.dead_letters import Letter, Mark, Place, read_letter
from sluicegate.events.envelope import Envelope
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.bodies import BodyFetcher, BodyUnavailable
from sluicegate.kafka.clients import spread, started
from sluicegate.kafka.producer import SessionProducer
from sluicegate.kafka.reading import read_batches

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

    def put_late(
        self, record: ConsumerRecord, envelope: Envelope, state: LogState | None, ignored: Problem | None
    ) -> None:
        """Add a letter for a completion whose incarnation was not live when it arrived.

        `state` is that of a second read, where the letter of the first one may not be acknowledged.
        `ignored` is the reason for which the log has ignored the completion, if it has.
        """
        if state is not None and was_not_live(state, envelope, record.offset):
            ignored = Problem(code=Code.NOT_LIVE)
        if ignored is not None and ignored.code is Code.NOT_LIVE:
            place = {
                "region": envelope.region,
                "incarnation": envelope.incarnation,
                "checkpoint": envelope.checkpoint,
            }
            self.put(record, ignored.model_copy(update=place), envelope.stream)

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


def was_not_live(state: LogState, envelope: Envelope, offset: int) -> bool:
    """True if the incarnation of an event was not live at its offset, which the state is past.

    The end of an incarnation that has no successor yet is not known, so its events count as live. The same
    holds for one that the state may have forgotten.
    """
    region = state.regions.get(envelope.region)
    newest = region.incarnation if region is not None else None
    # Those of the former assignment end with the first decision of the newest one.
    ended = (*state.ended, *(state.former.suspended if state.former is not None else ()))
    if newest is None:
        return envelope.incarnation not in ended
    if newest.id == envelope.incarnation:
        return offset < newest.from_offset
    # Before a region has a position, the state forgets none of its incarnations.
    never = newest.base is None and envelope.incarnation not in ended
    return never or offset > newest.from_offset


# Delivery of dead letters: unchanged messages with a reason, sent before their offset is released.

log = structlog.get_logger(__name__)

PARTITION: Final = 0
"""All letters are in one partition, so that a single offset is enough as a mark."""
BATCH: Final = 1_000
BATCH_BYTES: Final = 8 << 20
LOGGED: Final = 20
"""Number of letters of a batch that get a log line each; the others are counted in one line."""
RETRY: Final = 1.0
LAST_WORDS: Final = 1.0
"""Seconds to wait for acknowledgements when sending ends."""


class DeadLetters:
    """Sends the letters of all boxes in the background, in batches, until each is acknowledged."""

    def __init__(
        self,
        topic: str,
        producer: SessionProducer,
        fetcher: BodyFetcher,
        metrics: Metrics,
        options: dict[str, Any],
        patience: float,
        largest: int,
    ) -> None:
        """Make a sender; `options` of a consumer of the topic, `largest` in bytes of a letter."""
        self._patience = patience
        self._topic = topic
        self._producer = producer
        self._fetcher = fetcher
        self._metrics = metrics
        self._options = options
        self._largest = largest
        self._boxes: list[Letterbox] = []
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def box(self, topic: str, partition: int) -> Letterbox:
        """Make the box of a partition for an assignment."""
        box = Letterbox(topic, partition, self._more.set)
        self._boxes.append(box)
        return box

    async def close(self, box: Letterbox) -> None:
        """Stop sending the letters of a box.

        Waiting letters still hold back their offset, so that the next owner sends them. Letters in flight are
        awaited for up to LAST_WORDS seconds, so that the next owner finds them.
        """
        if box in self._boxes:
            self._boxes.remove(box)
        try:
            async with asyncio.timeout(LAST_WORDS):
                await self._idle.wait()
        except TimeoutError:
            log.warning("dead letters under way are left behind: a successor may send them too")

    async def run(self) -> None:
        """Send letters until cancelled."""
        while True:
            await self._more.wait()
            self._more.clear()
            while boxes := [box for box in self._boxes if box.waiting]:
                try:
                    await self._read_back([box for box in boxes if not box.known])
                    for box in boxes:
                        await self._send(box, box.next(BATCH, BATCH_BYTES))
                except (KafkaError, TimeoutError, OSError) as error:
                    waiting = sum(box.waiting for box in boxes)
                    log.warning("dead letters not delivered yet", waiting=waiting, error=repr(error))
                    await asyncio.sleep(spread(RETRY))

    async def _read_back(self, boxes: Sequence[Letterbox]) -> None:
        """Read the letters that were sent before. Raises KafkaError, TimeoutError."""
        if not boxes:
            return
        source = TopicPartition(self._topic, PARTITION)
        consumer = AIOKafkaConsumer(auto_offset_reset="none", enable_auto_commit=False, **self._options)
        async with started(consumer):
            begin: int = (await consumer.beginning_offsets([source]))[source]
            end: int = (await consumer.end_offsets([source]))[source]
            mark = min(box.mark for box in boxes)
            # A mark after the end belongs to a topic that was deleted and created again.
            position = max(begin, mark) if mark <= end else begin
            consumer.assign([source])
            consumer.seek(source, position)
            while position < end:
                async with asyncio.timeout(self._patience):
                    reading = await read_batches(consumer, source, timeout_ms=500)
                    for record in [*reading.batches.get(source, []), *reading.unreadable]:
                        found = read_letter(record)
                        if found is not None and not isinstance(found, Mark):
                            for box in boxes:
                                box.found(*found, record.offset)
                    position = await consumer.position(source)
        for box in boxes:
            box.read_to(end)

    async def _send(self, box: Letterbox, batch: Sequence[Unsent]) -> None:
        """Send a batch and wait for its acknowledgement. Raises KafkaError."""
        unsent = [each for each in await self._complete(batch) if not box.is_sent(each)]
        sending: list[asyncio.Future[Any]] = []
        self._idle.clear()
        try:
            for each in unsent:
                fitting = each.letter if each.letter.size <= self._largest else each.letter.shortened()
                key, value, headers = fitting.message()
                sending.append(
                    await self._producer.send(
                        self._topic, value, key=key, partition=PARTITION, headers=headers
                    )
                )
        finally:
            try:
                await self._wait(sending)
            finally:
                # Note the acknowledged letters even if others failed, or they would be sent twice.
                sent = [pair for pair in zip(unsent, sending, strict=False) if _is_sent(pair[1])]
                for each, future in sent:
                    box.acknowledged(each, future.result().offset)
                self._tell([each.letter for each, _ in sent])
                self._idle.set()
        for future in sending:
            future.result()

    async def _wait(self, sending: Sequence[asyncio.Future[Any]]) -> None:
        """Wait for the outcome of each letter; after a cancellation, only LAST_WORDS seconds."""
        if not sending:
            return
        try:
            await asyncio.wait(sending)
        except asyncio.CancelledError:
            await asyncio.wait(sending, timeout=LAST_WORDS)
            raise

    async def _complete(self, batch: Sequence[Unsent]) -> list[Unsent]:
        """Fetch the messages of which only the body is in memory. Raises KafkaError, TimeoutError."""
        complete = {unsent.key: unsent for unsent in batch}
        lacking = [unsent for unsent in batch if not unsent.complete]
        if not lacking:
            return list(batch)
        offsets = sorted({unsent.letter.place.offset for unsent in lacking})
        try:
            records = await self._fetcher.records(lacking[0].letter.place.partition, offsets)
        except BodyUnavailable as error:
            # Retention has deleted the message; a letter with only the body is better than none.
            log.warning("dead letters without headers", reason=format_cause(error.cause))
            return list(batch)
        for unsent in lacking:
            record = records.get(unsent.letter.place.offset)
            if record is not None:
                place = Place(record.topic, record.partition, record.offset, record.timestamp)
                letter = Letter(
                    place,
                    unsent.letter.code,
                    unsent.letter.reason,
                    record.key,
                    record.value,
                    tuple(record.headers),
                )
                complete[unsent.key] = Unsent(letter, complete=True)
        return list(complete.values())

    def _tell(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            self._metrics.dead_letters.add(1, letter.code)
        for letter in letters[:LOGGED]:
            source = f"{letter.place.topic}/{letter.place.partition}/{letter.place.offset}"
            log.warning("dead letter", source=source, code=letter.code, reason=letter.reason)
        if more := Counter(letter.code for letter in letters[LOGGED:]):
            log.warning("more dead letters", total=more.total(), codes=dict(more))


def _is_sent(future: asyncio.Future[Any]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
