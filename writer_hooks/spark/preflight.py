"""Check of a sink before its query starts. It runs in the driver and changes nothing."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import Final

from sluicegate.kafka.topics import TopicNames
from sluicegate.lakes import Adapter, LakeError
from sluicegate.lakes.capabilities import evolving
from sluicegate.lakes.file_options import open_writer
from sluicegate.lakes.port import TableRef, TableRefused
from sluicegate.lakes.registry import install_line
from sluicegate.lakes.sequence import Upserts, checkpoint_numbers, writes_keys
from sluicegate.writer_hooks.errors import (
    BadCheckpointLocation,
    BadOption,
    HookError,
    PreflightFailed,
    PublishFailed,
    RegistrationUnanswered,
    TopicMissing,
)
from sluicegate.writer_hooks.options import (
    SinkOptions,
    Target,
    location_of,
    log_of,
    targets_of,
    wrong_values,
)
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import KafkaSettings
from sluicegate.writer_hooks.registration import coordinator_advice
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation
from sluicegate.writer_hooks.spark.incarnation import check_location, probe_query

# --- releases of Spark, and the ways of writing that each of them has ---------------------------------

_OLDEST: Final = (3, 5)


def require_spark(user: str) -> None:
    """Raise HookError if PySpark is missing or older than 3.5; `user` is the name of the caller."""
    found = None
    try:
        import pyspark

        found = pyspark.__version__
    except ImportError as error:
        reason = str(error)
    else:
        reason = f"found {found}"
    if found is None or _numbers(found) < _OLDEST:
        raise HookError(
            f"{user} needs PySpark 3.5 or newer ({reason}); install it with: {install_line('spark')}"
        )


def has_data_source() -> bool:
    """Return True if Spark can write through the data source, as Spark 4.1 and later can."""
    if find_spec("pyspark.sql.datasource") is None:
        return False
    from pyspark.sql import datasource

    return hasattr(datasource, "DataSourceStreamArrowWriter")


def require_arrow() -> None:
    """Raise HookError if this Python lacks a package that Spark's `mapInArrow` needs."""
    try:
        from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

        require_minimum_pyarrow_version()
        require_minimum_pandas_version()
    except ImportError as error:
        raise HookError(
            f"Spark cannot pass rows to Python ({error}). Install the missing package for the driver and for "
            "the Python workers: pip install pyarrow pandas setuptools"
        ) from error


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


# --- checks before the first batch, at which Spark first calls the sink -------------------------------


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
    CheckpointLocation(location_of(options))


def troubles(sink: SinkOptions, timeout: float) -> Iterator[str]:
    """Yield the reasons why batches would fail at present: problems of the table and of Kafka.

    The checks run on the driver, so problems of executors are not found.
    """
    yield from table_troubles(*sink.targets())
    yield from log_troubles(sink.region.kafka, TopicNames(sink.region.topic_prefix), timeout)


def table_troubles(*targets: Target) -> Iterator[str]:
    """Yield the reasons why tables cannot be written at present."""
    for target in targets:
        yield from _table_troubles(target)


def _table_troubles(target: Target) -> Iterator[str]:
    kind, files, column = target.adapter, target.files, target.event_time_column
    further = "" if target.further is None else f" {target.further[0]}"
    evolves = target.evolve == "add-columns"
    if files is not None and evolves:
        # The first rows may bring the columns that the options name.
        files = files.without_columns()
    try:
        table = target.found_table()
        upserts = _trial(target, table)
        open_writer(kind, table, None, files=files, upserts=upserts).abort()
        is_new = evolves and _lacks(kind, table, column)
    except LakeError as error:
        unseen = f". The option event.time.column ({column}) could not be compared with it" if column else ""
        yield f"its table{further} cannot be written from the driver's machine: {error}{unseen}"
        return
    # A column that the table lacks comes with the first rows.
    if column is None or is_new:
        return
    try:
        open_writer(kind, table, column, upserts=upserts).abort()
    except LakeError as error:
        yield f"the column {column} cannot be used as event.time.column: {error}"


def _trial(target: Target, table: TableRef) -> Upserts | None:
    """Return the options of rows for a table, with any numbers if it has keys. Raises LakeError."""
    kind_column = target.upserts.kind_column if target.upserts is not None else None
    adapter = target.adapter
    if target.further is None and writes_keys(adapter) and adapter.keys(table) is not None:
        return Upserts(kind_column, checkpoint_numbers(0, 1))
    return target.upserts


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


_TIMEOUT: Final = 10.0


def preflight(options: Mapping[str, str], *, timeout: float = _TIMEOUT) -> None:
    """Raise an error unless a query with these options could start and write at present.

    `options` are those of one query's sink, `checkpointLocation` among them. Nothing is changed: a probe in
    the log asks the coordinator, and has no effect. Raises PreflightFailed with all reasons:

    - an option is wrong, or the checkpoint location belongs to another query,
    - the table cannot be opened,
    - Kafka does not respond within `timeout` seconds, or a topic is missing,
    - no coordinator answers within `timeout` seconds, or it would refuse the start.
    """
    found = list(dict.fromkeys(_all_troubles(options, timeout)))
    if found:
        known = {name.lower(): value for name, value in options.items()}
        region, stream = (known.get(name) or "(none given)" for name in ("region", "stream"))
        lines = "".join(f"\n- {trouble}" for trouble in found)
        raise PreflightFailed(f"region {region} of stream {stream} cannot write as things stand:{lines}")


def _all_troubles(options: Mapping[str, str], timeout: float) -> Iterator[str]:
    """Yield all problems. A wrong option prevents only the checks that need it."""
    wrong = wrong_options(options)
    yield from wrong
    unreachable: list[str] = []
    # What is suppressed is among the wrong options.
    with suppress(BadOption, TableRefused):
        yield from table_troubles(*targets_of(options))
    with suppress(BadOption):
        unreachable += log_troubles(*log_of(options), timeout)
    yield from unreachable
    if wrong:
        return
    sink = SinkOptions.parse(options)
    try:
        check_location(sink)
        if not unreachable:
            # A query waits for its answer as long as its options state; this check does not.
            region = replace(sink.region, registration_timeout=timeout, publish_timeout=timeout)
            probe_query(replace(sink, region=region))
    except RegistrationUnanswered:
        yield (
            f"no coordinator answered within {timeout:g} s. {coordinator_advice(sink.region)}; start one "
            "with sluicegate run. Without one the start waits as long as registration.timeout states"
        )
    except HookError as error:
        yield str(error)
