"""Retention: deletes records that nobody needs, after a base record of each stream is durable."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog
from aiokafka.errors import KafkaError

from sluicegate.coordinator.core.state_record import Condition, StateRecord
from sluicegate.coordinator.stream.links import Links
from sluicegate.coordinator.stream.other_groups import GROUP_HEADER
from sluicegate.coordinator.stream.partition import PartitionRunner
from sluicegate.coordinator.stream.records import Held, read_held
from sluicegate.coordinator.stream.state_records import (
    base_key,
    base_record,
    deletion_start,
    encode_record,
    is_endangered,
)
from sluicegate.events.envelope import partition_of
from sluicegate.events.problems import Cause, CauseCode, Code, Problem
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import reach
from sluicegate.kafka.clients import spread
from sluicegate.kafka.topics import NO_DELETION, delete_records, topic_settings

log = structlog.get_logger(__name__)


INTERVAL: Final = 600.0
"""Seconds between two passes."""


_SETTING: Final = "retention.ms"


def _deleting(topic: str, limit: int) -> Condition:
    """Return the condition of a topic that deletes events at this age in milliseconds."""
    cause = Cause(code=CauseCode.TOPIC_DELETES, number=limit, names=(topic,))
    return Condition(kind="stall", problem=Problem(code=Code.RETENTION, cause=cause))


class Retention:
    """Deletion of records, and warnings about a topic that deletes them by itself."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._options = links.settings.kafka.client_options()
        self._lacking = False
        """True after the brokers have refused to delete records at all."""

    async def run(self, runners: Callable[[], Iterable[PartitionRunner]]) -> None:
        """Apply the retention to all started partitions again and again."""
        while True:
            await self._pass([each for each in runners() if each.started])
            await asyncio.sleep(spread(INTERVAL))

    async def _pass(self, runners: Iterable[PartitionRunner]) -> None:
        try:
            limit = await self.limit()
        except (KafkaError, TimeoutError, OSError) as error:
            log.warning("retention of the events topic not read", error=repr(error))
            return
        for runner in runners:
            try:
                await self.warn(runner, limit)
                await self.apply(runner)
            except (KafkaError, TimeoutError, OSError) as error:
                log.warning("retention not applied", partition=runner.number, error=repr(error))

    async def apply(self, runner: PartitionRunner) -> None:
        """Delete the records of a partition that are older than the replay window and that nobody needs.

        Raises KafkaError, TimeoutError or OSError.
        """
        if self._lacking:
            return
        held = await runner.range()
        window = round(self._links.settings.replay_window * 1000)
        kept_from = await self._first_since(runner, window, held.end)
        if deletion_start([runner.first_needed()], kept_from, held.begin) is None:
            return
        found = await self._streams(runner.number)
        records = {name: each.record for name, each in found.items() if isinstance(each.record, StateRecord)}
        # The record of a running stream may have been deleted: without it there is no base record either.
        if lacking := {*found, *runner.streams} - records.keys():
            log.warning("no records deleted: state records cannot be read", streams=sorted(lacking))
            return
        needed = [runner.first_needed(), *(record.low_water for record in records.values())]
        start = deletion_start(needed, kept_from, held.begin)
        if start is None:
            return
        bases = {name: base_record(each, found[name].bases, start) for name, each in records.items()}
        await self._write_bases(bases, start)
        await reach(Failpoint.DELETE_RECORDS_BEFORE)
        try:
            await delete_records(self._options, runner.source, start)
        except NO_DELETION as error:
            self._lacking = True
            log.warning(
                "these brokers delete no records, so the events topic grows",
                error=repr(error),
                remedy="set retention.ms of the topic to several times replay_window, and watch the "
                "condition `retention`; it is tried again at the next start",
                topic=runner.source.topic,
            )
            return
        await reach(Failpoint.DELETE_RECORDS_AFTER)
        await self._forget_bases(found, start)
        log.info("records deleted", partition=runner.number, before=start, streams=sorted(records))

    async def limit(self) -> int:
        """Return the age in milliseconds at which the topic deletes events, and show it; -1: it has no limit.

        Raises KafkaError, TimeoutError or OSError.
        """
        topic = self._links.topics.events
        limit = int((await topic_settings(self._options, topic)).get(_SETTING, "-1"))
        self._links.metrics.retention.set(limit / 1000 if limit >= 0 else None, topic)
        return limit

    async def warn(self, runner: PartitionRunner, limit: int) -> None:
        """Raise the condition RETENTION of each stream whose events have passed half of the topic's limit.

        Raises KafkaError, TimeoutError or OSError.
        """
        topic = self._links.topics.events
        half = 0
        if limit >= 0:
            held = await runner.range()
            half = await self._first_since(runner, limit // 2, held.end)
        for stream in runner.streams.values():
            # Commits continue, but somebody must act before the events are deleted.
            found = (_deleting(topic, limit),) if is_endangered(stream.recorded_low_water, half) else ()
            stream.warn("retention", found)

    async def _first_since(self, runner: PartitionRunner, age: int, end: int) -> int:
        """Return the first offset of records that are not older than `age` milliseconds; else the end."""
        since = time.time_ns() // 1_000_000 - age
        offset = await runner.first_since(max(0, since))
        return end if offset is None else offset

    async def _streams(self, partition: int) -> Mapping[str, Held]:
        """Return the records of all streams of a partition, also those of other groups."""
        found = await read_held(self._links.settings.kafka, self._links.partitions.state, None)
        return {name: each for name, each in found.items() if self._home(name, each) == partition}

    def _home(self, stream: str, held: Held) -> int:
        known = held.record.state.partition if isinstance(held.record, StateRecord) else None
        return partition_of(stream, self._links.partitions.events) if known is None else known

    async def _write_bases(self, records: Mapping[str, StateRecord], start: int) -> None:
        """Write the base record of each stream, and read all of them back. Raises OSError if one differs."""
        for stream, record in records.items():
            await self._put(stream, start, encode_record(record))
        found = await read_held(self._links.settings.kafka, self._links.partitions.state, list(records))
        for stream in records:
            base = found[stream].bases.get(start) if stream in found else None
            if base is None or base.low_water < start:
                raise OSError(f"the base record of stream {stream} at offset {start} was not read back")

    async def _forget_bases(self, found: Mapping[str, Held], start: int) -> None:
        """Delete the base records of logs that began earlier."""
        for stream, each in found.items():
            for former in each.bases:
                if former < start:
                    await self._put(stream, former, None)

    async def _put(self, stream: str, start: int, value: bytes | None) -> None:
        await self._links.producer.send_and_wait(
            self._links.topics.state,
            value,
            key=base_key(stream, start).encode(),
            partition=partition_of(stream, self._links.partitions.state),
            headers=[(GROUP_HEADER, self._links.settings.kafka.group_id.encode())],
        )
