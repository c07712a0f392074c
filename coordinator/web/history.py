"""The newest cuts of each stream, made from the messages of the commits topic."""

from collections import deque
from typing import Final

from sluicegate.coordinator.web.model import Cut, Delays, RegionOfCut
from sluicegate.events.models import CutAbandoned, CutReverted, Position
from sluicegate.events.notifications import Committed, Notification

KEPT: Final = 50
"""Cuts of each stream."""
MOST_CELLS: Final = 400_000
"""Regions of cuts in memory, of all streams together. Each takes about 300 bytes."""


class _Ring:
    """The newest cuts of one stream, with what their regions did before."""

    def __init__(self) -> None:
        self.cuts: deque[Cut] = deque()
        self.regions: dict[str, RegionOfCut] = {}
        """As of the newest cut."""


class History:
    """The newest cuts of all streams."""

    def __init__(self, most_cells: int = MOST_CELLS) -> None:
        self._rings: dict[str, _Ring] = {}
        self._order: deque[str] = deque()
        """The stream of each cut, the oldest first."""
        self._cells, self._most_cells = 0, most_cells

    def add(self, notification: Notification, time: int) -> Cut | None:
        """Take a message in; return the cut, or None if it is known already or is about something else."""
        body = notification.body
        ring = self._rings.get(notification.stream)
        # A restart repeats what it announced last.
        if ring is not None and any(each.id == notification.id for each in ring.cuts):
            return None
        if not isinstance(body, Committed | CutAbandoned | CutReverted):
            return None
        ring = ring or self._rings.setdefault(notification.stream, _Ring())
        cut = _cut(notification.id, time, body, ring.regions)
        if isinstance(body, Committed):
            ring.regions = cut.regions
        ring.cuts.append(cut)
        self._order.append(notification.stream)
        self._cells += _cells(cut)
        if len(ring.cuts) > KEPT:
            self._order.remove(notification.stream)
            self._cells -= _cells(ring.cuts.popleft())
        while self._cells > self._most_cells and len(self._order) > 1:
            self._cells -= _cells(self._rings[self._order.popleft()].cuts.popleft())
        return cut

    def cuts(self, stream: str) -> tuple[Cut, ...]:
        """Return the cuts of a stream, the oldest first."""
        ring = self._rings.get(stream)
        return tuple(ring.cuts) if ring is not None else ()

    def delays(self, stream: str) -> Delays | None:
        """Return how fast the newest commits of a stream were."""
        found = sorted(each.delay for each in self.cuts(stream) if each.delay is not None)
        if not found:
            return None
        last = len(found) - 1
        return Delays(p50=found[last // 2], p99=found[round(last * 0.99)], commits=len(found))


def _cells(cut: Cut) -> int:
    return 1 + len(cut.regions)


def _cut(
    id_: str, time: int, body: Committed | CutAbandoned | CutReverted, before: dict[str, RegionOfCut]
) -> Cut:
    match body:
        case CutAbandoned():
            late = {name: before.get(name, RegionOfCut(state="idle")) for name in body.regions}
            regions = {name: each.model_copy(update={"state": "fell back"}) for name, each in late.items()}
            return Cut(
                id=id_,
                time=time,
                outcome="abandoned",
                decision=body.decision,
                attempt=body.attempt,
                regions=regions,
            )
        case CutReverted():
            return Cut(id=id_, time=time, outcome="reverted", decision=body.decision, snapshot=body.snapshot)
    names = sorted({*body.cut, *body.fallbacks})
    cut = Cut(
        id=id_,
        time=time,
        outcome="partial" if body.fallbacks else "full",
        decision=body.decision,
        snapshot=body.snapshot,
        watermark=body.watermark,
        files=body.files,
        regions={name: _region(name, time, body, before.get(name)) for name in names},
    )
    summary = body.summary
    if summary is None:
        return cut
    delay = None if summary.sealed is None else max(0, summary.visible - summary.sealed)
    counts = summary.model_dump(
        include={"rows", "bytes", "partitions", "first_event", "sealed", "decided", "visible"}
    )
    forced = {"outcome": "forced"} if summary.forced else {}
    return cut.model_copy(update={**counts, **forced, "delay": delay})


def _region(name: str, time: int, body: Committed, before: RegionOfCut | None) -> RegionOfCut:
    at = body.fallbacks.get(name) or body.cut.get(name)
    place = {"incarnation": at.incarnation if at else None, "checkpoint": at.checkpoint if at else None}
    since = before.since if before is not None and _stands(before, at) else None
    if name in body.fallbacks:
        count = 1 + (before.fallbacks if before is not None else 0)
        return RegionOfCut(state="fell back", fallbacks=count, since=since, **place)
    # A message of an older release does not say which regions moved.
    moved = name in body.summary.moved if body.summary is not None else not _stands(before, at)
    if moved:
        return RegionOfCut(state="moved", since=time, **place)
    return RegionOfCut(state="idle", since=since, **place)


def _stands(before: RegionOfCut | None, at: Position | None) -> bool:
    """True if a region stands where it stood before."""
    if before is None:
        return at is None
    return (before.incarnation, before.checkpoint) == (
        (at.incarnation, at.checkpoint) if at is not None else (None, None)
    )
