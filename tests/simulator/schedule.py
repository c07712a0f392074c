"""One schedule: random steps of drivers, coordinators, people and faults, with checks after each."""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from sluicegate.coordinator.core.effects import Effect
from sluicegate.events.envelope import EventType
from sluicegate.events.models import Assignment, Position
from tests.doubles.memory_lake import MemoryTable
from tests.simulator.checks import Checks
from tests.simulator.dice import Dice
from tests.simulator.fates import FATES
from tests.simulator.fleet import Fleet
from tests.simulator.forging import Forger
from tests.simulator.further import Further
from tests.simulator.janitor import Janitor
from tests.simulator.job import Driver
from tests.simulator.location import Location, Source
from tests.simulator.people import People
from tests.simulator.plan import TROUBLES, Plan
from tests.simulator.retention import Retention
from tests.simulator.setting import FURTHER, Setting
from tests.simulator.tables import Tables
from tests.simulator.violation import Violation
from tests.simulator.world import World

QUIET_ROUNDS: Final = 1_500
"""Of 50 milliseconds each, in which everything must come to rest."""
BEGIN: Final = 12
"""Rounds at most until the first commit, before the first step."""
SETTLING: Final = 10
"""Rounds in which open decisions get their outcome."""
HURRY: Final = 6
"""Steps of each driver in a round before the first step, or after the last one."""


class Outcome(NamedTuple):
    """The sum of a schedule."""

    steps: int
    coverage: Counter[str]


class Schedule:
    """A world with its drivers, coordinators and people, driven by a plan."""

    def __init__(self, plan: Plan, *, story: list[str] | None = None) -> None:
        """`story`: lines about everything that happens are added to it."""
        setting = plan.setting
        self.plan = plan
        self.steps = 0
        rises, gaps = Dice(plan.seed), (1, 1, 2, 7) if setting.gaps else (1,)
        table = MemoryTable(
            "sim",
            rise=lambda: rises.pick(gaps),
            markers=setting.markers,
            joined="fixed buckets" if setting.fixed_buckets else None,
        )
        self.world = World(table, story=story)
        self._add_tables(setting, rises, gaps)
        self.checks = Checks(self.world)
        names = tuple(f"r{number}" for number in range(setting.regions))
        silent = names[setting.silent] if setting.silent is not None else None
        upload_first = 0.3 if setting.slow_uploads else 0.8
        source = Source(
            setting.items,
            setting.late_data,
            silent,
            setting.bounded,
            upload_first,
            setting.carries,
            setting.states_tables,
        )
        homes = {name: {f"{name}a": 0, f"{name}b": 0} for name in names}
        assignment = Assignment(number=0, regions=names)
        self.drivers = [
            Driver(
                self.world,
                source,
                name,
                assignment,
                Location(f"{name}.0", None, dict(homes[name])),
                dict(homes[name]),
            )
            for name in names
        ]
        self.retention = Retention(self.world)
        self.fleet = Fleet(self.world, setting.machine, self._watch, self.retention, plan.focus)
        self.fleet.nodes = [self.fleet.boot() for _ in range(setting.coordinators)]
        self.tables = Tables(self.world, self.checks.truth)
        self.people = People(self.world, self.checks.truth, self.drivers, self.tables)
        self.further = Further(self.world, self.checks.truth, self.people.command)
        self._items = {
            (shard, number) for home in homes.values() for shard in home for number in range(source.items)
        }
        self._actions = self._all_actions()

    def _add_tables(self, setting: Setting, rises: Dice, gaps: tuple[int, ...]) -> None:
        """Make the further tables."""
        world, names = self.world, FURTHER[: setting.tables]
        world.catalog.atomic = setting.atomic
        for name in names:
            # A mark shows a commit whose snapshot has expired: each real commit to a group writes one.
            made = MemoryTable(name, rise=lambda: rises.pick(gaps), markers="property")
            world.further[name] = world.catalog.tables[name] = made
            world.identifiers[name] = name
        known = names[:-1] if setting.late_table else names
        world.settings, world.job_tables = {name: name for name in known}, known

    def run(self) -> Outcome:
        """Take all steps, then let everything come to rest without any more faults."""
        if self.plan.setting.running:
            self._begin()
        for step in self.plan.steps:
            self.steps += 1
            self.world.now += step.after
            if self._actions[step.kind](step.who, Dice(step.draw)) is not False:
                self.world.saw(step.kind)
            self.checks.step()
            self.checks.compare(self.fleet.replicas())
        self._come_to_rest()
        return Outcome(self.steps, self.world.coverage)

    def _begin(self) -> None:
        """Let every driver register, and work until the first commit."""
        dice = Dice(self.plan.seed)
        for _ in range(BEGIN):
            self.world.now += 50
            self.fleet.run_all(self.checks.step)
            verdicts = self.checks.truth.verdicts
            if verdicts and verdicts[0].outcome:
                return
            for driver in self.drivers:
                for _ in range(HURRY):
                    driver.drive(dice)
            self.checks.step()

    def _watch(self, effect: Effect) -> None:
        self.checks.acts(effect)

    # --- actions ----------------------------------------------------------------------------------

    def _undirected(self) -> dict[str, Callable[[Dice], object]]:
        """Return the actions that are not about one driver or process."""
        people, tables = self.people, self.tables
        forger = Forger(self.world, self.checks, self.drivers)
        further = self.further
        return {
            "tables of the settings": self._change_settings,
            "tables of the job": further.change_job,
            "table renamed": further.rename,
            "further: roll back": further.roll_back,
            "further: expire": further.expire,
            "further: foreign": further.foreign,
            "further: impostor": further.impostor,
            "table dropped": further.drop,
            "table made again": further.make_again,
            "table away": further.send_away,
            "change of a table dropped": further.lose_change,
            "end between two tables": further.end_between,
            "care": self._care,
            "assignment": people.see_to_assignment,
            "reassign": people.reassign,
            "pause": people.pause,
            "savepoint": people.savepoint,
            "cancel": people.cancel,
            "revert": people.revert,
            "remove": people.remove,
            "policy": people.policy,
            "withdraw": people.change_mind,
            "foreign": tables.foreign,
            "impostor": tables.impostor,
            "expire": tables.expire,
            "roll back": tables.roll_back,
            "unfit table": tables.unfit,
            "another table": tables.stand_in,
            "view wiped": tables.wipe,
            "clock jumps": tables.jump,
            "wrong append time": tables.misdate,
            "forged decision": forger.decision,
            "older policy": forger.policy,
            "forged attempt": forger.attempt,
            "forged outcome": forger.outcome,
            "stray": forger.stray,
            "wait": self._wait,
            "records expired": self.retention.expire,
            "orphans deleted": Janitor(self.world).sweep,
        }

    def _all_actions(self) -> dict[str, Callable[[int, Dice], object]]:
        fleet = self.fleet
        actions: dict[str, Callable[[int, Dice], object]] = {
            "drive": self._drive,
            "read": fleet.read,
            "effect": fleet.effect,
            "view": fleet.write_view,
            "crash": fleet.crash,
            "freeze": fleet.freeze,
            "thaw": fleet.thaw,
            "rebalance": fleet.rebalance,
            "old record": fleet.old_record,
            "more": fleet.more,
            "record lost": fleet.lose_record,
            "records deleted": fleet.delete_records,
            "base overwritten": fleet.overwrite_base,
        }
        for name in TROUBLES:
            actions[name] = self._trouble(name)
        actions |= {name: _without_who(act) for name, act in self._undirected().items()}
        actions |= {fate: _striking(fleet, fate) for fate in FATES}
        return actions

    def _change_settings(self, dice: Dice) -> bool:
        changed = self.further.change_settings(dice)
        if changed and dice.chance(0.7):
            # The others have the former settings for a while.
            self.fleet.renew(1)
        return changed

    def _drive(self, who: int, dice: Dice) -> None:
        """Let one driver take some steps."""
        working = self.people.working()
        if not working:
            return
        driver = working[who % len(working)]
        for _ in range(dice.pick((1, 1, 2, 4))):
            if self.world.now < driver.still_until or self._is_stopping(driver):
                return
            driver.drive(dice)

    def _is_stopping(self, driver: Driver) -> bool:
        """True if a driver plans no more batches, as the job is stopping."""
        return driver.state == "running" and driver.batch is None and self.people.closing

    def _trouble(self, name: str) -> Callable[[int, Dice], object]:
        def act(who: int, dice: Dice) -> bool:
            driver = self.drivers[who % len(self.drivers)]
            happened = self._befall(name, driver, dice) is not False
            if happened:
                self.world.tell("{}: {}", driver.region, name)
            return happened

        return act

    def _befall(self, name: str, driver: Driver, dice: Dice) -> object:
        """Let something happen to a driver; return False if it could not."""
        always: dict[str, Callable[[], object]] = {
            "deliver": lambda: driver.deliver(dice),
            "duplicate": lambda: self._duplicate(driver, dice),
            "zombie": lambda: self._zombie(driver, dice),
            "stand still": lambda: driver.stand_still(dice),
            "late uploads": lambda: driver.hold_uploads(dice),
        }
        if name in always:
            return always[name]()
        if driver.state != "running" or driver.gone:
            return False
        running: dict[str, Callable[[], object]] = {
            "restart": driver.crash,
            "back up": driver.back_up,
            "restore": lambda: driver.restore(dice),
            "reset": lambda: self.people.ask_position(driver),
            "lose files": driver.lose_files,
            "decline": driver.decline,
            "take over": driver.take_over,
            "contradict": lambda: driver.contradict(dice),
            "replay": lambda: driver.replay(dice),
            "unreadable": driver.garble,
            "both attempts": lambda: driver.name_both(dice),
            "skip": lambda: driver.skip(dice),
            "other range": lambda: driver.plan_otherwise(dice),
            "late closing": lambda: driver.close_late(dice),
            "idle in a batch": driver.doze,
            "heartbeat": lambda: driver.rest() if driver.batch is None and not driver.uploads else False,
        }
        return running[name]()

    def _duplicate(self, driver: Driver, dice: Dice) -> bool:
        """Append an event of the region once more."""
        own = [entry for entry in self.world.log[-60:] if entry.envelope.region == driver.region]
        if not own:
            return False
        entry = dice.pick(own)
        if entry.envelope.type in (EventType.REGION_REGISTERED, EventType.REGION_CLOSED):
            return False
        self.world.append(entry.envelope, entry.body)
        return True

    def _zombie(self, driver: Driver, dice: Dice) -> bool:
        """A task of an older attempt writes on, for any batch of the location."""
        if not driver.location.batches:
            return False
        batch = dice.pick(driver.location.batches)
        at = (driver.region, driver.location.incarnation, batch.number)
        driver.late.append(self.world.files_event(at, "w0", self.world.new_id("z"), batch.items[:1]))
        return True

    def _care(self, dice: Dice) -> None:
        """Let people repair whatever is wrong."""
        if self.people.paused and dice.chance(0.5):
            self.people.pause(dice)
        self.people.care(dice)
        self.people.see_to_table(self.fleet.conditions(), dice)
        self.tables.care(dice)
        if self.world.further:
            self.further.care(self.fleet.conditions(), dice)
            self.fleet.renew()
        if any(each.lacks is not None for each in self.fleet.nodes):
            self.retention.restore()
            self.fleet.restart_blocked()

    def _wait(self, dice: Dice) -> None:
        self.world.now += dice.pick((200, 1_000, 5_000, 20_000))

    # --- the end ----------------------------------------------------------------------------------

    def _come_to_rest(self) -> None:
        """No more faults: everything must be committed, whoever does it."""
        self.world.tell("--- no more faults ---")
        self.tables.quiet()
        self.further.calm()
        self.retention.restore()
        self.fleet.quiet()
        self.checks.step()
        if self.people.paused:
            self.people.pause(Dice(0))
        self.checks.step()
        for savepoint in list(self.checks.truth.savepoints):
            self.people.command(command="cancel", name=savepoint.name)
        for driver in self.drivers:
            driver.held_until = 0
        dice = Dice(self.plan.seed)
        self._bear_trouble(dice)
        self.further.put_back()
        if self.world.further:
            # Coordinators read the catalog again after that time, if a table was unusable.
            self.world.now += self.plan.setting.machine.head_interval
        for _ in range(QUIET_ROUNDS):
            self._go_on(lambda: self._finish(dice))
            if self._at_rest() and not self.checks.unannounced():
                return
        missing = sorted(self._items - self.checks.items)
        lacking = f"{len(missing)} items, {missing[:3]} first, and notifications of"
        lacking = f"{lacking} {self.checks.unannounced()[:3]}"
        states = {driver.region: driver.state for driver in self.people.working()}
        conditions = [str(each.problem) for each in self.fleet.nodes[0].machine.conditions()]
        raise Violation("I12", f"no rest: {lacking} are missing; drivers {states}; {conditions}")

    def _go_on(self, act: Callable[[], None]) -> None:
        """Let time pass, and everybody do what they can."""
        self.steps += 1
        self.world.now += 50
        act()
        self.checks.step()
        self.fleet.run_all(self.checks.step)
        self.checks.step()
        self.checks.compare(self.fleet.replicas())

    def _bear_trouble(self, dice: Dice) -> None:
        """Leave a further table in its trouble: regions that do not write to it are committed meanwhile."""

        def see_to_anchor() -> None:
            self.people.see_to_table(self.fleet.conditions(), dice)

        if not self.world.further or not self.checks.truth.may_be_partial():
            return
        if not self.further.troubled():
            self.further.make_trouble(dice)
        before, troubled = self.checks.truth.decided, self.further.troubled()
        for _ in range(SETTLING):
            self._go_on(lambda: self._drive_all(dice))
            self._go_on(see_to_anchor)
        troubled &= self.further.troubled()
        for made in self.checks.truth.verdicts[before:]:
            if touched := troubled & made.tables.keys():
                # The coordinators have just begun, and have checked nothing before the trouble.
                raise Violation("I12", f"decision {made.body.decision} touches {touched}, in trouble")
        waiting = self._waiting_beside(troubled) if troubled else {}
        for _ in range(QUIET_ROUNDS):
            waiting = {name: at for name, at in waiting.items() if not self._is_past(name, at)}
            if not waiting or not troubled <= self.further.troubled():
                return
            self._go_on(see_to_anchor)
        conditions = [str(each.problem) for each in self.fleet.nodes[0].machine.conditions()]
        raise Violation("I12", f"{waiting} wait for the trouble of {troubled}: {conditions}")

    def _waiting_beside(self, troubled: set[str]) -> dict[str, Position]:
        """Return the next position of the regions that no trouble of these tables may delay."""
        truth, setting = self.checks.truth, self.plan.setting
        made, policy = truth.open, truth.policy
        delayed = made is not None and any(
            name in troubled or not self.checks.vectors.is_there(name, identity)
            for name, identity in made.tables.items()
        )
        full = truth.provisional or setting.fixed_buckets or policy is None or policy.max_failure_ratio < 1
        if full or delayed or truth.number is None:
            return {}
        found: dict[str, Position] = {}
        for name in truth.expected():
            place = truth.places.get(name)
            sealed = place.sealed() if place is not None and not place.stalled else []
            tables = {table for at in sealed if place for table in place.tables_at(at.checkpoint)}
            if sealed and truth.known(name) == sealed and tables.isdisjoint(troubled):
                found[name] = sealed[0]
        if found:
            self.world.saw("regions go on beside a table in trouble")
        return found

    def _is_past(self, name: str, at: Position) -> bool:
        place = self.checks.truth.places[name]
        return place.life is None or place.life.name != at.incarnation or place.is_past(at.checkpoint)

    def _finish(self, dice: Dice) -> None:
        self.people.match(dice)
        self._care(dice)
        self.people.see_to_assignment(dice)
        self._drive_all(dice)
        while any(driver.deliver(dice) for driver in self.drivers):
            pass

    def _drive_all(self, dice: Dice) -> None:
        for driver in self.people.working():
            for _ in range(HURRY):
                if not self._is_stopping(driver):
                    driver.drive(dice)

    def _at_rest(self) -> bool:
        if self._items - self.checks.items:
            return False
        done = all(driver.state in ("closed", "stopped") or driver.idle for driver in self.people.working())
        return done and self.checks.truth.open is None and not self.people.closing


def _without_who(act: Callable[[Dice], object]) -> Callable[[int, Dice], object]:
    return lambda who, dice: act(dice)


def _striking(fleet: Fleet, fate: str) -> Callable[[int, Dice], object]:
    return lambda who, dice: fleet.strike(fate, dice)


def attempt(plan: Plan, story: list[str] | None = None) -> tuple[Schedule, Violation | None]:
    """Run a plan; any error of the core or of the simulator counts as a violation."""
    schedule = Schedule(plan, story=story)
    try:
        schedule.run()
    except Violation as broken:
        return schedule, broken
    except Exception as error:
        return schedule, Violation("crash", repr(error))
    return schedule, None
