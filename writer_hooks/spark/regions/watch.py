"""Notifications of the stream that concern the regions of a runner."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sluicegate.events.notifications import Committed, Notification, Stalled
from sluicegate.events.problems import Code
from sluicegate.writer_hooks.commit_feed import CommitFeed
from sluicegate.writer_hooks.region import Region

if TYPE_CHECKING:
    from sluicegate.writer_hooks.spark.regions.life import RegionLife


def feed_of(region: Region, lives: "Mapping[str, RegionLife]") -> CommitFeed:
    """Return a feed that notes committed positions, and has a region reset whose files are lost."""

    def read(found: Notification) -> None:
        body = found.body
        if isinstance(body, Committed):
            for name, position in body.cut.items():
                if name in lives:
                    lives[name].committed(position)
        elif isinstance(body, Stalled) and not body.ended and body.problem.code is Code.FILES_LOST:
            life = lives.get(body.problem.region or "")
            if life is not None:
                life.lost(body.reason or "its files were lost")

    return CommitFeed(region, read, lambda: None)
