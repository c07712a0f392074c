"""Checks of a sink before its first batch. Spark does not call the sink before that."""

from collections.abc import Iterator, Mapping

from sluicegate.kafka.topics import TopicNames
from sluicegate.lakes import Adapter, LakeError, adapter
from sluicegate.lakes.capabilities import Evolve, evolving
from sluicegate.lakes.file_options import FileOptions, open_writer
from sluicegate.lakes.port import TableRef
from sluicegate.writer_hooks.errors import BadCheckpointLocation, BadOption, PublishFailed, TopicMissing
from sluicegate.writer_hooks.kafka import KafkaSettings
from sluicegate.writer_hooks.options import (
    SinkOptions,
    location_of,
    log_of,
    wrong_values,
)
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint


def wrong_options(options: Mapping[str, str]) -> list[str]:
    """Return the reasons why a sink with these options can never write.

    The files, packages and locations that the options name on this machine are examined too.
    """
    found = wrong_values(options)
    for examine in (_read_client_files, _open_location):
        try:
            examine(options)
        except (BadOption, BadCheckpointLocation) as error:
            found.append(str(error))
    return list(dict.fromkeys(found))


def _read_client_files(options: Mapping[str, str]) -> None:
    log_of(options)[0].client_options()


def _open_location(options: Mapping[str, str]) -> None:
    Checkpoint(location_of(options))


def troubles(sink: SinkOptions, timeout: float) -> Iterator[str]:
    """Yield the reasons why batches would fail at present: problems of the table and of Kafka.

    The checks run on the driver, so problems of executors are not found.
    """
    yield from table_troubles(sink.format, sink.table_ref(), sink.event_time_column, sink.evolve, sink.files)
    yield from log_troubles(sink.region.kafka, TopicNames(sink.region.topic_prefix), timeout)


def table_troubles(
    table_format: str,
    table: TableRef,
    event_time_column: str | None,
    evolve: Evolve = "never",
    files: FileOptions | None = None,
) -> Iterator[str]:
    """Yield the reasons why the table cannot be written at present."""
    kind = adapter(table_format)
    cannot = "its table cannot be written from the driver's machine"
    if files is not None and evolve == "add-columns":
        # The first rows may bring the columns that the options name.
        files = files.without_columns()
    try:
        open_writer(kind, table, None, files=files).abort()
        is_new = evolve == "add-columns" and _lacks(kind, table, event_time_column)
    except LakeError as error:
        unseen = f". The option event.time.column ({event_time_column}) could not be compared with it"
        yield f"{cannot}: {error}{unseen if event_time_column else ''}"
        return
    # A column that the table lacks comes with the first rows.
    if event_time_column is None or is_new:
        return
    try:
        kind.open_writer(table, event_time_column).abort()
    except LakeError as error:
        yield f"the column {event_time_column} cannot be used as event.time.column: {error}"


def _lacks(kind: Adapter, table: TableRef, column: str | None) -> bool:
    return column not in evolving(kind).read_columns(table).schema.names


def log_troubles(kafka: KafkaSettings, topics: TopicNames, timeout: float) -> Iterator[str]:
    """Yield the reasons why nothing can be published at present."""
    publisher = shared_publisher(kafka)
    try:
        for topic in (topics.events, topics.commits):
            publisher.partitions(topic, timeout)
    except PublishFailed as error:
        yield (
            f"Kafka at {kafka.bootstrap_servers} did not answer within {timeout:g} s "
            f"({error.__cause__!r}); check the options kafka.*, and that it runs and can be reached from here"
        )
    except TopicMissing as error:
        yield str(error)
