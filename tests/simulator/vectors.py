"""Checks of further tables: each has its decisions once and with the anchor, and no vector goes back."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from sluicegate.coordinator.core.effects import Publish
from sluicegate.coordinator.core.log import Applied
from sluicegate.coordinator.core.state import LogState
from sluicegate.events.models import Body, CutCommitted, StreamCommand, StreamPolicy, TableVersion
from sluicegate.events.notifications import Committed, SavepointTaken
from sluicegate.lakes.group import Vector
from tests.doubles.memory_lake import MemorySnapshot, MemoryTable
from tests.simulator.places import Known, Verdict
from tests.simulator.truth import Truth
from tests.simulator.violation import Violation
from tests.simulator.world import World, is_of_stream

_Commit = tuple[int, str]
"""Decision and digest of a commit."""


@dataclass
class Vectors:
    """The tables of one stream beside its anchor."""

    world: World
    truth: Truth
    _ever: dict[str, set[_Commit]] = field(default_factory=dict)
    """By identity of a table, the commits of ours that it has had at any time."""
    _unasked: set[tuple[int, str]] = field(default_factory=set)
    """Decisions that were to be reverted, and their tables that nobody could ask meanwhile."""
    _names: dict[str, str] = field(default_factory=dict)
    """The name in the catalog by which the log knows a table."""
    _accepted: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """By name, each table of a policy: the last decision before it, and its identity."""
    _stated: list[tuple[int, str, int]] = field(default_factory=list)
    """Statements about tables: the last decision before each, the table, and what the log knew of it."""
    _vector: Vector | None = None
    """The anchor's, which was checked."""
    _announced: dict[int, dict[str, Known]] = field(default_factory=dict)
    """By decision, the registry after its outcome."""

    def look(self) -> None:
        """Note the commits that the tables have now."""
        world = self.world
        for table in (world.table, *world.further.values()):
            ever = self._ever.setdefault(table.identity, set())
            ever.update((each.decision, each.digest) for each in table.snapshots if is_of_stream(each))
        made = self.truth.open
        if made is not None and made.order is not None:
            lacking = [name for name, identity in made.tables.items() if not self.is_there(name, identity)]
            self._unasked.update((made.body.decision, name) for name in lacking)

    def is_there(self, name: str, identity: str) -> bool:
        """True if the coordinators find the table by what the log says."""
        named = self._names.get(name) == self.world.identifiers[name]
        return named and self.world.has_table(name) and self.world.further[name].identity == identity

    def _had(self, identity: str, verdict: Verdict) -> bool:
        return (verdict.body.decision, verdict.body.digest) in self._ever.get(identity, ())

    # --- the log ----------------------------------------------------------------------------------

    def read(self, body: Body | None, applied: Applied) -> None:
        """Check a valid outcome: every touched table that the policy names has the decision."""
        if isinstance(body, StreamPolicy) and applied.ignored is None:
            for name, each in body.tables.items():
                self._names[name] = each.identifier
                self._accepted.setdefault(name, []).append((self.truth.decided, each.identity))
        if isinstance(body, StreamCommand) and body.table and applied.ignored is None:
            self._stated.append((self.truth.decided, body.table, body.known or 0))
        if not isinstance(body, CutCommitted) or applied.ignored is not None:
            return
        verdict = self.truth.verdicts[body.decision - 1]
        self._announced[body.decision] = {
            name: Known(each.identity, each.decision, each.snapshot)
            for name, each in self.truth.tables.items()
        }
        if {*body.tables} | {*body.left_out} != verdict.tables.keys() or {*body.tables} & {*body.left_out}:
            raise Violation("I14", f"decision {body.decision} touches {verdict.tables}, not {body}")
        if ahead := {*body.left_out} - verdict.let_go:
            raise Violation(
                "I14", f"decision {body.decision} does not wait for {ahead}, which the policy has"
            )
        for name in body.tables:
            if not self._had(verdict.tables[name], verdict):
                raise Violation("I14", f"decision {body.decision} has an outcome, and was never in {name}")
        for name in body.left_out:
            self.world.saw("a table that was left out is not waited for")
            self.world.tell("decision {} continues without {}", body.decision, name)

    def compare(self, state: LogState, offset: int) -> None:
        """Compare the registry with that of the account."""
        mine = {
            name: (each.identity, each.decision, each.snapshot) for name, each in self.truth.tables.items()
        }
        theirs = {
            name: (each.terms.identity, each.newest.decision, each.newest.snapshot)
            for name, each in state.tables.items()
        }
        if mine != theirs:
            raise Violation("I14", f"the registry at offset {offset} is {theirs}, not {mine}")

    def announced(self, body: Committed) -> None:
        """Check the vector of a notification."""
        known = self._announced[body.decision]
        for name, each in body.tables.items():
            if (each.decision, each.snapshot) != (known[name].decision, known[name].snapshot):
                raise Violation("I14", f"decision {body.decision} is announced with {name} {each}")

    def taken(self, body: SavepointTaken) -> None:
        """Check the vector of a savepoint: no table of it is ahead of its decision."""
        ahead = {name: each for name, each in body.tables.items() if each.decision > body.decision}
        if ahead:
            raise Violation("I7", f"savepoint {body.name} of decision {body.decision} has {ahead}")

    def acts(self, effect: Publish, verdict: Verdict) -> None:
        """Check a publication before it runs."""
        wanted = {name: parts for name, parts in verdict.parts_of.items() if name}
        found = {
            name: [self.world.log[offset].envelope.id for offset in offsets]
            for name, offsets in effect.offsets_of.items()
        }
        if effect.apart:
            wanted = {name: parts for name, parts in wanted.items() if name in found}
        if found != wanted or not found.keys() <= effect.tables.keys():
            raise Violation("I13", f"decision {effect.decision} with {found} for its tables, not {wanted}")
        self.world.saw("a publication of several tables" if found else "a publication of the anchor alone")
        if effect.apart:
            self.world.saw("tables that lack a decision get it")

    # --- the tables -------------------------------------------------------------------------------

    def check(self) -> None:
        """Check all further tables, and the vector that readers find."""
        self.look()
        for name, table in self.world.further.items():
            self._check_table(name, table)
        if self.world.catalog.vector is not self._vector:
            self._vector = self.world.catalog.vector
            self._check_vector(self.world.catalog.vector_of, self._vector or {})
        self._read_by_vector()

    def _touching(self, name: str, identity: str) -> Iterator[Verdict]:
        return (each for each in self.truth.verdicts if each.tables.get(name) == identity)

    def _check_table(self, name: str, table: MemoryTable) -> None:
        found: dict[int, MemorySnapshot] = {}
        for each in table.history:
            if is_of_stream(each):
                if each.decision <= max(found, default=0):
                    raise Violation("I3", f"decision {each.decision} is in {name} after {max(found)}")
                found[each.decision] = each
        touching = {each.body.decision: each for each in self._touching(name, table.identity)}
        for number, snapshot in found.items():
            if number not in touching:
                raise Violation("I3", f"decision {number} is in {name}, which it does not touch")
            self._check_commit(name, snapshot, touching[number])
        lost = self.world.lost.get(table.identity, set())
        given_up = self.world.given_up.get(table.identity, set())
        for number in touching.keys() - found.keys() - given_up:
            verdict = touching[number]
            wanted = verdict.outcome == "committed" and name in verdict.has
            if wanted and (number not in lost or number < max(found, default=0)):
                raise Violation("I1", f"decision {number} is missing in {name}, which has {sorted(found)}")
        if self.world.catalog.atomic:
            self._check_together(name, touching, found.keys() | lost | given_up)

    def _check_commit(self, name: str, snapshot: MemorySnapshot, verdict: Verdict) -> None:
        number, wanted = snapshot.decision, verdict.parts_of[name]
        if snapshot.digest != verdict.body.digest or list(snapshot.files) != wanted:
            raise Violation("I1", f"decision {number} has {snapshot.files} in {name}, not {wanted}")
        if not self.world.removed.isdisjoint(snapshot.files):
            raise Violation("I9", f"decision {number} has files in {name} that were deleted")
        if self.world.catalog.atomic and not self._had(self.world.table.identity, verdict):
            raise Violation("I13", f"decision {number} is in {name}, and was never in the anchor")
        back = number in self.world.lost.get(verdict.tables[name], ()) or number in self.world.raced
        if verdict.outcome == "reverted" and not back and (number, name) not in self._unasked:
            raise Violation("I2", f"decision {number} is reverted in the log, and in {name}")

    def _check_together(self, name: str, touching: dict[int, Verdict], there: set[int]) -> None:
        """Check that no decision is in the anchor alone, with a catalog that changes both in one step."""
        anchor = self.world.table
        rolled_back = self.world.lost.get(anchor.identity, set())
        own = {(each.decision, each.digest) for each in anchor.history if is_of_stream(each)}
        for number, verdict in touching.items():
            known = number in there | rolled_back or name in verdict.let_go
            if (number, verdict.body.digest) in own and not known:
                raise Violation("I13", f"decision {number} is in the anchor, and not in {name}")

    def _check_vector(self, decision: int, vector: Vector) -> None:
        """Check the vector that a publication has written: the newest decision up to it in each table."""
        if not 0 < decision <= self.truth.decided:
            return
        verdict = self.truth.verdicts[decision - 1]
        if lacking := verdict.lasting - vector.keys():
            raise Violation("I14", f"the vector of decision {decision} lacks {sorted(lacking)}")
        for name, each in vector.items():
            right = self._newest(name, decision, self.truth.tables[name].identity)
            # A process that publishes the decision may not have read what follows it: a statement, or the
            # policy that accepts a table which was made again.
            before = {known for last, table, known in self._stated if table == name and last >= decision}
            before |= {self._newest(name, decision, former) for former in self._former(name, decision)}
            if each.decision not in {right, *before} and name not in verdict.let_go:
                wrong = f"{name} at {each.decision}, not {right}"
                raise Violation("I14", f"the vector of decision {decision} has {wrong}")

    def _former(self, name: str, decision: int) -> set[str]:
        """Return the tables that had the name until a policy after this decision."""
        accepted = self._accepted.get(name, [])
        return {
            identity
            for (_, identity), (last, later) in pairwise(accepted)
            if later != identity and last >= decision
        }

    def _newest(self, name: str, decision: int, identity: str) -> int:
        """Return the newest decision up to this one that is in a table by the log."""
        known = self.truth.tables[name]
        if identity in self.world.given_up and identity == known.identity:
            # An operator's statement counts, whatever the decisions before it are.
            own = self.truth.verdicts[decision - 1]
            touched = own.tables.get(name) == identity and not self._is_undone(decision)
            return decision if touched else known.decision
        found = [
            each.body.decision
            for each in self._touching(name, identity)
            if each.body.decision <= decision
            and (each.outcome == "committed" or each.body.decision == decision)
        ]
        stands = [n for n in found if n < decision or not self._is_undone(n)]
        return max(stands, default=0)

    def _is_undone(self, decision: int) -> bool:
        """True if the anchor has the empty commit of a revert in the place of the decision."""
        digest = self.truth.verdicts[decision - 1].body.digest
        ours = [each for each in self.world.table.history if is_of_stream(each)]
        own = {each.digest for each in ours if each.decision == decision}
        return bool(own) and digest not in own

    def _read_by_vector(self) -> None:
        """Read all tables as a consistent reader does: by the vector that it loads with the anchor."""
        for name, each in (self.world.catalog.vector or {}).items():
            table = self.world.further[name]
            known = self.truth.tables.get(name)
            if known is None or known.identity != table.identity or each.snapshot is None:
                continue
            there = table.at(each.snapshot.id)
            if there is None or there.ref != each.snapshot:
                self.world.saw("a reader needs the mark, or loads the anchor again")
                continue
            self._check_read(name, each, there)

    def _check_read(self, name: str, wanted: TableVersion, there: MemorySnapshot) -> None:
        if not is_of_stream(there):
            # An operator has named this snapshot of another writer.
            return
        if there.decision != wanted.decision:
            raise Violation("I13", f"a reader finds {name} at {there.decision}, not {wanted.decision}")
