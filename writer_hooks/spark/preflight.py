"""Check of a sink before its query starts. It runs in the driver and changes nothing."""

import logging
from collections.abc import Iterator, Mapping
from typing import Final

from aiokafka.errors import KafkaError

from sluicegate.events.partitioning import partition_of
from sluicegate.kafka.readers import is_read
from sluicegate.lakes import adapter
from sluicegate.lakes.port import TableRefused
from sluicegate.writer_hooks.errors import BadOption, HookError, PreflightFailed
from sluicegate.writer_hooks.loop_thread import LoopThread
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint
from sluicegate.writer_hooks.spark.examining import troubles
from sluicegate.writer_hooks.spark.options import SinkOptions

_log = logging.getLogger(__name__)

_TIMEOUT: Final = 10.0
_MARGIN: Final = 2.0


def preflight(options: Mapping[str, str], *, timeout: float = _TIMEOUT) -> None:
    """Raise an error unless a query with these options could write at present; nothing is changed.

    `options` are those of the sink, `checkpointLocation` among them. Raises BadOption for a wrong option, and
    BadCheckpointLocation. Raises PreflightFailed with all reasons:

    - the table cannot be opened,
    - Kafka does not respond within `timeout` seconds, or a topic is missing,
    - no coordinator reads the stream, and the start of a query waits for one.
    """
    sink = parse_fully(options)
    found = list(troubles(sink, timeout))
    if not found:
        found += _coordinator(sink, timeout)
    if found:
        lines = "".join(f"\n- {trouble}" for trouble in found)
        raise PreflightFailed(
            f"region {sink.region.name} of stream {sink.region.stream} cannot write as things stand:{lines}"
        )


def parse_fully(options: Mapping[str, str]) -> SinkOptions:
    """Parse a sink's options, and check the files, modules and locations that they name on this machine.

    Raises BadOption or BadCheckpointLocation.
    """
    sink = SinkOptions.parse(options)
    sink.region.kafka.client_options()
    Checkpoint(sink.checkpoint_location)
    try:
        adapter(sink.format)
    except TableRefused as error:
        raise BadOption(str(error)) from None
    return sink


def _coordinator(sink: SinkOptions, timeout: float) -> Iterator[str]:
    """Yield a problem if no coordinator reads the stream, since the query would wait for one."""
    region = sink.region
    thread = LoopThread("sluicegate-preflight")
    try:
        count = shared_publisher(region.kafka).partitions(region.events_topic, timeout)
        partition = partition_of(region.stream, count)
        asking = is_read(region.kafka.client_options(), region.events_topic, partition, timeout)
        read = thread.call(asking, timeout + _MARGIN)
    except (KafkaError, HookError, TimeoutError) as error:
        _log.warning("preflight could not see whether a coordinator runs: %r", error)
        return
    finally:
        thread.stop()
    if read:
        return
    yield (
        f"no coordinator reads the topic {region.events_topic} on {region.kafka.bootstrap_servers} for the "
        f"stream {region.stream}. Start one (sluicegate run) with the topic prefix {region.topic_prefix}; "
        "without one the start waits as long as registration.timeout states"
    )
