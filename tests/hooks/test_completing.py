"""A commit that is announced before the publication of its completion has returned is not missed."""

from collections.abc import Sequence
from unittest.mock import patch

from sluicegate.events.models import Position
from sluicegate.events.notifications import Committed, Notification, NotificationType
from sluicegate.writer_hooks import RegionDriver, driver
from sluicegate.writer_hooks.incarnation import CommittedCheckpoint
from sluicegate.writer_hooks.region import Event, Region, Registered

OPTIONS = {
    "stream": "flights",
    "region": "r1",
    "table": "/lake/flights",
    "format": "delta",
    "kafka.bootstrap.servers": "127.0.0.1:1",
}


def test_a_commit_during_the_publication_is_read() -> None:
    read: list[CommittedCheckpoint] = []
    made = RegionDriver(OPTIONS, on_commit=read.append)
    registered = Registered("driver-1", "run")
    made._state.begin(registered, None)
    made._incarnation, made._next = registered.incarnation, 1

    def publish(region: Region, events: Sequence[Event], *_: object) -> None:
        """Append the completion; a coordinator commits it before the acknowledgement arrives."""
        (event,) = events
        digest = getattr(event.body, "source_digest")  # noqa: B009
        at = Position(incarnation=registered.incarnation, checkpoint=0, digest=digest)
        body = Committed(decision=1, cut={"r1": at}, snapshot=None, watermark=None, files=0)
        made._state.apply(Notification("c1", NotificationType.COMMITTED, "flights", "", "", body))

    with patch.object(driver, "publish_completion", publish):
        made._complete(registered, 0, (), '{"at": 7}', None, {})
    assert made.committed is not None
    assert [(each.number, each.source_offsets) for each in read] == [(0, {"at": 7})]
