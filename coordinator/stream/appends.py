"""Appends of one stream to Kafka: events of the log, state records, notifications."""

import time
import uuid
from collections.abc import Sequence
from typing import Final

from sluicegate import __version__
from sluicegate.coordinator.core.effects import Append, Appended
from sluicegate.coordinator.core.state_record import Due, StateRecord
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.settings.model import SIGNING_KEYS_HEADER, own_keys
from sluicegate.coordinator.stream.links import Links
from sluicegate.coordinator.stream.other_groups import GROUP_HEADER, SIGNING_HEADER
from sluicegate.coordinator.stream.outcomes import Outcomes
from sluicegate.coordinator.stream.state_records import RELEASE_HEADER, RecordTooLarge, encode_record
from sluicegate.events.encoding import Unencodable, encode_event, encode_notification
from sluicegate.events.envelope import Envelope, Header, partition_of
from sluicegate.events.models import Body
from sluicegate.events.notifications import Notification, RegistrationAnswered, Stalled
from sluicegate.events.signing import SIGNED, WINDOW_MS
from sluicegate.kafka.producer import MessageTooLarge

UNSENDABLE: Final = (MessageTooLarge, RecordTooLarge, Unencodable)
"""Errors of messages that no topic takes, each with its cause."""


class ClocksDiffer(Exception):
    """A signed record was appended so long before or after it was signed that no reader takes it."""

    def __init__(self, signed: int, appended: int) -> None:
        super().__init__(
            f"the clock of this host and that of the broker differ by {abs(appended - signed) // 1000} s, "
            f"and signed records may differ by {WINDOW_MS // 1000} s. Correct the clock"
        )


class StreamAppender:
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
        self._links.metrics.record_size.set(len(value), self._stream)

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
