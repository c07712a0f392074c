"""Dead letters as an operator deals with them: read, sent again, marked as dealt with.

A mark is a message of the same topic that names a letter by its content, so it also stands for the copies
that a successor of a coordinator puts aside once more; written after the letter, it outlives it.
"""

import hashlib
import json
from typing import Final, Literal, NamedTuple

from aiokafka import AIOKafkaProducer, ConsumerRecord

from sluicegate.coordinator.replay.base import bases, check_continuity
from sluicegate.coordinator.replay.course import Settled, Taken
from sluicegate.coordinator.replay.errors import ReplayRefused
from sluicegate.coordinator.replay.log import open_log, read_topic, stream_records
from sluicegate.coordinator.replay.marks import Mark, Window, parse_mark
from sluicegate.coordinator.replay.run import run_over
from sluicegate.coordinator.settings import Settings
from sluicegate.coordinator.shell.bodies import BodyFetcher, BodyUnavailable
from sluicegate.coordinator.shell.deadletters import (
    DEALT_HEADER,
    LETTER_HEADER,
    REASON_HEADER,
    SOURCE_HEADER,
    TOO_LARGE,
)
from sluicegate.coordinator.shell.reading import UNREADABLE_NAME
from sluicegate.events.codec import BadBody, read_body, read_envelope
from sluicegate.events.envelope import Envelope, Poison
from sluicegate.events.partitioning import partition_of

Dealt = Literal["retried", "dropped"]
Headers = tuple[tuple[str, bytes | None], ...]

_OURS: Final = "sluicegate-"


class Letter(NamedTuple):
    """A message that was put aside."""

    offset: int
    """In the dead letters' topic."""
    time: int
    topic: str
    partition: int
    source_offset: int
    """Where it was read; -1 if the letter does not say."""
    reason: str
    key: bytes | None
    value: bytes
    headers: Headers
    """Its own, without those of the letter."""
    identity: str
    copies: int = 1
    dealt: str | None = None
    """How it was dealt with, if it was."""

    @property
    def stream(self) -> str | None:
        """The stream that the message names."""
        named = dict(self.headers).get("ce_stream")
        return named.decode(errors="replace") if named is not None else None

    @property
    def source(self) -> str:
        """Where it was read, in words."""
        return f"{self.topic}, partition {self.partition}, offset {self.source_offset}"


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


async def read_letters(settings: Settings) -> list[Letter]:
    """Every letter that is kept, the oldest first, each content once. Raises KafkaError, TimeoutError."""
    topic = settings.kafka.topic_names().dead_letters
    found: dict[str, Letter] = {}
    dealt: dict[str, str] = {}
    async for record in read_topic(settings, topic):
        headers = dict(record.headers)
        named = headers.get(LETTER_HEADER)
        if named is not None:
            dealt[named.decode(errors="replace")] = (headers.get(DEALT_HEADER) or b"").decode(
                errors="replace"
            )
            continue
        letter = _letter(record)
        before = found.get(letter.identity)
        found[letter.identity] = before._replace(copies=before.copies + 1) if before else letter
    return [letter._replace(dealt=dealt.get(letter.identity)) for letter in found.values()]


def _letter(record: ConsumerRecord) -> Letter:
    told = dict(record.headers)
    source = (told.get(SOURCE_HEADER) or b"").decode(errors="replace")
    topic, partition, offset = (*source.rsplit("/", 2), "", "")[:3]
    headers = tuple((name, value) for name, value in record.headers if not name.startswith(_OURS))
    value = record.value or b""
    content = [source, _hex(record.key), _hex(value), [[name, _hex(each)] for name, each in headers]]
    identity = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
    reason = (told.get(REASON_HEADER) or b"").decode(errors="replace")
    where = (int(partition), int(offset)) if partition.isdigit() and offset.isdigit() else (-1, -1)
    return Letter(
        record.offset, record.timestamp, topic, *where, reason, record.key, value, headers, identity
    )


def _hex(content: bytes | None) -> str | None:
    return None if content is None else content.hex()


async def original(settings: Settings, letter: Letter) -> Message:
    """The message as its producer had sent it. Raises ReplayRefused, KafkaError."""
    if UNREADABLE_NAME in letter.reason:
        raise ReplayRefused(
            "it cannot be sent again as it was: the name of a header is not UTF-8. Let its producer send it"
        )
    if letter.value != TOO_LARGE and "ce_type" in dict(letter.headers):
        return Message(letter.key, letter.value, letter.headers)
    # Of some messages the letter has the body alone, or nothing; they stand where they were read.
    kafka = settings.kafka
    if letter.topic != kafka.topic_names().events or letter.source_offset < 0:
        raise ReplayRefused(f"the letter does not have the whole message, which stood in {letter.source}")
    fetcher = BodyFetcher(letter.topic, kafka.client_options(), kafka.request_timeout)
    try:
        found = (await fetcher.records(letter.partition, [letter.source_offset])).get(letter.source_offset)
    except BodyUnavailable as error:
        raise ReplayRefused(f"the letter does not have the whole message, and {error}") from error
    finally:
        await fetcher.close()
    if found is None or (letter.value not in (TOO_LARGE, found.value or b"")):
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
            "coordinators and restart them: what is still in the log is committed then"
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
    headers = [
        (LETTER_HEADER, letter.identity.encode()),
        (DEALT_HEADER, how.encode()),
        (REASON_HEADER, f"{how} by the operator".encode()),
        (SOURCE_HEADER, f"{letter.topic}/{letter.partition}/{letter.source_offset}".encode()),
    ]
    async with _producer(settings) as producer:
        await producer.send_and_wait(settings.kafka.topic_names().dead_letters, b"", headers=headers)


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
        await check_continuity(log.fetcher, log.source.partition, records, held)
        choices = bases(records, held, Mark("", offset=sent.offset))
        everything = Window(parse_mark("earliest"), parse_mark("latest"))
        done = await run_over(
            log, sent.stream, choices, sent.offset + 1, everything, forget, say=lambda _: None, watch=watch
        )
    if done.course.unreadable is not None:
        return done.course.unreadable
    return found[0].ignored if found else "it was not found where it was written"
