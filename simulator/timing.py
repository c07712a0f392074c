"""The alignment timeout by the true time: nobody falls back earlier, whatever the broker's clock shows."""

from dataclasses import dataclass, field

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
    _waits: dict[int, int] = field(default_factory=dict)
    """By offset of a partial decision or an abandonment: when the wait before it had begun."""

    _idle: set[str] = field(default_factory=set)
    _woken: dict[str, int] = field(default_factory=dict)
    """By region, the offset at which it was last found to have work again."""
    _late: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """By offset of a partial decision, the regions that fall back."""

    def read(self, entry: Entry, abandoned: int) -> None:
        """Take note of a record after the reading has; `abandoned`: how many abandonments it knew before."""
        now = self.world.appended[entry.offset]
        account = self.reading.regions.get(entry.envelope.region)
        if account is not None and account.idle:
            self._idle.add(entry.envelope.region)
        elif entry.envelope.region in self._idle:
            self._idle.discard(entry.envelope.region)
            self._woken[entry.envelope.region] = entry.offset
        for at in account.sealed() if account else ():
            self._sealed.setdefault((entry.envelope.region, at), now)
        if isinstance(entry.body, CutAbandoned) and len(self.reading.abandoned) > abandoned:
            since = min((self._since(name) for name in self.reading.regions), default=now)
            self._waits[entry.offset] = max(since, self._begun)
            self._begun = now
        verdict = self.reading.valid.get(self.reading.decided)
        if verdict is not None and verdict.offset == entry.offset and verdict.fallbacks:
            places = [(name, Position(lineage=at, checkpoint=number)) for name, at, number in verdict.groups]
            stayed = [self._since(name) for name in self.reading.regions if name not in verdict.fallbacks]
            since = min([*stayed, *(self._sealed[place] for place in places)])
            self._waits[entry.offset] = max(since, self._begun)
            self._late[entry.offset] = tuple(verdict.fallbacks)

    def _since(self, name: str) -> int:
        sealed = self.reading.regions[name].sealed()
        return self._sealed[name, sealed[0]] if sealed else self.world.now

    def acted(self, since: int | None, upto: int) -> None:
        """Check the last record, which a coordinator has just appended that has acted since then.

        It has read the log before the offset `upto`: that a region has work again may stand behind that.
        """
        last = len(self.world.log) - 1
        begun = self._waits.get(last)
        if any(self._woken.get(name, -1) >= upto for name in self._late.get(last, ())):
            return
        if begun is None or self.world.now >= begun + self.timeout:
            return
        if self.world.jumped and (since is None or since > begun):
            # What it has not seen happen it can only believe the broker.
            return
        waited = self.world.now - begun
        raise Violation("timer", f"regions fall back after {waited} ms, not after {self.timeout}")
