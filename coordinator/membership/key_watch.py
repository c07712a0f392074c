"""Compares the signing keys of all members of the group after each change of the group."""

import asyncio
from typing import Final

import structlog
from aiokafka.errors import KafkaError

from sluicegate.coordinator.membership.keys import Differences, differences, read_keys
from sluicegate.coordinator.settings.kafka import KafkaSettings
from sluicegate.coordinator.telemetry.process_metrics import ProcessMetrics
from sluicegate.kafka.pauses import spread

log = structlog.get_logger(__name__)

AGAIN: Final = 1.0
"""Seconds between two looks at a group that changes, or at brokers that do not answer."""


class KeyWatch:
    """Differences between the keys of the members. A member has the same keys for its whole life."""

    def __init__(self, kafka: KafkaSettings, metrics: ProcessMetrics) -> None:
        self.found = Differences()
        self._kafka, self._metrics = kafka, metrics
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Note that members have come or gone."""
        self._changed.set()

    async def run(self) -> None:
        """Compare after each change, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._compare()

    async def _compare(self) -> None:
        told = None
        while told is None:
            try:
                told = await read_keys(self._kafka.client_options(), self._kafka.group_id)
            except (KafkaError, TimeoutError, OSError) as error:
                log.info("the keys of the members are not compared yet", error=repr(error))
            if told is None:
                await asyncio.sleep(spread(AGAIN))
        found, before = differences(told.known), self.found
        self.found = found
        self._metrics.key_differences(len(found.refused))
        for each in found.refused:
            if each not in before.refused:
                log.error("members take records of others for forged", reason=each)
        for each in found.coming:
            if each not in before.coming:
                log.warning("members have different signing keys", reason=each)
        if before != found and not found.refused and not found.coming:
            log.info("the members agree on signing keys again")
