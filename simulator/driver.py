"""A simulated job's driver for one region: it reads shards of a source, batch by batch, and tells of it."""

from dataclasses import dataclass, field
from typing import Final

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import (
    Assignment,
    CheckpointCompleted,
    CheckpointFailed,
    Parent,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionOpened,
    StreamCommand,
    StreamStalled,
)
from sluicegate.simulator.dice import Dice
from sluicegate.simulator.source import Batches, Reading
from sluicegate.simulator.violation import Violation
from sluicegate.simulator.world import STREAM

ASK_AGAIN: Final = 200
"""Milliseconds before a refused opening is asked for again."""

UNTOLD: Final = 40_000
"""Milliseconds without faults, after which a stall must have been told."""
BEAT: Final = 1_000
"""Milliseconds between two heartbeats of an idle driver."""


@dataclass(eq=False)
class Driver(Batches):
    """One region's driver, between its opening and its closing."""

    parent_digest: str | None = None
    """What the location has of the checkpoint that it was set back to."""
    opening: str | None = None
    opened: bool = False
    opened_at: int = 0
    """How many notifications there were when it opened last."""
    closed: bool = False
    dead: bool = False
    stopped: bool = False
    """Replaced by others: it does nothing any more."""
    silent_until: int = 0
    lived: list[str] = field(default_factory=list)
    """The region's lineages that were accepted."""
    outnumbered: bool = False
    """The opening was refused until the job starts under a higher assignment."""
    outrun: bool = False
    """More of the regions that it was to follow is committed than it knew of."""
    tied: bool = False
    """Another region goes on from one of its checkpoints, and the owner may have to undo that."""
    said_idle_at: int = 0
    ask_at: int = 0
    """When a refused opening is asked for again."""
    quiet_since: int = 0
    """When faults stopped."""
    too_deep: int = 0
    """How often the opening was refused because too many assignments are pending."""

    @property
    def root(self) -> str | None:
        """The first lineage that was accepted."""
        return self.lived[0] if self.lived else None

    @property
    def active(self) -> bool:
        """Whether it runs batches."""
        return self.opened and not (self.dead or self.stopped or self.closed)

    @property
    def done(self) -> bool:
        """Whether it has nothing more to say."""
        if self.uploads or self.stray:
            return False
        return self.stopped or (self.opened and self.closed and not self.in_trouble and not self.never)

    @property
    def in_trouble(self) -> bool:
        """Whether the region stalls until this driver rewinds it."""
        return self.world.stalls.get(self.region, -1) >= self.opened_at

    def drive(self, dice: Dice) -> str:
        """Do what comes next; returns its name."""
        if self.uploads and (dice.chance(0.4) or self.stopped):
            return self.deliver(dice)
        if self.dead or self.stopped or self.world.now < self.silent_until:
            return "nothing"
        if not self.opened:
            return self.open(dice)
        if self.in_trouble:
            self.rewind(self._before_trouble() if dice.chance(0.3) else self.committed())
            self.world.saw("stalled region rewound")
            return "recover"
        if self.never and dice.chance(0.15):
            return self.give_up()
        if not self.at_end and not self.closed:
            return self.run_batch(dice)
        if not self.closed:
            return self.close()
        return "nothing"

    def finish(self, dice: Dice) -> None:
        """Without any more trouble: send what is on its way, and go on."""
        self.dead, self.silent_until = False, 0
        for envelope, body in [*self.uploads, *self.stray]:
            self.world.append(envelope, body)
        self.uploads.clear()
        self.stray.clear()
        self.quiet_since = self.quiet_since or self.world.now
        if self.mislabelled and not self.stopped and self.world.now - self.quiet_since > UNTOLD:
            self._miss()
        if self.active and self.never:
            self.give_up()
        self.drive(dice)
        if self.closed and self.job.unbounded and self.opened and not self.stopped:
            self.beat()

    def _miss(self) -> None:
        """Nobody has told of an event that was sent for another checkpoint."""
        if not self.world.carries and self.opened and not self.dead and not self._was_told():
            raise Violation("fault", f"nobody tells why {self.region} waits at {self.mislabelled}")
        # Carrying forgets events that are not named where they lie, and may be faster here than who looks.
        self.never += self.mislabelled
        self.mislabelled.clear()

    def _was_told(self) -> bool:
        """Return whether the stall was told before this run of the job began."""
        signs = [f"checkpoint {number} of lineage {self.lineage} names event" for number in self.mislabelled]
        stalls = [due.body.reason for due in self.world.commits if isinstance(due.body, StreamStalled)]
        return any(sign in reason for sign in signs for reason in stalls)

    def beat(self) -> None:
        """Say again that there is nothing to do, as drivers do on a timer."""
        if self.world.now - self.said_idle_at >= BEAT:
            self.said_idle_at = self.world.now
            self.say(EventType.REGION_HEARTBEAT, RegionHeartbeat(idle=True))

    def give_up(self) -> str:
        """Say that uploads will never come, and go back to what is committed."""
        for checkpoint in self.never:
            self.say(EventType.CHECKPOINT_FAILED, CheckpointFailed(outcome="lost"), checkpoint)
        self.rewind(self.committed())
        self.world.saw("lost uploads given up")
        return "give lost uploads up"

    @property
    def completes_later(self) -> bool:
        """A completion is still on its way, so that nothing can contradict it yet."""
        return any(isinstance(body, CheckpointCompleted) for _, body in self.uploads)

    def contradict(self) -> None:
        """Complete the last checkpoint again, for another range of the source."""
        body = CheckpointCompleted(
            events=(),
            predecessor=self.finished[-2] if len(self.finished) > 1 else None,
            source_digest=self.world.new_id("another-range"),
        )
        self.say(EventType.CHECKPOINT_COMPLETED, body, self.last)

    def deliver(self, dice: Dice) -> str:
        """Let something arrive that was on its way."""
        waiting = self.uploads if self.uploads and (not self.stray or dice.chance(0.5)) else self.stray
        if not waiting:
            return "nothing"
        self.world.append(*waiting.pop(dice.below(len(waiting))))
        return "deliver"

    # --- lineages ---------------------------------------------------------------------------------

    def open(self, dice: Dice) -> str:
        """Ask to add checkpoints, or look for the answer."""
        if self.opening is None:
            if self.world.now < self.ask_at:
                return "nothing"
            self.opening = self.world.new_id("o")
            planned, digest, previous = self.plan(dice) or (None, None, None)
            body = RegionOpened(
                parents=self.parents,
                planned=planned,
                planned_digest=digest,
                previous_digest=previous,
                parent_digest=self.parent_digest,
                assignment=self.assignment,
                sink=self.job.sink,
                owned=self.job.owned,
                bounded=not self.job.unbounded,
            )
            envelope = Envelope(self.opening, EventType.REGION_OPENED, STREAM, self.region, self.lineage)
            self.opened_at = len(self.world.commits)
            self.world.append(envelope, body)
            return "open"
        answer = self.world.answer(self.opening)
        if answer is None:
            return "wait for the answer"
        self.opening = None
        if answer.accepted:
            self.opened, self.closed = True, False
            if self.lineage not in self.lived:
                self.lived.append(self.lineage)
                self.newer = None
                self.astray.clear()
            return "opened"
        return self._refused(answer.reason, answer.committed)

    def accept_behind(self, ref: Position | None) -> None:
        """An operator accepts the lineage of an empty location, and lets its source start behind there."""
        self.location, self.generation, self.newer = self.world.new_id("a"), 0, None
        self.batch = self.first = 0
        self.parent_digest = None
        self.finished.clear()
        self.never.clear()
        self.mislabelled.clear()
        self.astray.clear()
        body = StreamCommand(command="accept", region=self.region, lineage=self.lineage, behind=ref)
        self.world.append(Envelope(self.world.new_id("c"), EventType.STREAM_COMMAND, STREAM), body)
        self.reading = self.lineage_start = self.reading_at(ref)

    def _refused(self, reason: str, ref: Position | None) -> str:
        self.ask_at = self.world.now + ASK_AGAIN
        self.forget_plan()
        if "newer location back" in reason or (self.newer is not None and "names no parent" in reason):
            return self._mend(reason)
        if "accept it again" in reason:
            self.accept_behind(ref)
            return "refused: committed since it was accepted"
        if (
            "beyond the named checkpoint" in reason
            or "is void; name that" in reason
            or "went on from before its first checkpoint" in reason
            or "is held out of all" in reason
            or "was itself" in reason
        ):
            self.outrun = self.root is None
            self.rewind(self.committed())
            return "refused: beyond"
        if "rewind the region" in reason:
            self.rewind(self.committed())
            return "refused: stalled region"
        if "names no parent" in reason:
            return "refused: no parent"
        if "is older than the stream's" in reason:
            self.stopped = True
            return "refused: old assignment"
        if "have had no full cut yet" in reason:
            self.too_deep += 1
            return "refused: depth"
        if "raise the assignment's number" in reason or "or leave the region out" in reason:
            self.outnumbered = True
            return "refused: number"
        return "refused for a while"

    def _mend(self, reason: str) -> str:
        """Do what the refusal of a location says: put the newer one back, or go on without it."""
        back = "sluicegate rewind" in reason
        if self.newer is not None and not (back and len(self.world.log) % 2):
            self.put_back()
        elif back:
            self.world.saw("set back to what is committed instead")
            self.rewind(self.committed())
        elif "delete the location" in reason:
            self.lose_all()
        else:
            self.parents = ()
            self.accept_behind(self.committed())
        return "refused: another location"

    def restart(self) -> None:
        """Crash, and open the same lineage again."""
        self.opened, self.opening = False, None

    def start_under(self, assignment: Assignment) -> None:
        """Start with the job under another assignment, if there is anything left to do."""
        self.assignment = assignment
        if not self.stopped and not (self.closed and self.opened):
            self.restart()

    def rewind(self, target: Position | None) -> None:
        """Begin a new lineage behind a checkpoint of this region, or before everything."""
        self.opened, self.opening, self.closed = False, None, False
        known = self.has_at(target) if target is not None else None
        if self.newer is not None and target is not None and known is None:
            # The command finds that itself, and changes nothing.
            self.put_back()
            return
        self.never.clear()
        self.mislabelled.clear()
        if self.root is None:
            return
        self.finished.clear()
        lineage, checkpoint = (target.lineage, target.checkpoint) if target else (self.root, None)
        self.parents = (Parent(region=self.region, lineage=lineage, checkpoint=checkpoint),)
        self.parent_digest, read = known or (None, self.reading_at(target))
        self.reading = self.lineage_start = read
        self.generation += 1
        self.batch = self.first = 0 if checkpoint is None else checkpoint + 1

    def begin_anew(self, parents: tuple[Parent, ...], reading: Reading) -> None:
        """Let the region's first lineage be another one, which goes on from elsewhere."""
        self.restart()
        self.generation += 1
        self.lived.clear()
        self.parents, self.parent_digest, self.newer = parents, None, None
        self.begin_at(reading)

    def _before_trouble(self) -> Position | None:
        """A completed checkpoint of the lineage that may not be stalled, and need not be committed."""
        if len(self.finished) < 2 or self.lacking:
            return self.committed()
        return Position(lineage=self.lineage, checkpoint=self.finished[-2])

    def committed(self) -> Position | None:
        """Where the region stands by the newest commit that it was told of."""
        newest = self.world.newest
        return newest.cut.get(self.region) if newest else None

    def close(self) -> str:
        """End: close behind the last checkpoint, or, if the source is endless, fall idle."""
        self.send_late()
        self.closed = True
        if self.job.unbounded:
            self.said_idle_at = self.world.now
            self.say(EventType.REGION_HEARTBEAT, RegionHeartbeat(idle=True))
            return "fall idle"
        self.say(EventType.REGION_CLOSED, RegionClosed(final=self.last if self.last >= 0 else None))
        return "close"
