"""Uploads of a driver's tasks, as the driver sees them: those of its own machine, and those that are overdue.

An uploader reports files that it can never send. If its machine is lost, nobody reports them, and the region
would wait for ever. So the driver reports a checkpoint as lost that is not committed in time.
"""

import logging
import math
from collections.abc import Callable, Set
from typing import Final

from sluicegate.events.envelope import EventType
from sluicegate.events.models import CheckpointFailed
from sluicegate.writer_hooks.errors import SpoolUnusable
from sluicegate.writer_hooks.options import Repetition, Uploads
from sluicegate.writer_hooks.publisher import publish
from sluicegate.writer_hooks.region import Region
from sluicegate.writer_hooks.upload.process import ensure_uploader
from sluicegate.writer_hooks.upload.spool import existing_spool, format_way_back, region_key

_log = logging.getLogger(__name__)

_OUTAGE: Final = 30.0
"""Seconds between two calls of `report` from which on Kafka was away, or this process stood still."""
_PUBLISH: Final = 10.0
"""Seconds for Kafka to acknowledge a report; the next call reports again."""
_AGAIN: Final = 5.0
"""Seconds until the committed position is asked for again without an answer; they double up to a limit."""
_LONGEST: Final = 30.0

Committed = Callable[[], int | None]
"""Function that asks a coordinator for the committed checkpoint. It returns -1 for none, None for no answer.
"""


def keep_uploading(uploads: Uploads, region: Region, incarnation: str) -> frozenset[int]:
    """Return the checkpoints of an incarnation with files in this machine's spool, which is uploaded.

    If an uploader was killed after the last task, this starts another one. On a machine without the spool,
    or where it belongs to another user, nothing is done. Other machines are not seen.
    """
    try:
        spool = existing_spool(uploads.spool_folder())
        names = spool.names()
        if names:
            ensure_uploader(spool)
    except (SpoolUnusable, OSError):
        return frozenset()
    key = region_key(region, incarnation)
    return frozenset(name.checkpoint for name in names if name.region == key)


def none_committed() -> int:
    """Return -1: no coordinator is asked, and the report decides nothing that is sealed."""
    return -1


def _first_question() -> Repetition:
    return Repetition(-math.inf, _AGAIN, _LONGEST)


class OverdueUploads:
    """Completed checkpoints of one region that are not committed, and reports of those that stay so for long.

    A report has no effect on a checkpoint that is sealed, as when commits wait for another region or for a
    coordinator. It stalls the region of one that is not. So time in which Kafka does not answer, and an
    uploader cannot publish either, does not count. Only the oldest checkpoint is reported, and none that has
    files in the spool of this machine: its uploader reports them itself. With `before.publish` nothing is
    reported, because a lost machine looks like work that takes long.
    """

    def __init__(self, region: Region, uploads: Uploads) -> None:
        self._region = region
        self._timeout = uploads.timeout if uploads.before_publish is None else math.inf
        self._completed: dict[int, float] = {}
        """By number, the times from which the uploads have counted."""
        self._reported = self._resumed = -math.inf
        """Time of the last call of `report`, and of the end of the last outage."""
        self._question = _first_question()
        self.committed = -1
        """The newest checkpoint that is known to be committed; -1: none is."""

    def complete(self, number: int, now: float) -> None:
        """Note a completion. All times are monotonic seconds."""
        self._completed.setdefault(number, max(now, self._resumed))

    def commit(self, number: int) -> None:
        """Note that a checkpoint is committed, with all before it."""
        self.committed = max(self.committed, number)
        self._completed = {each: at for each, at in self._completed.items() if each > number}

    def report(
        self,
        incarnation: str,
        now: float,
        in_spool: Set[int] = frozenset(),
        committed: Committed = none_committed,
    ) -> None:
        """Report the oldest checkpoint as lost if it is over its time. Raises as `publish` does.

        Called after each heartbeat that Kafka has acknowledged. `in_spool`: checkpoints with files in
        the spool of this machine.
        """
        reported, self._reported = self._reported, now
        if _OUTAGE < now - reported < math.inf:
            self._resumed = now
            self._completed = dict.fromkeys(self._completed, now)
        number = min(self._completed, default=None)
        if number is None or now - self._completed[number] < self._timeout:
            return
        if min(in_spool, default=number + 1) <= number or not self._question.is_due(now):
            return
        found = committed()
        if found is None:
            return
        self._question = _first_question()
        if found >= number:
            self.commit(found)
        else:
            self._report(incarnation, number, now)

    def _report(self, incarnation: str, number: int, now: float) -> None:
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
        publish(region, [event], _PUBLISH)
        self._completed[number] = now
        _log.warning(
            "region %s of %s: checkpoint %d is not committed %g s after its completion. If its events have "
            "not arrived, its files count as lost now, and the region stalls: %s. Else nothing changes",
            *(region.name, region.stream, number, self._timeout, format_way_back(region.stream, region.name)),
        )
