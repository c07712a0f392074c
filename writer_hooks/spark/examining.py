"""Checks of a sink before its first batch. Spark does not call the sink before that."""

from collections.abc import Iterator, Mapping

from sluicegate.lakes import LakeError, adapter
from sluicegate.lakes.port import TableRefused
from sluicegate.writer_hooks.errors import BadCheckpointLocation, BadOption, PublishFailed, TopicMissing
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint
from sluicegate.writer_hooks.spark.options import SinkOptions


def wrong_options(options: Mapping[str, str]) -> str | None:
    """Return the reason why a sink with these options can never write, None if no reason is found."""
    try:
        parsed = SinkOptions.parse(options)
        parsed.region.kafka.client_options()
        Checkpoint(parsed.checkpoint_location)
        adapter(parsed.format)
    except (BadOption, BadCheckpointLocation, TableRefused) as error:
        return str(error)
    return None


def troubles(sink: SinkOptions, timeout: float) -> Iterator[str]:
    """Yield the reasons why batches would fail at present: problems of the table and of Kafka.

    The checks run on the driver, so problems of executors are not found.
    """
    try:
        adapter(sink.format).open_writer(sink.table_ref(), sink.event_time_column).abort()
    except LakeError as error:
        yield f"its table cannot be written from the driver's machine: {error}"
    publisher, region = shared_publisher(sink.region.kafka), sink.region
    try:
        for topic in (region.events_topic, region.commits_topic):
            publisher.partitions(topic, timeout)
    except PublishFailed as error:
        yield (
            f"Kafka at {region.kafka.bootstrap_servers} did not answer within {timeout:g} s "
            f"({error.__cause__!r}); check the options kafka.*, and that it runs and can be reached from here"
        )
    except TopicMissing as error:
        yield str(error)
