"""Connections of one session of the service. All of them are closed at its end, also after a failure."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
)

import sluicegate
from sluicegate.coordinator.observe.metrics import Metrics
from sluicegate.coordinator.service.keys import assignor
from sluicegate.coordinator.service.startup import make_store
from sluicegate.coordinator.settings.model import Settings, own_keys
from sluicegate.coordinator.stream.letters import DeadLetters
from sluicegate.coordinator.stream.links import Links, Partitions
from sluicegate.installation import install_command
from sluicegate.kafka.bodies import BodyFetcher, Budget
from sluicegate.kafka.clients import EndOffsets, start_client, stop_client
from sluicegate.kafka.producer import SessionProducer
from sluicegate.kafka.topics import TopicNames
from sluicegate.lakes.threads import CommitThreads

if TYPE_CHECKING:
    from sluicegate.coordinator.observe.spans import OtelSpans

# Export of spans by OTLP, if the environment asks for it.

log = structlog.get_logger(__name__)

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables that switch the export on, as the specification of OpenTelemetry names them."""
_STOPPED: Final = 5_000
"""Milliseconds for the last spans at the end of the process."""


@asynccontextmanager
async def exported_spans(environment: Mapping[str, str] = os.environ) -> "AsyncIterator[OtelSpans | None]":
    """Give what makes spans, and export them in a thread of their own; None if nobody asks for them.

    The SDK reads its other variables itself, such as the sampler and the name of the service.
    """
    if not any(environment.get(name) for name in ENDPOINTS):
        yield None
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from sluicegate.coordinator.observe.spans import OtelSpans
    except ImportError as error:
        log.warning("no spans are exported", error=repr(error), way_out=install_command("otel"))
        yield None
        return
    named = {SERVICE_VERSION: sluicegate.__version__}
    if "OTEL_SERVICE_NAME" not in environment:
        named[SERVICE_NAME] = "sluicegate"
    provider = TracerProvider(resource=Resource.create(named))
    processor = BatchSpanProcessor(OTLPSpanExporter())
    provider.add_span_processor(processor)
    try:
        yield OtelSpans(provider.get_tracer("sluicegate", sluicegate.__version__))
    finally:
        # A receiver that does not answer must not delay the end of the commits.
        await asyncio.to_thread(processor.force_flush, _STOPPED)
        await asyncio.to_thread(provider.shutdown)


# The connections of one session: opened for a stack that closes them within a bound, whatever happens.

PATIENCE: Final = 2.0
"""Seconds that each connection may take to close."""
HEARTBEAT_MS: Final = 500
FETCH_WAIT_MS: Final = 100
"""Longest time for which a broker may hold a fetch without records.

aiokafka has one fetch in flight for each broker. A fetch of quiet partitions delays a partition that was just
assigned, or that was paused while its records were processed.
"""
METADATA_MS: Final = 30_000
FORBIDDEN: Final = (
    TopicAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ClusterAuthorizationFailedError,
)
"""Errors that new connections do not cure."""


class Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
    """Forwards the rebalances of the group, with numbers of partitions."""

    def __init__(
        self, revoke: Callable[[list[int]], Awaitable[None]], assign: Callable[[list[int]], None]
    ) -> None:
        self._revoke = revoke
        self._assign = assign

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._revoke([source.partition for source in revoked])

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._assign([source.partition for source in assigned])


async def open_links(
    settings: Settings, topics: TopicNames, counts: Partitions, metrics: Metrics, stack: AsyncExitStack
) -> Links:
    """Connect everything that the streams share. Raises KafkaError."""
    options = settings.kafka.client_options()
    limits = settings.kafka.limits()
    largest = limits[topics.dead_letters]
    producer = SessionProducer(settings.kafka.max_message_bytes, limits, **options)
    stack.push_async_callback(stop_client, producer, PATIENCE)
    await start_client(producer)
    fetcher = BodyFetcher(topics.events, options, settings.kafka.request_timeout)
    stack.push_async_callback(fetcher.close)
    ends = EndOffsets(options)
    stack.push_async_callback(ends.close)
    store = make_store(settings)
    if store is not None:
        stack.push_async_callback(store.close)
    threads = CommitThreads(settings.commit_threads)
    stack.callback(threads.shutdown)
    return Links(
        settings=settings,
        topics=topics,
        partitions=counts,
        producer=producer,
        fetcher=fetcher,
        ends=ends,
        store=store,
        threads=threads,
        budget=Budget(settings.memory.body_budget),
        dead_letters=DeadLetters(
            topics.dead_letters,
            producer,
            fetcher,
            metrics,
            {**options, "max_partition_fetch_bytes": 2 * largest},
            settings.kafka.request_timeout,
            largest,
        ),
        metrics=metrics,
        spans=await stack.enter_async_context(exported_spans()),
    )


async def open_consumer(settings: Settings, client_id: str, stack: AsyncExitStack) -> AIOKafkaConsumer:
    """Connect a member of the group that is not subscribed yet. Raises KafkaError."""
    kafka = settings.kafka
    session = round(kafka.session_timeout * 1000)
    told = assignor(own_keys(kafka))
    consumer = AIOKafkaConsumer(
        group_id=kafka.group_id,
        partition_assignment_strategy=(told,),
        enable_auto_commit=False,
        auto_offset_reset="none",
        session_timeout_ms=session,
        # By heartbeats a member hears that others have come or gone, so they decide how soon it takes over.
        heartbeat_interval_ms=max(100, min(session // 5, HEARTBEAT_MS)),
        # A topic that was created again is seen this late; nothing else tells.
        metadata_max_age_ms=METADATA_MS,
        max_poll_interval_ms=max(300_000, session * 10),
        fetch_max_bytes=64 << 20,
        max_partition_fetch_bytes=8 << 20,
        fetch_max_wait_ms=FETCH_WAIT_MS,
        **{**kafka.client_options(), "client_id": client_id},
    )
    stack.push_async_callback(stop_client, consumer, PATIENCE)
    await start_client(consumer)
    return consumer
