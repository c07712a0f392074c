"""Dead letters for an operator: read them, send them again, mark them as done.

A mark is a message of the same topic that names a letter by its id. It therefore also covers a copy of the
letter that a later coordinator sends. It follows the letter in the topic, so retention deletes it later.
"""

import time
from contextlib import aclosing
from typing import Literal, NamedTuple

from aiokafka import AIOKafkaProducer, ConsumerRecord

from sluicegate.coordinator.observe.messages import format_cause, format_problem
from sluicegate.coordinator.replay.decisions import LogFold, ReplayRefused, Step
from sluicegate.coordinator.replay.log import open_log, read_topic, stream_records
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.letters import PARTITION
from sluicegate.events.codec import Flaw, read_attributes, read_body, read_completion
from sluicegate.events.dead_letters import TOO_LARGE, Headers, Mark, mark_headers, read_letter
from sluicegate.events.dead_letters import Letter as Content
from sluicegate.events.envelope import Envelope, partition_of
from sluicegate.events.models import CheckpointCompleted
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.bodies import BodyFetcher, BodyUnavailable

Dealt = Literal["retried", "dropped"]


class Letter(NamedTuple):
    """A dead letter, as read from its topic."""

    offset: int
    """Offset in the dead-letter topic."""
    time: int
    """Append time in the dead-letter topic, in milliseconds since the Unix epoch."""
    id: str
    content: Content
    copies: int = 1
    dealt: str | None = None
    """The mark of an operator, if there is one."""

    @property
    def stream(self) -> str | None:
        """The stream that the message names in its headers."""
        named = dict(self.content.headers).get("ce_stream")
        return named.decode(errors="replace") if named is not None else None

    @property
    def source(self) -> str:
        """Place of the original message, as text."""
        place = self.content.place
        return f"{place.topic}, partition {place.partition}, offset {place.offset}"


class Sent(NamedTuple):
    """Place of a message that was sent again in the events topic."""

    stream: str
    envelope: Envelope
    partition: int
    offset: int


class Message(NamedTuple):
    """A message as its producer sent it."""

    key: bytes | None
    value: bytes | None
    headers: Headers


async def read_letters(settings: Settings, start: int = 0) -> list[Letter]:
    """Return every letter from an offset to the end of the topic, the oldest first, each once.

    Copies of a letter are counted. Raises ReplayRefused if the topic is missing, KafkaError, TimeoutError.
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
    """Return the message as its producer sent it. Raises ReplayRefused, KafkaError."""
    content = letter.content
    if content.code == Code.UNDECODABLE:
        raise ReplayRefused(
            "it cannot be sent again as it was: the name of a header is not UTF-8. Let its producer send it"
        )
    if content.value != TOO_LARGE and content.headers:
        return Message(content.key, content.value, content.headers)
    # Some letters have only the body, or not even that; their message is read from its original place.
    kafka, place = settings.kafka, content.place
    if place.topic != kafka.topic_names().events:
        raise ReplayRefused(f"the letter does not have the whole message, which stood in {letter.source}")
    fetcher = BodyFetcher(place.topic, kafka.client_options(), kafka.request_timeout)
    try:
        found = (await fetcher.records(place.partition, [place.offset])).get(place.offset)
    except BodyUnavailable as error:
        why = format_cause(error.cause)
        raise ReplayRefused(f"the letter does not have the whole message, and {why}") from error
    finally:
        await fetcher.close()
    # In a topic that was created again, another message can have this offset.
    if found is None or content.value not in (TOO_LARGE, found.value or b""):
        raise ReplayRefused(
            f"the letter does not have the whole message, and another one is in {letter.source}"
        )
    return Message(found.key, found.value, tuple(found.headers))


async def send(settings: Settings, message: Message) -> Sent:
    """Append a message to the log again, with its own id. Raises ReplayRefused, KafkaError.

    A message that would only become a dead letter again is refused.
    """
    envelope = read_attributes(message.headers)
    if isinstance(envelope, Flaw):
        problem = envelope.problem
        raise ReplayRefused(
            f"this release cannot read it either. {format_problem(problem, envelope.stream or 'STREAM')}"
        )
    body = read_body(envelope.type, message.value)
    if isinstance(body, CheckpointCompleted):
        body = read_completion(envelope, message.value)
    if isinstance(body, Problem):
        raise ReplayRefused(f"this release cannot read it either. {format_problem(body, envelope.stream)}")
    signatures, now = settings.kafka.signatures(), time.time_ns() // 1_000_000
    if (flaw := signatures.flaw(now, message.headers, message.value, envelope)) is not None:
        raise ReplayRefused(format_problem(flaw.problem, envelope.stream))
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
    """Append a mark for a letter. Raises KafkaError."""
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


async def judge(settings: Settings, sent: Sent) -> Problem | None:
    """Return the reason for which a message in the log has no effect; None if it has one.

    The rules are those of every coordinator, so the result is known before one reads the message. Raises
    ReplayRefused, KafkaError, TimeoutError.
    """
    records = await stream_records(settings, sent.stream)
    async with open_log(settings, sent.stream) as log:
        start, found = await log.start(sent.stream, records, sent.offset), list[Step]()
        fold = LogFold(sent.stream, log.partition, start, log.decode)
        async with aclosing(log.read(start.begin, sent.offset + 1)) as batches:
            async for batch in batches:
                for record in batch:
                    step = fold.read(record.offset, record.timestamp, record.headers, record.value)
                    if step is not None and record.offset == sent.offset:
                        found.append(step)
    if fold.problem is not None:
        return fold.problem
    if not found:
        raise ReplayRefused(
            f"the message is not at offset {sent.offset} of partition {sent.partition}, where it was "
            "appended: the topic may have been created again. See: sluicegate check"
        )
    return found[0].applied.ignored
