"""Limits of uncommitted batches of a query, which are compared before each batch."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sluicegate.writer_hooks.errors import TooManyUncommitted
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from sluicegate.writer_hooks.spark.registry import Registry

_log = logging.getLogger(__name__)

_LOOK: Final = 0.5
"""Seconds between two comparisons during a wait."""
_FIRST_WARNING: Final = 10.0
"""Seconds of a wait before its second warning; the next ones follow at doubling intervals."""


@dataclass(frozen=True, slots=True)
class Room:
    """Room of a query for another batch, within the limits of its options."""

    options: SinkOptions
    key: str
    """Name of the query, or of its stream, in the registry."""
    registry: Registry
    require_registered: Callable[[], IncarnationMarker]
    """Function that returns the marker of the query. It raises HookError if the query must end."""

    def await_room(self, batch: int | None = None) -> IncarnationMarker:
        """Return the marker when the batch may begin.

        Without a number, it is the newest planned batch. Spark also calls the data source at the end of a
        batch, which never waits. Raises TooManyUncommitted if the options say so, or if the query is stopped
        during the wait.
        """
        marker = self.require_registered()
        if not self.options.backpressure.is_limited:
            return marker
        checkpoint = Checkpoint(self.options.checkpoint_location)
        number = checkpoint.newest_planned() if batch is None else batch
        if number is not None and self.registry.admitted(self.key) != number:
            self._await(checkpoint, marker, number)
            self.registry.admit(self.key, number)
        return marker

    def _await(self, checkpoint: Checkpoint, marker: IncarnationMarker, batch: int) -> None:
        reaction = self.options.backpressure.reaction
        began, pause = time.monotonic(), 0.0
        while (excess := self._excess(checkpoint, marker, batch)) is not None:
            place = f"region {self.options.region.name} of stream {self.options.region.stream}: {excess}"
            begins = self.registry.exceed(self.key, excess)
            if reaction == "fail":
                raise TooManyUncommitted(
                    f"{place}. Nothing is lost; `sluicegate status` shows what the commits wait for. Start "
                    "the query again when they follow"
                )
            if begins or (reaction == "wait" and time.monotonic() - began >= pause):
                _log.warning("%s; `sluicegate status` shows what the commits wait for", place)
                pause = max(2 * pause, _FIRST_WARNING)
            if reaction == "warn":
                return
            if self.registry.stopped(self.key):
                raise TooManyUncommitted(
                    f"{place}. The query was stopped while batch {batch} waited for commits; starting again "
                    "is safe"
                )
            time.sleep(_LOOK)
            self.require_registered()
        self.registry.exceed(self.key, None)

    def _excess(self, checkpoint: Checkpoint, marker: IncarnationMarker, batch: int) -> str | None:
        """Return the limit that is exceeded before a batch. All batches before it are completed."""
        limit = self.options.backpressure
        committed = self.registry.committed(self.key, marker.incarnation)
        first = marker.first if committed is None else max(marker.first, committed + 1)
        now = time.time()
        since = now
        if limit.max_age is not None and first < batch:
            since = checkpoint.planned_at(first)
        return limit.excess(dict.fromkeys(range(first, batch), since), now)
