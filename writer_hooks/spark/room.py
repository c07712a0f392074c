"""Limits of uncommitted batches of a query, which are compared before each batch."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.writer_hooks.backpressure import PATIENCE, Repetition, questions
from sluicegate.writer_hooks.errors import (
    PublishFailed,
    RegistrationUnanswered,
    TooManyUncommitted,
    TopicMissing,
)
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.region import Registered
from sluicegate.writer_hooks.registration import Stopped
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from sluicegate.writer_hooks.spark.incarnation import check_live
from sluicegate.writer_hooks.spark.registry import Registry

_log = logging.getLogger(__name__)

_LOOK: Final = 0.5
"""Seconds between two comparisons during a wait."""
_FIRST_WARNING: Final = 10.0
"""Seconds of a wait before its second warning; the next ones follow at doubling intervals."""

Ask = Callable[[SinkOptions, Registered, Stopped], RegistrationAnswered]
"""Function that asks a coordinator, as `check_live`."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Time of a wait, in monotonic seconds."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Room:
    """Room of a query for another batch, within the limits of its options."""

    options: SinkOptions
    key: str
    """Name of the query, or of its stream, in the registry."""
    registry: Registry
    require_registered: Callable[[], IncarnationMarker]
    """Function that returns the marker of the query. It raises HookError if the query must end."""
    ask: Ask = check_live
    clock: Clock = Clock()

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
        reaction, now = self.options.backpressure.reaction, self.clock.now()
        question, warning = questions(reaction, now), Repetition(now, _FIRST_WARNING)
        while (excess := self._excess(checkpoint, marker, batch)) is not None:
            if question.is_due(self.clock.now()):
                self._ask()
                continue
            place = f"region {self.options.region.name} of stream {self.options.region.stream}: {excess}"
            begins = self.registry.exceed(self.key, excess)
            if reaction == "fail":
                raise TooManyUncommitted(
                    f"{place}. Nothing is lost; `sluicegate status` shows what the commits wait for. Start "
                    "the query again when they follow"
                )
            repeats = reaction == "wait" and warning.is_due(self.clock.now())
            if begins or repeats:
                _log.warning("%s; `sluicegate status` shows what the commits wait for", place)
            if reaction == "warn":
                return
            if self.registry.stopped(self.key):
                raise TooManyUncommitted(
                    f"{place}. The query was stopped while batch {batch} waited for commits; starting again "
                    "is safe"
                )
            self.clock.sleep(_LOOK)
            self.require_registered()
        self.registry.exceed(self.key, None)

    def _ask(self) -> None:
        """Record the committed position that a coordinator states: a notification may never arrive here.

        The listener of another session may read them, or the topic was made again. Without an answer, nothing
        changes. Raises RegionReplaced.
        """
        own = self.registry.registered(self.key)
        if own is None:
            return
        limit = min(self.options.region.registration_timeout, PATIENCE)
        options = replace(self.options, region=replace(self.options.region, registration_timeout=limit))
        try:
            answer = self.ask(options, own, partial(self.registry.stopped, self.key))
        except (PublishFailed, RegistrationUnanswered, TopicMissing) as error:
            _log.info("region %s: %s", options.region.name, error)
            return
        if answer.live == own.incarnation and answer.committed is not None:
            self.registry.commit(self.key, answer.committed)

    def _excess(self, checkpoint: Checkpoint, marker: IncarnationMarker, batch: int) -> str | None:
        """Return the limit that is exceeded before a batch. All batches before it are completed."""
        limit = self.options.backpressure
        committed = self.registry.committed(self.key, marker.incarnation)
        first = marker.first if committed is None else max(marker.first, committed + 1)
        now = time.time()
        since = now
        if limit.max_age is not None and first < batch:
            # Time in which no query ran does not count: its last batch is repeated first.
            since = max(checkpoint.planned_at(first), self.registry.since(self.key))
        return limit.excess(dict.fromkeys(range(first, batch), since), now)
