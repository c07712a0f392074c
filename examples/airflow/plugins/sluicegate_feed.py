"""Airflow: notifications of Sluicegate's commits topic as events of an asset. Put this file into `plugins/`.

`CommitsTrigger` commits the offset of a notification after Airflow has stored its event, so a crash of the
triggerer repeats events, never loses one. `MessageQueueTrigger` commits it before, and may lose one; where
that is good enough, `announcement` is its `apply_function`. Repetitions have one id.

Needed are Airflow 3.3 or later, and the packages apache-airflow-providers-apache-kafka and
apache-airflow-providers-common-messaging; Sluicegate itself is not. The connection `kafka_default` has these
extras: `bootstrap.servers`, a `group.id` of its own, `enable.auto.commit` false, and `auto.offset.reset`
earliest.
"""

import json
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from typing import Any

from airflow.providers.apache.kafka.hooks.consume import KafkaConsumerHook
from airflow.providers.apache.kafka.triggers.shared_stream import (
    KafkaBrokerPayload,
    KafkaSharedStreamProducer,
    KafkaSharedStreamTrigger,
)
from airflow.triggers.base import TriggerEvent
from asgiref.sync import sync_to_async

COMMITS = ("sluicegate.commit.visible.v5", "sluicegate.commit.partially_visible.v5")
MARKS = ("sluicegate.partition.done.v5",)
FIELDS = (
    *("table", "partition", "start", "end", "decision", "snapshot", "watermark"),
    *("reason", "late", "number", "files", "rows", "bytes"),
)
LONGEST = 1_000
"""Characters of a field as JSON. A longer one is left out, so that no event is huge."""


def announcement(message: Any, *, stream: str, kinds: Sequence[str] = MARKS) -> dict[str, Any] | None:
    """Return a notification of the stream with its id; None for every other message."""
    headers = dict(message.headers() or ())
    kind = headers.get("ce_type", b"").decode()
    if headers.get("ce_stream") != stream.encode() or kind not in kinds:
        return None
    body = json.loads(message.value())
    known = {**(body.get("summary") or {}), **body}
    short = {
        name: known[name] for name in FIELDS if len(json.dumps(known.get(name))) <= LONGEST and name in known
    }
    return {"id": headers["ce_id"].decode(), "type": kind, "stream": stream, **short}


class CommitsProducer(KafkaSharedStreamProducer):  # type: ignore[misc, unused-ignore]
    """The consumer of the triggerer. It gives whole messages: the id and the type are headers."""

    async def open_stream(self) -> AsyncIterator[tuple[Any, KafkaBrokerPayload]]:
        """Yield each message with its place."""
        hook = KafkaConsumerHook(topics=self.topics, kafka_config_id=self.kafka_config_id)
        await self._ensure_manual_commit(hook)
        consumer = await sync_to_async(hook.get_consumer)()
        self._consumer = consumer
        poll = sync_to_async(consumer.poll)
        while True:
            message = await poll(self.poll_timeout)
            if message is None:
                continue
            if message.error():
                raise RuntimeError(f"the commits topic cannot be read: {message.error()}")
            yield message, KafkaBrokerPayload(message.topic(), message.partition(), message.offset())


class CommitsTrigger(KafkaSharedStreamTrigger):  # type: ignore[misc, unused-ignore]
    """Fires for each notification of some kinds of a stream. All streams share one consumer."""

    def __init__(
        self,
        *,
        stream: str,
        kinds: Sequence[str] = MARKS,
        topics: Sequence[str] = ("sluicegate.commits",),
        kafka_config_id: str = "kafka_default",
        poll_timeout: float = 1.0,
    ) -> None:
        super().__init__(topics=topics, kafka_config_id=kafka_config_id, poll_timeout=poll_timeout)
        self.stream, self.kinds = stream, list(kinds)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what makes the same trigger in the triggerer."""
        own = {"stream": self.stream, "kinds": self.kinds, "topics": self.topics}
        place = {"kafka_config_id": self.kafka_config_id, "poll_timeout": self.poll_timeout}
        return "sluicegate_feed.CommitsTrigger", {**own, **place}

    def shared_stream_key(self) -> Hashable:
        """Return the key of the consumer that triggers share."""
        return "sluicegate-commits", tuple(self.topics), self.kafka_config_id

    @classmethod
    def create_shared_stream_producer(cls, kwargs: Mapping[str, Any]) -> CommitsProducer:
        """Return the consumer of a key."""
        names = ("topics", "kafka_config_id", "poll_timeout")
        return CommitsProducer(**{name: kwargs[name] for name in names})

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Yield an event for each notification of the stream."""
        async for message in shared_stream:
            found = announcement(message, stream=self.stream, kinds=self.kinds)
            if found is not None:
                yield TriggerEvent(found)
