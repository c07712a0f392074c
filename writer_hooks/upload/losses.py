"""Reports of lost files by a driver, for a machine that is lost with its spool."""

import logging
from typing import Final

from sluicegate.events.envelope import EventType
from sluicegate.events.models import CheckpointFailed
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import Region
from sluicegate.writer_hooks.upload.failures import format_way_back
from sluicegate.writer_hooks.upload.options import Uploads

_log = logging.getLogger(__name__)

_PUBLISH: Final = 10.0
"""Seconds for Kafka to acknowledge a report; the next look reports again."""


class Losses:
    """Completed checkpoints of one region that are not committed, and reports of those that stay so.

    A report is safe at any time. It has no effect on a checkpoint whose events have all arrived, as when
    commits wait for another region or for a coordinator. It stalls the region of a checkpoint that can never
    be sealed.
    """

    def __init__(self, region: Region, uploads: Uploads) -> None:
        self._region = region
        self._timeout = uploads.timeout
        self._completed: dict[int, float] = {}
        """By number, the times of the completions."""

    def complete(self, number: int, now: float) -> None:
        """Note a completion. All times are monotonic seconds."""
        self._completed.setdefault(number, now)

    def commit(self, number: int) -> None:
        """Note that a checkpoint is committed, with all before it."""
        self._completed = {each: at for each, at in self._completed.items() if each > number}

    def report(self, incarnation: str, now: float) -> None:
        """Report the oldest checkpoint as lost if it is over its time. Raises as `publish` does."""
        number = min(self._completed, default=None)
        if number is None or now - self._completed[number] < self._timeout:
            return
        region = self._region
        reason = (
            f"its events have not arrived within {self._timeout:g} s after the completion, so an uploader is "
            "away, or its machine is lost"
        )
        event = region.event(
            EventType.CHECKPOINT_FAILED,
            incarnation,
            CheckpointFailed(outcome="lost", reason=reason),
            checkpoint=number,
        )
        shared_publisher(region.kafka).publish(region.events_topic, [event], _PUBLISH)
        self._completed[number] = now
        _log.warning(
            "region %s of %s: checkpoint %d is not committed %g s after its completion. If its events have "
            "not arrived, its files count as lost now, and the region stalls: %s. Else nothing changes",
            *(region.name, region.stream, number, self._timeout, format_way_back(region.stream, region.name)),
        )
