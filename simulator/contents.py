"""I1 to I4: what is in the table, compared with a dumb reading of the log, commit by commit."""

from collections import Counter
from dataclasses import dataclass, field

from sluicegate.coordinator.core.decisions import void_digest
from sluicegate.coordinator.core.effects import Publish
from sluicegate.events.envelope import Envelope
from sluicegate.events.models import FilesWritten
from sluicegate.lakes.memory import MemorySnapshot
from sluicegate.simulator.accounts import Verdict
from sluicegate.simulator.reading import Reading
from sluicegate.simulator.violation import Violation
from sluicegate.simulator.world import Entry, Item, World


@dataclass
class Contents:
    """The commits of ours that were seen, and what they brought."""

    world: World
    reading: Reading
    committed: int = 0
    """Our last decision in the table."""
    voided: set[int] = field(default_factory=set)
    """Decisions whose place in the table an empty commit has taken."""
    taken: dict[Item, int] = field(default_factory=dict)
    """The source's items that are in the table, with the decision that brought them."""
    _paths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _event_of: dict[str, str] = field(default_factory=dict)
    _written_by: dict[str, Envelope] = field(default_factory=dict)
    _attempts: dict[tuple[str, str, int, str], str] = field(default_factory=dict)
    """By region, lineage, checkpoint and writer, the attempt that is in the table."""
    _in_table: dict[str, int] = field(default_factory=dict)
    _published: dict[tuple[int, str], tuple[tuple[str, ...], int | None]] = field(default_factory=dict)
    _seen: int = 0

    def read(self, entry: Entry) -> None:
        """Note which paths an event names."""
        if isinstance(entry.body, FilesWritten):
            event = entry.envelope.id
            self._paths[event] = tuple(file.path for file in entry.body.files)
            self._event_of.update(dict.fromkeys(self._paths[event], event))
            self._written_by.setdefault(event, entry.envelope)

    def publishes(self, effect: Publish) -> None:
        """I4: one decision is published with one content, whoever does it."""
        events = tuple(self.world.log[offset].envelope.id for offset in effect.offsets)
        content = (events, effect.watermark)
        known = self._published.setdefault((effect.decision, effect.digest), content)
        if known != content:
            raise Violation("I4", f"decision {effect.decision} is published as {content} and as {known}")

    def gone(self) -> list[str]:
        """I9: the files that were committed and are in the table no more."""
        there = set(self.world.table.files)
        return [path for path in self._in_table if path not in there]

    def look(self) -> list[Verdict]:
        """Check the snapshots that are new; returns the decisions that they commit."""
        if self.world.standing_in is not None:
            known = set(self.world.table.files) if self.world.rolled_back else set()
            if strange := [path for path in self.world.standing_in.files if path not in known]:
                raise Violation("I1", f"committed to another table: {strange}")
        table = self.world.table
        if len(table.history) == self._seen:
            return []
        found: list[Verdict] = []
        for snapshot in table.history[self._seen :]:
            if not snapshot.foreign:
                verdict = self._check(snapshot)
                found += [verdict] if verdict is not None else []
        self._seen = len(table.history)
        return found

    def _check(self, snapshot: MemorySnapshot) -> Verdict | None:
        if snapshot.decision != self.committed + 1:
            raise Violation("I3", f"the table has decision {snapshot.decision} after {self.committed}")
        self.committed = snapshot.decision
        verdict = self.reading.valid.get(snapshot.decision)
        if verdict is not None and snapshot.digest == void_digest(verdict.digest):
            self._check_void(snapshot)
            return None
        self._check_files(snapshot, verdict)
        if verdict is None or verdict.digest != snapshot.digest:
            raise self._unfounded(snapshot)
        self._check_ranges(verdict)
        self.world.saw("commit: partial" if verdict.fallbacks else "commit: full")
        return verdict

    def _check_void(self, snapshot: MemorySnapshot) -> None:
        if snapshot.files:
            raise Violation("I1", f"the void of decision {snapshot.decision} brings {snapshot.files}")
        if snapshot.decision not in self.reading.ordered:
            raise Violation("I4", f"nobody ordered that decision {snapshot.decision} be given up")
        self.voided.add(snapshot.decision)
        self.world.saw("commit: void")

    def _unfounded(self, snapshot: MemorySnapshot) -> Violation:
        """A commit that no valid decision says."""
        for rejection in self.reading.rejected.get(snapshot.digest, ()):
            what = f"decision {snapshot.decision} is committed, though {rejection.reason}"
            return Violation(rejection.invariant, what)
        return Violation("I4", f"decision {snapshot.decision} commits what no decision in the log says")

    def _check_files(self, snapshot: MemorySnapshot, verdict: Verdict | None) -> None:
        for path in snapshot.files:
            if path in self._in_table:
                before = self._in_table[path]
                raise Violation("I2", f"decisions {before} and {snapshot.decision} both bring {path}")
            if path not in self._event_of:
                raise Violation("I1", f"{path} is in the table, but not in the log")
            self._in_table[path] = snapshot.decision
            self._check_attempt(self._written_by[self._event_of[path]])
        if verdict is None or verdict.digest != snapshot.digest:
            return
        right = Counter(path for event in verdict.events for path in self._paths.get(event, ()))
        there = Counter(snapshot.files)
        if right != there:
            more, less = sorted((there - right).elements()), sorted((right - there).elements())
            # What is too much is a loser's; what is missing was promised.
            number = "I1" if less else "I2"
            raise Violation(number, f"decision {snapshot.decision} brings {more} too much, and lacks {less}")

    def _check_attempt(self, written: Envelope) -> None:
        """I2: what each try of a writer brings is all of its rows."""
        place = (written.region, written.lineage, written.checkpoint, written.writer)
        known = self._attempts.setdefault(place, written.attempt)
        if known != written.attempt:
            raise Violation("I2", f"the attempts {known} and {written.attempt} of {place} are in the table")

    def _check_ranges(self, verdict: Verdict) -> None:
        """I2: no part of the source is in the table twice, whichever region or lineage brought it."""
        for region, lineage, number in verdict.groups:
            said = self.reading.regions[region].lives[lineage].piles[number].completion
            for item in self.world.ranges.get(said.source_digest if said else "", ()):
                if item in self.taken:
                    raise Violation(
                        "I2", f"decisions {self.taken[item]} and {verdict.number} both bring item {item}"
                    )
                self.taken[item] = verdict.number
