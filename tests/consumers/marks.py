"""Notifications of the commits topic, published as a coordinator publishes them."""

from datetime import UTC, datetime

from aiokafka import AIOKafkaProducer

from sluicegate.events.encoding import encode_notification
from sluicegate.events.envelope import partition_of
from sluicegate.events.notifications import Notification, NotificationType, PartitionDone
from sluicegate.kafka.clients import started
from tests.events.examples import notification_of
from tests.integration.job import PARTITIONS


def mark(number: int, month: int, *, stream: str = "flights", late: bool = False) -> Notification:
    """Return a mark of a month of 2013; its id follows from the number."""
    start, end = (datetime(2013, each, 1, tzinfo=UTC) for each in (month, month + 1))
    body = PartitionDone(
        table="file:///lake/flights",
        partition=f"month={month:02}",
        values={"month": f"{month:02}"},
        start=round(start.timestamp() * 1000),
        end=round(end.timestamp() * 1000),
        decision=number,
        snapshot=number,
        watermark=round(end.timestamp() * 1000) + 1,
        reason="watermark",
        late=late,
        number=2 if late else 1,
    )
    return Notification(f"mark-{number}", NotificationType.PARTITION_DONE, stream, "", "", body)


def commit(number: int) -> Notification:
    """Return a commit of the stream `flights`."""
    return notification_of(NotificationType.COMMITTED)._replace(id=f"commit-{number}")


async def publish(bootstrap: str, topic: str, *notifications: Notification) -> None:
    """Append notifications to the commits topic, and wait for the acknowledgement."""
    async with started(AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")) as producer:
        for each in notifications:
            message = encode_notification(each, 1_400_000_000_000)
            await producer.send_and_wait(
                topic,
                message.value,
                key=message.key,
                headers=message.headers,
                partition=partition_of(each.stream, PARTITIONS),
            )
