"""Writes a state record while no coordinator runs."""

from aiokafka import AIOKafkaProducer

from sluicegate.coordinator.core.state import StateRecord
from sluicegate.coordinator.ownership import GROUP_HEADER
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.partitioning import partition_of


async def write_record(settings: Settings, record: StateRecord) -> None:
    """Write the record to the partition where its stream's coordinator reads it. Raises KafkaError."""
    topic = settings.kafka.topic_names().state
    async with AIOKafkaProducer(
        **settings.kafka.client_options(), acks="all", enable_idempotence=True
    ) as producer:
        count = len(await producer.partitions_for(topic))
        await producer.send_and_wait(
            topic,
            record.model_dump_json().encode(),
            key=record.stream.encode(),
            partition=partition_of(record.stream, count),
            headers=[(GROUP_HEADER, settings.kafka.group_id.encode())],
        )
