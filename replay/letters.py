"""Dead letters as an operator deals with them: read, sent again, marked as dealt with.

A mark is a message of the same topic that names a letter by its id, so it also stands for a copy that a
successor of a coordinator may have sent; written after the letter, it outlives it.
"""

from typing import Literal, NamedTuple

from aiokafka import AIOKafkaProducer, ConsumerRecord

from sluicegate.coordinator.dead_letters.sending import PARTITION
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.continuity import Home
from sluicegate.events.codec import BadBody, read_body, read_envelope
from sluicegate.events.dead_letters import TOO_LARGE, Headers, LetterCode, Mark, mark_headers, read_letter
from sluicegate.events.dead_letters import Letter as Content
from sluicegate.events.envelope import Envelope, Poison
from sluicegate.events.partitioning import partition_of
from sluicegate.kafka.bodies import BodyFetcher, BodyUnavailable
from sluicegate.replay.base import bases, check_continuity
from sluicegate.replay.course import Settled, Taken
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.log import open_log, read_topic, stream_records
from sluicegate.replay.marks import Mark as Bound
from sluicegate.replay.marks import Window, parse_mark
from sluicegate.replay.run import run_over

Dealt = Literal["retried", "dropped"]


class Letter(NamedTuple):
    """A message that was put aside, as the topic has it."""

    offset: int
    """In the dead letters' topic."""
    time: int
    """When it was sent there."""
    id: str
    content: Content
    copies: int = 1
    dealt: str | None = None
    """How it was dealt with, if it was."""

    @property
    def stream(self) -> str | None:
        """The stream that the message names."""
        named = dict(self.content.headers).get("ce_stream")
        return named.decode(errors="replace") if named is not None else None

    @property
    def source(self) -> str:
        """Where the message stands, as text."""
        place = self.content.place
        return f"{place.topic}, partition {place.partition}, offset {place.offset}"


class Sent(NamedTuple):
    """Where a letter stands in the log of events."""

    stream: str
    envelope: Envelope
    partition: int
    offset: int


class Message(NamedTuple):
    """What a producer had sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers


async def read_letters(settings: Settings, start: int = 0) -> list[Letter]:
    """Every letter that is kept from an offset on, the oldest first, each once.

    Raises KafkaError, TimeoutError.
    """
    topic = settings.kafka.topic_names().dead_letters
    found: dict[str, Letter] = {}
    dealt: dict[str, str] = {}
    async for batch in read_topic(settings, topic, start):
        for record in batch:
            _take(record, found, dealt)
    return [letter._replace(dealt=dealt.get(letter.id)) for letter in found.values()]


def _take(record: ConsumerRecord, found: dict[str, Letter], dealt: dict[str, str]) -> None:
    read = read_letter(record)
    if isinstance(read, Mark):
        dealt[read.letter] = read.how
    elif read is not None:
        id_, content = read
        before = found.get(id_)
        found[id_] = (
            before._replace(copies=before.copies + 1)
            if before is not None
            else Letter(record.offset, record.timestamp, id_, content)
        )


async def original(settings: Settings, letter: Letter) -> Message:
    """The message as its producer had sent it. Raises ReplayRefused, KafkaError."""
    content = letter.content
    if content.code == LetterCode.UNDECODABLE:
        raise ReplayRefused(
            "it cannot be sent again as it was: the name of a header is not UTF-8. Let its producer send it"
        )
    if content.value != TOO_LARGE and content.headers:
        return Message(content.key, content.value, content.headers)
    # Of some messages the letter has the body alone, or not even that; they stand where they were read.
    kafka, place = settings.kafka, content.place
    if place.topic != kafka.topic_names().events:
        raise ReplayRefused(f"the letter does not have the whole message, which stood in {letter.source}")
    fetcher = BodyFetcher(place.topic, kafka.client_options(), kafka.request_timeout)
    try:
        found = (await fetcher.records(place.partition, [place.offset])).get(place.offset)
    except BodyUnavailable as error:
        raise ReplayRefused(f"the letter does not have the whole message, and {error}") from error
    finally:
        await fetcher.close()
    if found is None or content.value not in (TOO_LARGE, found.value or b""):
        raise ReplayRefused(
            f"the letter does not have the whole message, and another one is in {letter.source}"
        )
    return Message(found.key, found.value, tuple(found.headers))


async def send(settings: Settings, message: Message) -> Sent:
    """Append a message to the log again, with its own id. Raises ReplayRefused, KafkaError.

    A message that would only be put aside once more is refused.
    """
    envelope = read_envelope(message.headers)
    if isinstance(envelope, Poison):
        raise ReplayRefused(f"this release cannot read it either: {envelope.reason}")
    try:
        read_body(envelope.type, message.value)
    except BadBody as error:
        raise ReplayRefused(f"this release cannot read it either: {error}") from error
    if envelope.stream not in settings.streams:
        raise ReplayRefused(
            f"its stream {envelope.stream} is not in the settings of this command; where the coordinators "
            f"have it, use theirs (--config); else add [streams.{envelope.stream}] to the settings of the "
            "coordinators and send them SIGHUP: what is still in the log is committed then"
        )
    topic = settings.kafka.topic_names().events
    async with _producer(settings) as producer:
        count = len(await producer.partitions_for(topic))
        home = partition_of(envelope.stream, count)
        sent = await producer.send_and_wait(
            topic, message.value, key=message.key, headers=list(message.headers), partition=home
        )
    return Sent(envelope.stream, envelope, sent.partition, sent.offset)


async def mark(settings: Settings, letter: Letter, how: Dealt) -> None:
    """Leave a mark that a letter was dealt with. Raises KafkaError."""
    headers = mark_headers(letter.id, how, letter.content.place)
    topic = settings.kafka.topic_names().dead_letters
    async with _producer(settings) as producer:
        await producer.send_and_wait(topic, b"", headers=headers, partition=PARTITION)


def _producer(settings: Settings) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        **settings.kafka.client_options(),
        acks="all",
        enable_idempotence=True,
        max_request_size=settings.kafka.max_message_bytes,
    )


async def judge(settings: Settings, sent: Sent) -> str | None:
    """What the log makes of a message at its place: why it has no effect, None if it has one.

    By the rules that every coordinator follows, so it is known before one has read it. Raises ReplayRefused,
    KafkaError, TimeoutError.
    """
    found: list[Taken] = []

    def watch(record: ConsumerRecord, taken: Taken) -> None:
        if record.offset == sent.offset:
            found.append(taken)

    async def forget(_: Settled) -> None:
        """Decisions do not matter here."""

    records = await stream_records(settings, sent.stream)
    async with open_log(settings, sent.stream) as log:
        held = await log.range()
        home = Home(log.source.partition, settings.streams[sent.stream].commit_user)
        await check_continuity(log.fetcher, home, records, held)
        choices = bases(records, held, Bound("", offset=sent.offset))
        everything = Window(parse_mark("earliest"), parse_mark("latest"))
        done = await run_over(
            log, sent.stream, choices, sent.offset + 1, everything, forget, say=lambda _: None, watch=watch
        )
    if done.course.unreadable is not None:
        return done.course.unreadable
    return found[0].ignored if found else "it was not found where it was written"
