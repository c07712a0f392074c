"""The invariants of the protocol, checked against a dumb reading of the log and of the table.

Nothing here uses the core's own bookkeeping; only the digest that names a decision is shared.
"""

from collections import Counter
from dataclasses import dataclass, field

from sluicegate.coordinator.core.cuts import decision_digest
from sluicegate.coordinator.core.effects import Effect, Publish, WriteRecord
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.events.models import (
    CheckpointCompleted,
    CutCommitted,
    CutDecided,
    FilesWritten,
    OpeningAnswered,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionOpened,
)
from sluicegate.lakes.memory import FOREIGN_USER, MemorySnapshot
from sluicegate.simulator.world import REFUSED, STREAM, Entry, World


class Violation(AssertionError):
    """An invariant does not hold; the text begins with its number."""


Group = tuple[str, str, int]
"""Region, lineage, checkpoint."""


@dataclass
class Checker:
    """Looks at the world after every step."""

    world: World
    _read: int = 0
    _checked: int = 0
    _event_of_path: dict[str, tuple[Group, str]] = field(default_factory=dict)
    _winners: dict[Group, tuple[int, CheckpointCompleted]] = field(default_factory=dict)
    _decided: dict[str, tuple[int, CutDecided]] = field(default_factory=dict)
    _said: dict[str, list[int]] = field(default_factory=dict)
    _parents: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    _content: dict[int, tuple[str, tuple[int, ...], int | None]] = field(default_factory=dict)

    def step(self) -> None:
        """Check what can be checked at any time."""
        self._read_log()
        for snapshot in self.world.table.history[self._checked :]:
            self._check_ids(snapshot)
        if len(self.world.table.history) > self._checked:
            self._checked = len(self.world.table.history)
            self._check_content()

    def effect(self, effect: Effect) -> None:
        """Check what a coordinator does."""
        if isinstance(effect, Publish):
            content = (effect.digest, effect.offsets, effect.watermark)
            known = self._content.setdefault(effect.decision, content)
            if known != content:
                raise Violation(f"I4: decision {effect.decision} is published as {content} and as {known}")
        if isinstance(effect, WriteRecord):
            self._check_low_water(effect.record)

    def end(self) -> None:
        """Check what must hold once everything has come to rest."""
        self._check_watermarks()
        told = [due.id for due in self.world.commits if isinstance(due.body, CutCommitted)]
        ours = [snapshot for snapshot in self.world.table.history if snapshot.commit_user != FOREIGN_USER]
        if len(set(told)) != len(ours):
            raise Violation(f"I12: {len(ours)} commits, but {len(set(told))} different notifications")
        record = StateRecord.model_validate_json(self.world.record or "{}")
        if record.state.committed != len(ours):
            raise Violation(f"I12: {len(ours)} commits, but the record says {record.state.committed}")

    def decisions(self) -> int:
        """The highest decision id in the log, valid or not."""
        self._read_log()
        return max((body.decision for _, body in self._decided.values()), default=0)

    def committed(self) -> dict[str, int]:
        """How far each region is in the table."""
        return {name: at.checkpoint for name, at in self._cut().items()}

    def _cut(self) -> dict[str, Position]:
        ours = [snapshot for snapshot in self.world.table.history if snapshot.commit_user != FOREIGN_USER]
        return self._decided[ours[-1].digest][1].cut if ours else {}

    def _read_log(self) -> None:
        for entry in self.world.log[self._read :]:
            envelope, body = entry.envelope, entry.body
            group = (envelope.region, envelope.lineage, envelope.checkpoint)
            if isinstance(body, FilesWritten):
                self._event_of_path.update((file.path, (group, envelope.id)) for file in body.files)
            elif isinstance(body, CheckpointCompleted):
                self._winners.setdefault(group, (entry.offset, body))
            elif isinstance(body, RegionOpened) and body.parents:
                parent = body.parents[0]
                last = -1 if parent.checkpoint is None else parent.checkpoint
                self._parents[envelope.region, envelope.lineage] = (parent.lineage, last)
            elif isinstance(body, CutDecided):
                digest = decision_digest(STREAM, body)
                self._decided.setdefault(digest, (entry.offset, body))
                self._said.setdefault(digest, []).append(entry.offset)
        self._read = len(self.world.log)

    def _check_ids(self, snapshot: MemorySnapshot) -> None:
        if snapshot.commit_user == FOREIGN_USER:
            return
        ours = [past for past in self.world.table.history if past.commit_user == snapshot.commit_user]
        numbers = [past.decision for past in ours]
        if numbers != list(range(1, len(numbers) + 1)):
            raise Violation(f"I3: the table's decisions are {numbers}")
        if snapshot.digest not in self._decided:
            raise Violation(f"I4: snapshot {snapshot.id} commits what no decision in the log says")

    def _check_content(self) -> None:
        paths = Counter(self.world.table.files)
        doubled = [path for path, times in paths.items() if times > 1]
        if doubled:
            raise Violation(f"I2: committed twice: {doubled}")
        found: dict[tuple[str, int], dict[Group, set[str]]] = {}
        for path in paths:
            if path not in self._event_of_path:
                raise Violation(f"I1: {path} is in the table, but not in the log")
            group, event = self._event_of_path[path]
            found.setdefault((group[0], group[2]), {}).setdefault(group, set()).add(event)
        for source_range, groups in found.items():
            if len(groups) > 1:
                raise Violation(f"I2: the source range {source_range} came from {sorted(groups)}")
            for group, events in groups.items():
                if group not in self._winners or events != set(self._winners[group][1].events):
                    raise Violation(f"I1: {group} has the events {events} in the table, which did not win")
        self._check_complete(found)

    def _winner(self, region: str, lineage: str, number: int) -> tuple[Group, CheckpointCompleted]:
        """Who won a checkpoint, seen from a lineage that has it behind itself."""
        while (parent := self._parents.get((region, lineage))) is not None and number <= parent[1]:
            lineage = parent[0]
        group = (region, lineage, number)
        if group not in self._winners:
            raise Violation(f"I1: {group} is in the cut, but was never completed")
        return group, self._winners[group][1]

    def _check_complete(self, found: dict[tuple[str, int], dict[Group, set[str]]]) -> None:
        vector = self._cut()
        cut = {name: at.checkpoint for name, at in vector.items()}
        beyond = [key for key in found if key[1] > cut.get(key[0], -1)]
        if beyond:
            raise Violation(f"I1: {beyond} are in the table, beyond the cut {cut}")
        for region, last in vector.items():
            for number in range(last.checkpoint + 1):
                group, winner = self._winner(region, last.lineage, number)
                there = found.get((region, number), {}).get(group, set())
                if there != set(winner.events):
                    raise Violation(f"I1: of {group} in the cut {cut}, the table has {there}")

    def _check_low_water(self, record: StateRecord) -> None:
        self._read_log()
        needed = {event for decision in record.state.pending for event in decision.parts}
        cut = {name: region.ref for name, region in record.state.regions.items()}
        for entry in self.world.log[: record.applied + 1]:
            envelope = entry.envelope
            region = record.state.regions.get(envelope.region)
            if region is None or envelope.lineage not in region.chain:
                continue
            if not isinstance(entry.body, FilesWritten | CheckpointCompleted):
                continue
            lived = region.lineages[envelope.lineage]
            void = lived.limit is not None and envelope.checkpoint > lived.limit
            ref = cut[envelope.region]
            passed = ref is not None and (
                envelope.checkpoint <= ref.checkpoint if envelope.lineage == ref.lineage else False
            )
            if not void and not passed and entry.offset > lived.opened_at:
                needed.add(entry.offset)
        if needed and min(needed) < record.low_water:
            raise Violation(f"I8: low-water mark {record.low_water}, but {min(needed)} is needed")

    def _check_watermarks(self) -> None:
        answers = [due.body for due in self.world.commits if isinstance(due.body, OpeningAnswered)]
        if any(answer.reason == REFUSED for answer in answers):
            # Such an opening may hold all the same, and the answers do not tell since when.
            return
        accepted = {answer.opening for answer in answers if answer.accepted}
        before: int | None = None
        ref: dict[str, int] = {}
        for snapshot in self.world.table.history:
            if snapshot.commit_user == FOREIGN_USER:
                continue
            _, body = self._decided[snapshot.digest]
            # The same decision may stand in the log twice; which one was valid is not known here.
            right = {
                self._watermark_of(body, self._counted(offset, accepted, ref), before)
                for offset in self._said[snapshot.digest]
            }
            published = self._content[body.decision][2]
            if published not in right:
                raise Violation(f"I5: decision {body.decision} has the watermark {published}, not {right}")
            before = published
            ref = {name: place.checkpoint for name, place in body.cut.items()}

    def _watermark_of(self, body: CutDecided, counted: list[str], before: int | None) -> int | None:
        at = [self._watermark_at(name, body.cut.get(name)) for name in counted]
        known = [value for value in at if value is not None]
        if not at or len(known) < len(at):
            return before
        return max(min(known), before if before is not None else min(known))

    def _counted(self, offset: int, accepted: set[str], ref: dict[str, int]) -> list[str]:
        """The assignment's regions that are neither idle nor gone just before an offset."""
        idle: dict[str, bool] = {}
        final: dict[str, int | None] = {}
        live: dict[str, str] = {}
        regions: tuple[str, ...] = ()
        seen: set[str] = set()
        for entry in self.world.log[:offset]:
            envelope, body = entry.envelope, entry.body
            repeated = envelope.id in seen
            seen.add(envelope.id)
            if isinstance(body, RegionOpened) and envelope.id in accepted:
                live[envelope.region] = envelope.lineage
                regions = body.assignment.regions
                idle[envelope.region] = False
                final.pop(envelope.region, None)
            if live.get(envelope.region) != envelope.lineage:
                continue
            if isinstance(body, RegionHeartbeat):
                idle[envelope.region] = body.idle
            elif isinstance(body, FilesWritten | CheckpointCompleted):
                if not repeated and self._wakes(entry):
                    idle[envelope.region] = False
            elif isinstance(body, RegionClosed):
                final[envelope.region] = body.final
        gone = {name for name, last in final.items() if last is None or last <= ref.get(name, -1)}
        return [name for name in regions if not idle.get(name, False) and name not in gone]

    def _wakes(self, entry: Entry) -> bool:
        """Whether an event is news: no replay, and not of a checkpoint that was decided before it."""
        envelope = entry.envelope
        group = (envelope.region, envelope.lineage, envelope.checkpoint)
        if isinstance(entry.body, CheckpointCompleted) and self._winners[group][0] != entry.offset:
            return False
        for decided, body in self._decided.values():
            at = body.cut.get(envelope.region)
            passed = at and at.lineage == envelope.lineage and at.checkpoint >= envelope.checkpoint
            if decided < entry.offset and passed:
                return False
        return True

    def _watermark_at(self, region: str, at: Position | None) -> int | None:
        if at is None:
            return None
        said = [self._winner(region, at.lineage, number)[1].watermark for number in range(at.checkpoint + 1)]
        return next((watermark for watermark in reversed(said) if watermark is not None), None)
