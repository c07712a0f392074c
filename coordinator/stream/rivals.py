"""Other groups of coordinators that decide for a stream of this member."""

import structlog
from aiokafka import ConsumerRecord

from sluicegate.coordinator.ownership import group_named

log = structlog.get_logger(__name__)


class Rivals:
    """Other groups that decide for the streams of an assigned partition."""

    def __init__(self, own: str) -> None:
        self._own = own
        self.seen: str | None = None
        """The last other group; None if there was none."""

    def look(self, stream: str, decision: ConsumerRecord) -> None:
        """Log a decision of another group, once for each change of the group."""
        other = group_named(decision.headers)
        if other is None or other in (self._own, self.seen):
            return
        self.seen = other
        log.error(
            "another group of coordinators decides for this stream: nothing is doubled in the table by it, "
            "but registrations and commits are announced twice; give both one kafka.group_id, or stop one",
            stream=stream,
            group=self._own,
            other=other,
            offset=decision.offset,
        )
