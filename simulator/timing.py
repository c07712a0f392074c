"""The alignment timeout by the true time: nobody falls back earlier, whatever the broker's clock shows."""

from dataclasses import dataclass, field

from sluicegate.events.envelope import EventType
from sluicegate.events.models import CutAbandoned, Position
from sluicegate.simulator.reading import Reading
from sluicegate.simulator.violation import Violation
from sluicegate.simulator.world import Entry, World


@dataclass
class Timing:
    """When things happened, by a clock that nobody else has."""

    world: World
    reading: Reading
    timeout: int = 0
    _sealed: dict[tuple[str, Position], int] = field(default_factory=dict)
    """The true time at which a checkpoint was sealed."""
    _begun: int = 0
    """The true time of the last valid abandonment: the wait begins again."""
    _waits: dict[int, tuple[int, frozenset[str]]] = field(default_factory=dict)
    """By offset of a partial decision or an abandonment: when the wait had begun, and who was waited for."""

    def read(self, entry: Entry, abandoned: int) -> None:
        """Take note of a record after the reading has; `abandoned`: how many abandonments it knew before."""
        now = self.world.appended[entry.offset]
        account = self.reading.regions.get(entry.envelope.region)
        for at in account.sealed() if account else ():
            self._sealed.setdefault((entry.envelope.region, at), now)
        if isinstance(entry.body, CutAbandoned) and len(self.reading.abandoned) > abandoned:
            since = min((self._since(name) for name in self.reading.regions), default=now)
            self._waits[entry.offset] = max(since, self._begun), frozenset(entry.body.regions)
            self._begun = now
        verdict = self.reading.valid.get(self.reading.decided)
        if verdict is not None and verdict.offset == entry.offset and verdict.fallbacks:
            places = [(name, Position(lineage=at, checkpoint=number)) for name, at, number in verdict.groups]
            stayed = [self._since(name) for name in self.reading.regions if name not in verdict.fallbacks]
            since = min([*stayed, *(self._sealed[place] for place in places)])
            self._waits[entry.offset] = max(since, self._begun), frozenset(verdict.fallbacks)

    def _since(self, name: str) -> int:
        sealed = self.reading.regions[name].sealed()
        return self._sealed[name, sealed[0]] if sealed else self.world.now

    def acted(self, since: int | None, read: int) -> None:
        """Check the last record, which a coordinator has appended that has acted since then.

        It had read that many records when it wanted to append it.
        """
        offset = len(self.world.log) - 1
        begun, late = self._waits.get(offset, (self.world.now - self.timeout, frozenset()))
        if self.world.now >= begun + self.timeout or self._has_changed(late, read, offset):
            return
        if self.world.jumped and (since is None or since > begun):
            # What it has not seen happen it can only believe the broker.
            return
        waited = self.world.now - begun
        raise Violation("timer", f"{sorted(late)} fall back after {waited} ms, not after {self.timeout}")

    def _has_changed(self, late: frozenset[str], read: int, offset: int) -> bool:
        """Return whether unread news made regions late, a cut complete, or void what waited."""
        news = [each.envelope for each in self.world.log[read:offset]]
        return any(
            each.region in late or not each.region or each.type is EventType.REGION_OPENED for each in news
        )
