"""The simulated job: regions that read shards of a source in batches, and restart from their locations."""

import json
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    CheckpointFailed,
    Planned,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
)
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import Code
from tests.simulator.dice import Dice
from tests.simulator.location import Batch, Location, Offsets, Source
from tests.simulator.places import FAR
from tests.simulator.world import SPACING, STREAM, World

Message = tuple[Envelope, Body | None]
HEARTBEAT: Final = 1_000
"""Milliseconds between two heartbeats of an idle driver."""
_WRONG_TIMES: Final = 5
"""Of so many batches, one has a row with an event time of the far future, where data may be late."""


@dataclass(eq=False)
class Driver:
    """One region's driver. What it knows beside its location is lost with a crash."""

    world: World
    source: Source
    region: str
    assignment: Assignment
    location: Location
    home: Offsets
    """Offsets of its shards before its first checkpoint under this assignment."""
    table: str | None = None
    backups: list[Location] = field(default_factory=list)
    state: str = "new"
    """new, probing, registering, running, refused, closed, stopped."""
    asked: str = ""
    """Id of the registration or probe that waits for an answer."""
    answer: RegistrationAnswered | None = None
    """The newest answer."""
    named: list[str] = field(default_factory=list)
    """Events of the batch under way."""
    uploads: list[Message] = field(default_factory=list)
    """Named events that are still on their way."""
    late: list[Message] = field(default_factory=list)
    """Events of losers, zombies and duplicates that are still on their way."""
    idle: bool = False
    told_idle: bool = False
    """True if the process has said idle since its registration, or since the newest beginning it stated."""
    stated: int = -1
    """The newest checkpoint whose beginning the process has stated."""
    run: str = "none"
    """Id of the registration with which the process began."""
    runs: list[str] = field(default_factory=list)
    rested_at: int = 0
    """Time of the last heartbeat that said idle."""
    wrong: bool = False
    """True if the location is not the newest one."""
    gone: bool = False
    """True if the region is not part of the job any more."""
    still_until: int = 0
    """Time until which the process stands still."""
    held_until: int = 0
    """Time until which uploads do not arrive."""
    writes: tuple[str, ...] = ()
    """Further tables that the process writes to."""

    # --- registration -----------------------------------------------------------------------------

    def send(self, kind: EventType, body: Body | None, checkpoint: int = -1) -> str:
        """Append an event of this region; return its id."""
        event = self.world.new_id("e")
        self.world.append(
            Envelope(event, kind, STREAM, self.region, self.location.incarnation, checkpoint), body
        )
        return event

    def ask(self, *, probe: bool) -> None:
        """Register, or ask without effect."""
        location = self.location
        if location.takes_over is not None and not location.registered:
            body = RegionRegistered(
                assignment=self.assignment,
                table=self.table,
                bounded=self.source.bounded,
                takes_over=location.takes_over,
                tables=self._stated_tables(),
            )
            self.asked, self.state = self.send(EventType.REGION_REGISTERED, body), "registering"
            return
        newest = [Planned(checkpoint=each.number, digest=each.digest) for each in location.batches[-2:]]
        body = RegionRegistered(
            base=location.base,
            replaces=None if location.registered else location.replaces,
            planned=tuple(reversed(newest)) if location.registered else (),
            assignment=self.assignment,
            table=self.table,
            bounded=self.source.bounded,
            probe=probe,
            tables=self._stated_tables(),
        )
        self.asked = self.send(EventType.REGION_REGISTERED, body)
        self.state = "probing" if probe else "registering"

    def _stated_tables(self) -> tuple[str, ...]:
        return self._tables_of_region() if self.source.states_tables else ()

    def _tables_of_region(self) -> tuple[str, ...]:
        """Return the further tables that the region writes to: most of the job's."""
        names = self.world.job_tables
        return tuple(name for name in names if crc32(f"{self.region} {name}".encode()) % 3)

    def read_answer(self) -> None:
        """Read the answer to the newest registration or probe, if it is there."""
        found = self.world.answers.get(self.asked)
        if found is None:
            return
        self.answer = found
        if self.state == "probing":
            # A registration may be valid by now, so it is judged again.
            self.state = "new"
            if found.problem is None or found.problem.code is not Code.NO_POLICY:
                self.ask(probe=False)
            return
        if found.accepted and self.location.takes_over is not None and not self.location.registered:
            self.location.batches.clear()
            self.location.base, self.location.start = found.committed, self.offsets_of(found)
            self.world.saw("a driver without state takes over")
        if found.accepted:
            self.state, self.location.registered, self.idle = "running", True, False
            self.run, self.told_idle, self.stated = self.asked, False, -1
            self.runs.append(self.run)
            self.named, self.writes = [], self._tables_of_region()
        else:
            self.state = "refused"

    def crash(self) -> None:
        """End the process; uploads on their way still arrive."""
        self.late += self.uploads
        self.uploads, self.named, self.asked = [], [], ""
        if self.state not in ("closed", "stopped"):
            self.state = "new"
            if self.location.takes_over is not None:
                self.forget()

    def forget(self) -> None:
        """Start as a driver without state: all that it knows is the end of the log now."""
        name, end = self.world.new_id(f"{self.region}."), len(self.world.log)
        self.location = Location(name, None, dict(self.home), takes_over=end)
        self.wrong, self.idle = False, False

    def take_over(self) -> None:
        """Crash, and continue without a location."""
        self.crash()
        self.forget()

    def offsets_of(self, found: RegistrationAnswered) -> Offsets:
        """Return where the source continues by an answer."""
        known: Offsets = json.loads(found.source_offsets) if found.source_offsets else {}
        # A position of an earlier assignment is about other shards: nothing of these was read.
        return dict(known if known.keys() == self.home.keys() else self.home)

    # --- batches ----------------------------------------------------------------------------------

    @property
    def batch(self) -> Batch | None:
        """Return the batch under way."""
        batches = self.location.batches
        return next((each for each in batches if not each.finished), None)

    def plan(self, dice: Dice) -> bool:
        """Plan the next batch; return False if there is nothing to read."""
        start = dict(self.location.offsets)
        left = [shard for shard, at in start.items() if at < self.source.items]
        if not left:
            return False
        end = dict(start)
        for shard in left:
            end[shard] = min(self.source.items, start[shard] + dice.between(0, 2))
        if end == start:
            end[left[0]] += 1
        self.location.batches.append(Batch(self.location.next_number, start, end))
        self.named = []
        return True

    def write(self, batch: Batch, dice: Dice, *, attempts: int = 1) -> None:
        """Write the batch: some writers, each with an attempt that counts and perhaps others."""
        items, at = batch.items, (self.region, self.location.incarnation, batch.number)
        cut, tables = dice.between(0, len(items)), self._tables(dice)
        for number, share in enumerate((items[:cut], items[cut:])):
            if not share and number:
                continue
            for attempt in range(attempts):
                name = self.world.new_id("a")
                for table in tables:
                    message = self.world.files_event(at, f"w{number}", name, share, table)
                    if attempt == attempts - 1:
                        self.named.append(message[0].id)
                        self.uploads.append(message)
                    else:
                        self.late.append(message)

    def _tables(self, dice: Dice) -> list[str]:
        """Return the tables that get the rows of a batch; empty text: the anchor."""
        if not self.writes:
            return [""]
        chosen = [name for name in self.writes if dice.chance(0.6)]
        return ["", *chosen] if not chosen or dice.chance(0.7) else chosen

    def complete(self, batch: Batch, dice: Dice) -> None:
        """Publish the completion, and note the batch as done."""
        self.send(EventType.CHECKPOINT_COMPLETED, self.completion(batch, dice), batch.number)
        batch.finished = True
        self.named = []

    def carry(self, batch: Batch, dice: Dice, *, digest: str = "") -> None:
        """Write all of the batch in the driver's process: the completion carries the file."""
        at = (self.region, self.location.incarnation, batch.number)
        table = dice.pick(("", *self.writes)) if self.writes else ""
        envelope, files = self.world.files_event(at, "w0", self.world.new_id("a"), batch.items, table)
        changed = {"events": (), "files": files, "source_digest": digest or batch.digest}
        body = self.completion(batch, dice).model_copy(update=changed)
        self.world.append(envelope._replace(type=EventType.CHECKPOINT_COMPLETED), body)
        self.world.saw(
            "a completion with files loses" if batch.finished else "a completion carries its files"
        )
        batch.finished = True
        self.named = []

    def completion(self, batch: Batch, dice: Dice) -> CheckpointCompleted:
        """Return the completion of a batch, as its driver states it."""
        watermark: int | None = min(batch.end.values(), default=0) * SPACING
        if self.source.falling and watermark is not None and dice.chance(0.3):
            watermark = max(0, watermark - 25)
            self.world.saw("watermark falls")
        if self.source.falling and batch.number % _WRONG_TIMES == _WRONG_TIMES - 1:
            watermark = FAR
            self.world.saw("watermark of the far future")
        if self.region == self.source.silent:
            watermark = None
        return CheckpointCompleted(
            events=tuple(self.named),
            predecessor=self.location.before(batch),
            source_digest=batch.digest,
            watermark=watermark,
            source_offsets=json.dumps(batch.end, sort_keys=True),
            listeners={"done": str(batch.number)} if dice.chance(0.2) else {},
        )

    def deliver(self, dice: Dice) -> bool:
        """Append one event that is on its way."""
        if self.world.now < self.held_until:
            return False
        box = self.uploads if self.uploads and (not self.late or dice.chance(0.7)) else self.late
        if not box:
            return False
        self.world.append(*box.pop(dice.below(len(box))))
        return True

    def drive(self, dice: Dice) -> None:
        """Take one step of the driver."""
        match self.state:
            case "new":
                self.ask(probe=dice.chance(0.5))
            case "probing" | "registering":
                self.read_answer()
            case "running":
                self._run(dice)
            case _:
                self.deliver(dice)

    def _run(self, dice: Dice) -> None:
        batch = self.batch
        if batch is None:
            if self.uploads and self.world.now >= self.held_until and dice.chance(self.source.upload_first):
                # Uploads of finished batches continue beside the next batch.
                self.deliver(dice)
            elif self.plan(dice):
                self.begin()
            elif self.uploads and self.world.now >= self.held_until:
                self.deliver(dice)
            elif self.source.bounded:
                self.close()
            elif not self.idle or self.world.now - self.rested_at > HEARTBEAT:
                self.rest()
        elif not self.named and self.source.carries and dice.chance(0.8):
            self.carry(batch, dice)
        elif not self.named:
            self.write(batch, dice, attempts=1 + dice.chance(0.15))
        elif self.uploads and self.world.now >= self.held_until and dice.chance(self.source.upload_first):
            self.deliver(dice)
        else:
            self.complete(batch, dice)

    def begin(self) -> None:
        """Take back that the region is idle, before the first item of the batch is written."""
        self.idle, batch = False, self.batch
        if self.told_idle and batch is not None:
            body = RegionHeartbeat(begins=batch.number, run=self.run)
            self.send(EventType.REGION_HEARTBEAT, body)
            self.told_idle, self.stated = False, batch.number

    def rest(self) -> None:
        """State that there is nothing to read."""
        batches = self.location.batches
        self._say_idle(batches[-1].number if batches else None)
        self.idle, self.told_idle, self.rested_at = True, True, self.world.now

    def doze(self) -> bool:
        """Have an idle heartbeat of before the batch arrive in the middle of it.

        A driver that has not stated the beginning of the batch is a broken one: its rows are late.
        """
        batch = self.batch
        if batch is None:
            return False
        before = [each.number for each in self.location.batches if each is not batch]
        after = batch.number if batch.number != self.stated else before[-1] if before else None
        self._say_idle(after)
        return True

    def _say_idle(self, after: int | None) -> None:
        body = RegionHeartbeat(idle=True, after=after, interval=HEARTBEAT, run=self.run)
        self.send(EventType.REGION_HEARTBEAT, body)

    def close(self) -> None:
        """End after the newest finished batch."""
        finished = [each.number for each in self.location.batches if each.finished]
        self.send(
            EventType.REGION_CLOSED, RegionClosed(final=finished[-1] if finished else None, run=self.run)
        )
        self.state = "closed"

    # --- troubles ---------------------------------------------------------------------------------

    def back_up(self) -> None:
        """Keep a copy of the location."""
        self.backups.append(deepcopy(self.location))
        del self.backups[:-3]

    def restore(self, dice: Dice) -> bool:
        """Crash, and restart with an older location; return False if there is none."""
        if not self.backups:
            return False
        self.crash()
        old = dice.pick((self.backups[0], *self.backups))
        self.wrong = self.wrong or len(old.batches) < len(self.location.batches)
        self.location = deepcopy(old)
        self.state = "new"
        return True

    def reset(self, committed: Position | None, live: str | None, offsets: Offsets) -> None:
        """Begin a new incarnation at the committed position, in place of the live one."""
        self.crash()
        name = self.world.new_id(f"{self.region}.")
        self.location = Location(name, committed, dict(offsets), live)
        self.state, self.wrong, self.idle = "new", False, False

    def stand_still(self, dice: Dice) -> None:
        """Do nothing for a while, not even send heartbeats."""
        self.still_until = self.world.now + dice.pick((500, 3_000, 30_000))

    def hold_uploads(self, dice: Dice) -> None:
        """Have uploads arrive only after a while; completions and the closing do not wait for them."""
        self.held_until = self.world.now + dice.pick((500, 3_000, 30_000))

    def plan_otherwise(self, dice: Dice) -> bool:
        """Crash, and plan the newest batch again for another range: somebody changed the source."""
        batches = self.location.batches
        if not batches:
            return False
        self.crash()
        dropped = batches.pop()
        self.plan(dice)
        self.wrong = self.wrong or dropped.finished
        return True

    def garble(self) -> None:
        """Send a completion, or a registration, that nobody can read."""
        batch = self.batch
        kind = EventType.REGION_REGISTERED if batch is None else EventType.CHECKPOINT_COMPLETED
        self.send(kind, None, batch.number if batch is not None else -1)

    def lose_files(self) -> bool:
        """Lose an upload for ever: the checkpoint fails for good."""
        if not self.uploads:
            return False
        lost = self.uploads.pop()
        self.send(
            EventType.CHECKPOINT_FAILED,
            CheckpointFailed(outcome="lost", reason="disk gone"),
            lost[0].checkpoint,
        )
        return True

    def decline(self) -> bool:
        """Say that the batch under way is not sealed soon. It may be sealed all the same."""
        if self.batch is None or self.run is None:
            return False
        body = CheckpointFailed(outcome="declined", run=self.run, code="task-failed", reason="out of memory")
        self.send(EventType.CHECKPOINT_FAILED, body, self.batch.number)
        return True

    def contradict(self, dice: Dice) -> bool:
        """Complete a finished batch once more for another source range, as a broken source does."""
        finished = [each for each in self.location.batches if each.finished]
        if not finished:
            return False
        batch = dice.pick(finished[-2:])
        if self.source.carries and dice.chance(0.5):
            kept, self.named = self.named, []
            self.carry(batch, dice, digest="another range")
            self.named = kept
            return True
        body = self.completion(batch, dice).model_copy(
            update={"source_digest": "another range", "events": ()}
        )
        self.send(EventType.CHECKPOINT_COMPLETED, body, batch.number)
        return True

    def skip(self, dice: Dice) -> bool:
        """Complete a batch that follows one which it cannot follow, as a broken driver does."""
        batch = self.batch
        if batch is None or not self.named or len(self.location.batches) < 2 or self.wrong:
            # After a second one, the checkpoints that are sealed would leave out the first one's rows.
            return False
        before = self.location.before(dice.pick(self.location.batches[:-1]))
        body = self.completion(batch, dice).model_copy(update={"predecessor": before})
        self.send(EventType.CHECKPOINT_COMPLETED, body, batch.number)
        batch.finished, self.named, self.wrong = True, [], True
        return True

    def close_late(self, dice: Dice) -> bool:
        """A closing of an earlier run arrives late."""
        finished = [each.number for each in self.location.batches if each.finished]
        if not finished:
            return False
        run = self.run if dice.chance(0.5) else dice.pick(self.runs)
        self.send(EventType.REGION_CLOSED, RegionClosed(final=dice.pick((finished[0], *finished)), run=run))
        return True

    def name_both(self, dice: Dice) -> bool:
        """Complete a batch with two attempts of one writer, as a broken writer does."""
        batch = self.batch
        if batch is None or not self.named or self.uploads:
            return False
        message = self.world.files_event(
            (self.region, self.location.incarnation, batch.number), "w0", self.world.new_id("a"), batch.items
        )
        self.world.append(*message)
        self.named.append(message[0].id)
        self.complete(batch, dice)
        return True

    def replay(self, dice: Dice) -> bool:
        """Write and complete a finished batch once more, with the same range."""
        finished = [each for each in self.location.batches if each.finished]
        if not finished:
            return False
        batch, kept = dice.pick(finished[-3:]), (self.named, self.uploads)
        self.named, self.uploads = [], []
        if self.source.carries and dice.chance(0.5):
            self.carry(batch, dice)
            self.named, self.uploads = kept
            return True
        self.write(batch, dice)
        while self.uploads:
            self.world.append(*self.uploads.pop())
        self.send(EventType.CHECKPOINT_COMPLETED, self.completion(batch, dice), batch.number)
        self.named, self.uploads = kept
        return True
