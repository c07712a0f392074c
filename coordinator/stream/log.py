"""Checks that the log continues a state record: same topic, same partition, same commit user."""

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate import __version__
from sluicegate.coordinator.core.effects import Append, Appended
from sluicegate.coordinator.core.state_record import RELEASE_HEADER, Due, StateRecord, encode_record
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.settings.model import SIGNING_KEYS_HEADER, own_keys
from sluicegate.coordinator.stream.links import Links
from sluicegate.coordinator.stream.other_groups import GROUP_HEADER, SIGNING_HEADER
from sluicegate.coordinator.stream.outcomes import Outcomes
from sluicegate.events.codec import event_id
from sluicegate.events.encoding import encode_event, encode_notification
from sluicegate.events.envelope import Envelope, Header, partition_of
from sluicegate.events.models import Body
from sluicegate.events.notifications import Notification, RegistrationAnswered, Stalled
from sluicegate.events.problems import Cause, CauseCode, Code, Problem
from sluicegate.events.signing import SIGNED, WINDOW_MS
from sluicegate.kafka.bodies import BodyFetcher
from sluicegate.kafka.internals import fetch_committed


class LogRange(NamedTuple):
    """Offsets of a partition: the first one, and the one after the last record."""

    begin: int
    end: int


class Home(NamedTuple):
    """A stream's place as the settings and the topic have it now."""

    partition: int
    commit_user: str


async def committed_with_note(consumer: AIOKafkaConsumer, source: TopicPartition) -> tuple[int | None, str]:
    """Return the group's offset, if it has one, and the note beside it. Raises KafkaError."""
    found = await fetch_committed(consumer, source)
    return (None, "") if found is None or found.offset < 0 else (found.offset, found.metadata or "")


async def last_events(
    fetcher: BodyFetcher, partition: int, records: Collection[StateRecord], log: LogRange
) -> Mapping[int, str | None]:
    """Return the ids of the events at the offsets that the records reached, where the log has them.

    Raises BodyUnavailable, KafkaError or TimeoutError.
    """
    offsets = sorted({record.applied for record in records if log.begin <= record.applied < log.end})
    if not offsets:
        return {}
    found = await fetcher.records(partition, offsets)
    return {offset: event_id(found[offset].headers) if offset in found else None for offset in offsets}


def obstacle(
    record: StateRecord, home: Home, log: LogRange, events: Mapping[int, str | None]
) -> Problem | None:
    """Return the problem if no coordinator may continue from the record, else None."""
    return (
        other_partition(record, home.partition)
        or other_user(record, home.commit_user)
        or discontinuity(record, log, events)
    )


def other_partition(record: StateRecord, partition: int) -> Problem | None:
    """Return the problem if this is not the partition of the stream: the events topic has grown."""
    known = record.state.partition
    if known in (None, partition):
        return None
    return Problem(code=Code.OTHER_PARTITION, number=known, other=partition)


def other_user(record: StateRecord, commit_user: str) -> Problem | None:
    """Return the problem if the stream may not continue as this commit user, else None.

    The check also holds before the first decision of the record: a later one may be in the table already.
    """
    if record.commit_user in (None, commit_user):
        return None
    return Problem(code=Code.OTHER_COMMIT_USER, names=(record.commit_user, commit_user))


def discontinuity(record: StateRecord, log: LogRange, events: Mapping[int, str | None]) -> Problem | None:
    """Return the problem if the log does not continue the record, else None."""
    reached, known = max(record.low_water, record.applied + 1), record.applied_id
    if reached > log.end:
        return lacking(reached, Cause(code=CauseCode.LOG_ENDS_EARLIER, number=log.end))
    if known is not None and record.applied in events and events[record.applied] != known:
        return lacking(record.applied, Cause(code=CauseCode.OTHER_EVENT))
    if record.low_water < log.begin:
        return deleted(record.low_water, log.begin)
    return None


def deleted(needed: int, begin: int) -> Problem:
    """Return the problem of events that were deleted before they were read or committed."""
    return lacking(needed, Cause(code=CauseCode.LOG_BEGINS_LATER, number=begin))


def lacking(needed: int, cause: Cause) -> Problem:
    """Return the problem of a log that lacks the events from an offset on."""
    return Problem(code=Code.LOG_DISCONTINUOUS, number=needed, cause=cause)


def failed_at(offset: int, error: Exception) -> Problem:
    """Return the problem of a record that the core fails at, which is a defect of this release."""
    failed, detail = Cause(code=CauseCode.RELEASE_FAILED), f"{type(error).__name__}: {error}"
    return Problem(code=Code.RECORD_UNREADABLE, number=offset, cause=failed, detail=detail)


# Appends of one stream to Kafka: events of the log, state records, notifications.


class ClocksDiffer(Exception):
    """A signed record was appended so long before or after it was signed that no reader takes it."""

    def __init__(self, signed: int, appended: int) -> None:
        super().__init__(
            f"the clock of this host and that of the broker differ by {abs(appended - signed) // 1000} s, "
            f"and signed records may differ by {WINDOW_MS // 1000} s. Correct the clock"
        )


class StreamLog:
    """Appends for one stream.

    Each method returns after the acknowledgement of the broker and raises KafkaError.
    """

    def __init__(self, stream: str, partition: int, links: Links) -> None:
        """Make an appender; `partition` is the partition of the stream's events."""
        self._stream = stream
        self._partition = partition
        self._links = links
        self.signatures = links.settings.kafka.signatures()
        self._group = (GROUP_HEADER, links.settings.kafka.group_id.encode())
        mode = self.signatures.mode
        keys = own_keys(links.settings.kafka).model_dump_json().encode()
        signing = [(SIGNING_HEADER, mode.encode()), (SIGNING_KEYS_HEADER, keys)] if mode != "off" else []
        self._release = (RELEASE_HEADER, __version__.encode())
        self._of_records = [self._group, self._release, *signing]

    async def append(self, effect: Append, traced: Sequence[Header] = ()) -> Appended:
        """Append an event of the coordinator to the log; `traced` is its trace context."""
        event = str(uuid.uuid4())
        envelope = Envelope(event, effect.type, self._stream, effect.region, effect.incarnation)
        now = now_ms()
        message = encode_event(envelope, effect.body, now)
        headers = [*message.headers, *traced, self._group, self._release]
        if effect.type in SIGNED:
            headers = self.signatures.sign(headers, message.value)
        sent = await self._links.producer.send_and_wait(
            self._links.topics.events,
            message.value,
            key=message.key,
            partition=self._partition,
            headers=headers,
        )
        if effect.type in SIGNED and self.signatures.late(now, sent.timestamp):
            raise ClocksDiffer(now, sent.timestamp)
        return Appended(sent.offset)

    async def record(self, record: StateRecord) -> None:
        """Append a state record."""
        value = encode_record(record)
        await self._links.producer.send_and_wait(
            self._links.topics.state,
            value,
            key=self._stream.encode(),
            partition=partition_of(self._stream, self._links.partitions.state),
            headers=self._of_records,
        )
        self._links.metrics.recorded(self._stream, len(value))

    async def announce(self, due: Due, outcomes: Outcomes, traced: Sequence[Header] = ()) -> None:
        """Append a notification to the commits topic, and pass it to the listeners.

        `traced` is its trace context. Raises NotPlaced, too.
        """
        body = _with_reason(due.body, self._stream)
        found = Notification(due.id, due.type, self._stream, due.region, due.incarnation, body)
        await outcomes.before_announcing(found)
        outcomes.announced(found, *(await announce(found, self._links, traced)))


async def announce(
    notification: Notification, links: Links, traced: Sequence[Header] = ()
) -> tuple[int, int]:
    """Append a notification to the commits topic; return its offset and append time. Raises KafkaError."""
    time_ms = now_ms()
    message = encode_notification(notification, time_ms)
    sent = await links.producer.send_and_wait(
        links.topics.commits,
        message.value,
        key=message.key,
        partition=partition_of(notification.stream, links.partitions.commits),
        headers=[*message.headers, *traced],
    )
    return sent.offset, time_ms if sent.timestamp is None else sent.timestamp


def _with_reason(body: Body, stream: str) -> Body:
    """Return a notification with the sentence for its problem. The sentence is no part of any identity."""
    if isinstance(body, RegistrationAnswered | Stalled) and body.problem is not None:
        return body.model_copy(update={"reason": format_problem(body.problem, stream)})
    return body


def now_ms() -> int:
    """Return the time in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000
