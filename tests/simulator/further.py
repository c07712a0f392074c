"""Mishaps of the further tables of a stream, of their catalog and their settings, and the people who help."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sluicegate.coordinator.core.state_record import Condition
from sluicegate.events.problems import CauseCode, Code
from sluicegate.lakes.port import CommitRequest
from tests.doubles.memory_lake import MemorySnapshot, MemoryTable
from tests.simulator.dice import Dice
from tests.simulator.truth import Truth
from tests.simulator.world import COMMIT_USER, World, is_of_stream


@dataclass
class Further:
    """The further tables of one world, as others than the coordinators change them."""

    world: World
    truth: Truth
    command: Callable[..., None]
    """Appends an order."""
    _renames: int = 0
    _replaced: set[str] = field(default_factory=set)
    """Names that the settings leave out until the log does: the table was made again."""

    # --- settings ---------------------------------------------------------------------------------

    def change_settings(self, dice: Dice) -> bool:
        """Add a table to the settings of coordinators, or leave one out."""
        world = self.world
        absent = [name for name in world.further if name not in world.settings]
        if absent and (not world.settings or dice.chance(0.5)):
            self._add(dice.pick(absent))
        elif world.settings:
            self._leave_out(dice.pick(sorted(world.settings)))
        return bool(world.further)

    def _add(self, name: str) -> None:
        self.world.settings[name] = self.world.identifiers[name]
        self.world.saw("a table is added")
        self.world.tell("settings with {}", name)

    def _leave_out(self, name: str) -> None:
        del self.world.settings[name]
        self.world.saw("a table is left out")
        self.world.tell("settings without {}", name)

    def change_job(self, dice: Dice) -> bool:
        """Let queries that start from now on write to other tables, also to unknown ones."""
        world = self.world
        before, world.job_tables = world.job_tables, tuple(n for n in world.further if dice.chance(0.6))
        world.tell("the job writes to {}", world.job_tables)
        return before != world.job_tables

    # --- the catalog ------------------------------------------------------------------------------

    def _pick(self, dice: Dice) -> tuple[str, MemoryTable] | None:
        """Return a table that is in the catalog."""
        there = [item for item in self.world.further.items() if self._is_there(item[0])]
        return dice.pick(there) if there else None

    def _is_there(self, name: str) -> bool:
        return self.world.identifiers[name] in self.world.catalog.tables

    def rename(self, dice: Dice) -> bool:
        """Rename a table in the catalog and in the settings; coordinators at work have the former name."""
        world, found = self.world, self._pick(dice)
        if found is None:
            return False
        name, _ = found
        self._renames += 1
        new = f"{name}.{self._renames}"
        world.catalog.tables[new] = world.catalog.tables.pop(world.identifiers[name])
        world.identifiers[name] = new
        if name in world.settings:
            world.settings[name] = new
        world.tell("{} is renamed to {}", name, new)
        return True

    def drop(self, dice: Dice) -> bool:
        """Drop a table; somebody may undo that."""
        found = self._pick(dice)
        if found is not None:
            del self.world.catalog.tables[self.world.identifiers[found[0]]]
            self.world.tell("{} is dropped", found[0])
        return found is not None

    def make_again(self, dice: Dice) -> bool:
        """Drop a table for good, and make another one under its name."""
        found = self._pick(dice)
        if found is not None:
            found[1].replace()
            self.world.former.pop(found[0], None)
            self.world.tell("{} is made again", found[0])
        return found is not None

    def send_away(self, dice: Dice) -> bool:
        """Have one table that cannot be read for a while."""
        found = self._pick(dice)
        if found is not None:
            self.world.away.add(found[0])
            self.world.tell("{} is away", found[0])
        return found is not None

    def lose_change(self, dice: Dice) -> bool:
        """Let the catalog drop one table's part of the next transaction."""
        world = self.world
        if world.catalog.atomic or not world.further:
            return False
        world.catalog.drops = dice.pick((world.table.name, *world.further))
        return True

    def end_between(self, dice: Dice) -> bool:
        """Let the next transaction end after some tables."""
        world = self.world
        if world.catalog.atomic or not world.further:
            return False
        world.catalog.crash_after = dice.between(1, len(world.further))
        return True

    # --- histories --------------------------------------------------------------------------------

    def foreign(self, dice: Dice) -> bool:
        """Another writer commits to a table."""
        found = self._pick(dice)
        if found is not None:
            found[1].foreign_commit()
        return found is not None

    def impostor(self, dice: Dice) -> bool:
        """Another job commits to a table as our commit user, with its own low ids."""
        found = self._pick(dice)
        if found is None or self.truth.decided < 1:
            return False
        found[1].foreign_commit(made_by=(COMMIT_USER, dice.between(0, self.truth.decided)))
        return True

    def expire(self, dice: Dice) -> bool:
        """Expire the history of a table: all but its head, or a part."""
        found = self._pick(dice)
        if found is None or len(found[1].snapshots) < 2:
            return False
        if dice.chance(0.5):
            found[1].foreign_commit()
        found[1].expire(1 if dice.chance(0.6) else dice.between(1, len(found[1].snapshots) - 1))
        return True

    def roll_back(self, dice: Dice) -> bool:
        """Roll a table back below its newest commit of ours, or further."""
        found = self._pick(dice)
        if found is None or found[0] in self.world.former:
            return False
        name, table = found
        ours = [each for each in table.snapshots if is_of_stream(each)][-2:]
        if not ours:
            return False
        below = [each.id for each in table.snapshots if each.id < dice.pick(ours).id]
        if not below and table.snapshots != table.history:
            return False
        self.world.former[name] = table.history
        self.world.roll_back(table, below[-1] if below else 0)
        self.world.tell("{} is rolled back", name)
        return True

    # --- help -------------------------------------------------------------------------------------

    def care(self, conditions: Iterable[Condition], dice: Dice) -> None:
        """Put one thing after the other right: a table that is away, its settings, its history."""
        world = self.world
        if world.away and dice.chance(0.4):
            world.away.discard(dice.pick(sorted(world.away)))
        for name in world.further:
            if not self._is_there(name) and dice.chance(0.3):
                self._put_back(name)
        problems = [each.problem for each in conditions]
        named = {each.table for each in problems if each.table is not None}
        refused = {each.number for each in problems if each.code in (Code.COMMIT_REFUSED, Code.TABLES_APART)}
        made, held = self.truth.open, set[str]()
        if made is not None and made.body.decision in refused:
            held = {*made.tables}
            self._give_up_if_gone(dice)
        shown = {p.table for p in problems if p.cause is not None and p.cause.code is CauseCode.OTHER_NEWEST}
        for name in sorted((named | held) & world.further.keys()):
            self._help(name, dice, name in shown)
        self._see_to_names(dice, held)

    def _put_back(self, name: str) -> None:
        self.world.catalog.tables[self.world.identifiers[name]] = self.world.further[name]
        self.world.saw("a dropped table is put back")
        self.world.tell("{} is put back", name)

    def _give_up_if_gone(self, dice: Dice) -> None:
        """Order a revert if a table that the open decision touches was made again."""
        made = self.truth.open
        if made is None or made.order is not None:
            return
        gone = [n for n, identity in made.tables.items() if self.world.further[n].identity != identity]
        if gone and dice.chance(0.5):
            region = dice.pick(sorted(made.moves))
            self.command(command="revert", decision=made.body.decision, region=region)

    def _see_to_names(self, dice: Dice, held: set[str]) -> None:
        """Add the names that are needed, and let those of a table that was made again out for a while.

        `held`: the tables of a decision that is refused. Only settings tell that one has another name now.
        """
        world = self.world
        for name, table in world.further.items():
            logged = self.truth.identity_of(name)
            if name in world.settings and logged not in (None, table.identity) and self._is_there(name):
                self._leave_out(name)
                self._replaced.add(name)
        needed = {*world.job_tables} | self.truth.unknown() | self._replaced | held
        for name in sorted(needed - world.settings.keys()):
            if self.truth.identity_of(name) in (None, world.further[name].identity) and dice.chance(0.5):
                if name in self._replaced:
                    world.saw("a table that was made again is accepted")
                self._replaced.discard(name)
                self._add(name)

    def _help(self, name: str, dice: Dice, refused: bool) -> None:
        """Repair the history of a table that contradicts the log; `refused`: by what it shows."""
        world, table, known = self.world, self.world.further[name], self.truth.tables.get(name)
        if known is None or known.identity != table.identity or not self._is_there(name):
            return
        # A table may be right, and unable to show it: its history has expired, and more may be rolled back.
        right = newest_of(table) == known.decision
        if right and not refused:
            return
        way = "state" if right else dice.pick(("restore", "repair", "state"))
        if way == "restore" and name in world.former:
            former = world.former.pop(name)
            before = commits_of(table).keys()
            table.rollback(0)
            table.restore(former)
            # A decision may have been published to the table since, and not be in the log yet.
            world.lost.setdefault(table.identity, set()).update(before - commits_of(table).keys())
            world.saw("a further table is put back")
            world.tell("{} gets its snapshots back", name)
        elif way == "repair" and self._repair(name, table):
            world.former.pop(name, None)
            world.saw("a further table is repaired")
            world.tell("{} is repaired", name)
        elif way == "state" and table.head is not None:
            lost = {
                each.body.decision
                for each in self.truth.verdicts
                if each.tables.get(name) == table.identity and each.outcome
            }
            world.given_up.setdefault(table.identity, set()).update(lost - commits_of(table).keys())
            world.former.pop(name, None)
            decision = newest_of(table) or None
            self.command(
                command="resume", table=name, head=table.head.ref, decision=decision, known=known.decision
            )
            world.saw("an operator states that a table is right")

    def _repair(self, name: str, table: MemoryTable) -> bool:
        """Publish to a table the decisions that touched it and that it lacks, in order."""
        there, given_up = commits_of(table), self.world.given_up.get(table.identity, set())
        lacking = [
            each
            for each in self.truth.verdicts
            if each.tables.get(name) == table.identity
            and each.outcome == "committed"
            and each.body.decision not in there.keys() | given_up
        ]
        if not lacking or lacking[0].body.decision < max(there, default=0):
            return False
        bodies = {entry.envelope.id: entry.files for entry in self.world.log if entry.files is not None}
        for each in lacking:
            head = table.head.ref if table.head else None
            files = [body for part in each.parts_of[name] if (body := bodies[part]) is not None]
            request = CommitRequest(each.body.decision, each.body.digest, head, each.watermark, files)
            table.commit(COMMIT_USER, request, files)
        return True

    def make_trouble(self, dice: Dice) -> None:
        """Have one table in trouble."""
        dice.pick((self.send_away, self.drop, self.roll_back, self.make_again))(dice)

    def troubled(self) -> set[str]:
        """Return the tables of the policy that nothing can be published to now."""
        return {name for name in self.world.further if self._is_troubled(name)}

    def _is_troubled(self, name: str) -> bool:
        identity, table, made = self.truth.identity_of(name), self.world.further[name], self.truth.open
        if identity is None or identity != table.identity or not self.world.has_table(name):
            return identity is not None
        newest, known = newest_of(table), self.truth.tables[name].decision
        return newest != known and (made is None or newest != made.body.decision)

    def calm(self) -> None:
        """No more faults: the catalog does what it answers."""
        self.world.catalog.crash_after, self.world.catalog.drops = None, ""

    def put_back(self) -> None:
        """All tables can be reached."""
        world = self.world
        world.away.clear()
        for name in world.further:
            if not self._is_there(name):
                self._put_back(name)


def commits_of(table: MemoryTable) -> dict[int, MemorySnapshot]:
    """Return the stream's commits in a table, also those that have expired."""
    return {each.decision: each for each in table.history if is_of_stream(each)}


def newest_of(table: MemoryTable) -> int:
    """Return the newest decision in a table; 0 if it has none."""
    return max(commits_of(table), default=0)
