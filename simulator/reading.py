"""A dumb reading of the log: what is sealed, decided and owed by the protocol's text, entry by entry.

It shares nothing with the core but the digests that name a decision; what it finds is what the invariants
are checked against.
"""

from typing import Final

from sluicegate.events.envelope import Envelope
from sluicegate.events.models import (
    Body,
    CheckpointCompleted,
    CheckpointFailed,
    CutAbandoned,
    CutDecided,
    CutVoided,
    FilesWritten,
    LineageCarried,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionOpened,
    StreamCommand,
    StreamPolicy,
    StreamStalled,
)
from sluicegate.simulator.accounts import Account, Life, Pile, Target
from sluicegate.simulator.cutting import abandon, decide, void
from sluicegate.simulator.lineages import read_opening
from sluicegate.simulator.standing import Standing
from sluicegate.simulator.world import Entry

_OTHER_RANGE: Final = "completed again for another source range"


class Reading(Standing):
    """The standing, read from the log."""

    def read(self, entry: Entry) -> None:
        """Take the next record in."""
        offset, _, envelope, body = entry
        if envelope.origin is not None or isinstance(body, LineageCarried):
            self._carried(offset, envelope, body)
            return
        match body:
            case FilesWritten():
                self._files(offset, envelope)
            case CheckpointCompleted():
                self._completed(offset, envelope, body)
            case CheckpointFailed(outcome="lost"):
                self._lost(envelope)
            case RegionHeartbeat() | RegionClosed():
                self._speaks(envelope, body)
            case RegionOpened():
                read_opening(self, offset, envelope, body)
            case StreamPolicy():
                if self.policy is None or body.number > self.policy.number:
                    self.policy = body
            case StreamCommand():
                self._ordered(body)
            case StreamStalled():
                self.blocked = True
            case _:
                self._coordinated(offset, body)

    def _coordinated(self, offset: int, body: Body) -> None:
        match body:
            case CutDecided():
                decide(self, offset, body)
            case CutAbandoned():
                abandon(self, body)
            case CutVoided():
                void(self, body)

    def _carried(self, offset: int, envelope: Envelope, body: Body) -> None:
        """Copies are news to nobody who has read all, and serve those who begin behind the originals."""
        account = self.regions.get(envelope.region)
        life = account.lives.get(envelope.lineage) if account else None
        pile = life.piles.get(envelope.checkpoint) if life else None
        if isinstance(body, LineageCarried):
            self.saw("carried")
        elif pile is not None:
            pile.stands["" if isinstance(body, CheckpointCompleted) else envelope.id] = offset

    # --- writers and drivers ----------------------------------------------------------------------

    def _speaker(self, envelope: Envelope) -> Account | None:
        """The account, if the lineage is the live one."""
        account = self.regions.get(envelope.region)
        return account if account and account.live == envelope.lineage else None

    def _speaks(self, envelope: Envelope, body: RegionHeartbeat | RegionClosed) -> None:
        account = self._speaker(envelope)
        if account is None:
            return
        if isinstance(body, RegionHeartbeat):
            account.idle = body.idle
            self.saw("region: idle" if body.idle else "region: awake")
            if body.idle and not account.resting:
                self.saw("region: idle, with work undecided")
            return
        if account.ref is not None and account.ref.lineage == envelope.lineage:
            reached = account.ref.checkpoint
        else:
            reached = -1
        if reached >= 0 and (body.final is None or body.final < reached):
            _stall(account, account.lives[envelope.lineage], reached)
            self.faults.add((envelope.region, reached, "but the query ended at"))
            self.saw("region: closed before what is in the table")
            return
        account.closed, account.final = True, body.final
        self.saw("region: closed")
        self.leave(account)

    def _life(self, envelope: Envelope) -> tuple[Account, Life] | None:
        account = self.regions.get(envelope.region)
        if account is None or envelope.lineage not in account.chain:
            return None
        return account, account.lives[envelope.lineage]

    def _pile(self, life: Life, offset: int, number: int) -> Pile | None:
        if number <= life.floor or (life.limit is not None and number > life.limit):
            return None
        return life.piles.setdefault(number, Pile(offset))

    def _files(self, offset: int, envelope: Envelope) -> None:
        found = self._life(envelope)
        if found is None:
            self.saw("files: of no live lineage")
            return
        pile = self._pile(found[1], offset, envelope.checkpoint)
        if pile is None:
            self.saw("files: decided or void")
        elif envelope.id in pile.arrived:
            self.saw("files: duplicate")
        else:
            self.saw("files: arrived" if pile.completion is None else "files: late, after the completion")
            pile.arrived.add(envelope.id)
            pile.attempts[envelope.id] = (envelope.writer, envelope.attempt)
            pile.stands[envelope.id] = offset
            # A loser's files are no sign of work.
            if pile.completion is None or envelope.id in pile.completion.events:
                found[0].idle = False
            if pile.completion is not None and envelope.id in pile.completion.events:
                self._judge_attempts(*found, pile, envelope)

    def _judge_attempts(self, account: Account, life: Life, pile: Pile, envelope: Envelope) -> None:
        """Rows of which a completion names two attempts are there twice."""
        if pile.doubled:
            _stall(account, life, envelope.checkpoint)
            self.faults.add((envelope.region, envelope.checkpoint, "names two attempts of the writer"))
            self.saw("completion: names two attempts of a writer")

    def _completed(self, offset: int, envelope: Envelope, body: CheckpointCompleted) -> None:
        found = self._life(envelope)
        if found is None:
            self.saw("completion: of no live lineage")
            return
        account, life = found
        pile = self._pile(life, offset, envelope.checkpoint)
        if pile is None:
            at = Position(lineage=envelope.lineage, checkpoint=envelope.checkpoint)
            other = account.ref == at and account.digest not in (None, body.source_digest)
            if other:
                _stall(account, life, envelope.checkpoint)
                self.faults.add((envelope.region, envelope.checkpoint, _OTHER_RANGE))
            self.saw(f"completion: {'contradicted at the ref' if other else 'decided or void'}")
        elif pile.completion is not None:
            other = pile.completion.source_digest != body.source_digest
            if other:
                _stall(account, life, envelope.checkpoint)
                self.faults.add((envelope.region, envelope.checkpoint, _OTHER_RANGE))
            self.saw(f"completion: {'contradicted' if other else 'replayed'}")
        else:
            pile.stands[""] = offset
            self._win(account, life, pile, envelope, body)

    def _win(
        self, account: Account, life: Life, pile: Pile, envelope: Envelope, body: CheckpointCompleted
    ) -> None:
        number, before = envelope.checkpoint, body.predecessor
        placed = life.floor < 0 if before is None else life.floor <= before < number
        if placed and life.after.setdefault(before, number) == number:
            pile.completion = body
            self.saw("completion: won")
            self._judge_attempts(account, life, pile, envelope)
        else:
            _stall(account, life, number)
            unplaced = "names no predecessor" if before is None else "its predecessor"
            self.faults.add((envelope.region, number, "already follows" if placed else unplaced))
        account.idle = False
        if account.closed and (account.final is None or number > account.final) and self._speaker(envelope):
            # Work beyond the end: the closing was that of a run before.
            self.saw("region: works beyond its end")
            account.closed = account.left = False
            account.final = None

    def _lost(self, envelope: Envelope) -> None:
        found = self._life(envelope)
        if found is not None:
            account, life = found
            number = envelope.checkpoint
            void = life.limit is not None and number > life.limit
            if number > life.floor and not void and number not in life.sealed():
                _stall(account, life, envelope.checkpoint)
                self.faults.add((envelope.region, envelope.checkpoint, "its files are lost"))
                self.saw("lost: region stalls")
            else:
                self.saw("lost: too late")

    # --- operators --------------------------------------------------------------------------------

    def _ordered(self, body: StreamCommand) -> None:
        match body.command:
            case "pause" | "resume":
                self.blocked = body.command == "pause"
            case "remove" if body.region is not None and self._is_known(body.region):
                self.account(body.region).removed = True
                self.saw("region: removed")
            case "accept" if body.region is not None and body.lineage is not None:
                account = self.account(body.region)
                if body.lineage not in account.lives:
                    account.accepted[body.lineage] = body.behind
            case "void" if body.decision is not None:
                self.ordered.add(body.decision)
            case "savepoint" | "drain" if body.name is not None:
                self._save(body.name, drain=body.command == "drain")

    def _is_known(self, region: str) -> bool:
        """Whether a region was opened, or is in an assignment."""
        held = [each for each in (self.assignment, self.next) if each]
        return region in self.regions or any(region in each.regions for each in held)

    def _save(self, name: str, *, drain: bool) -> None:
        aim = self.next or self.assignment
        newest = aim.regions if aim else ()
        places: dict[str, Position] = {}
        if drain:
            self.drains.add(name)
        for region in {*newest, *(self.assignment.regions if self.assignment else ())}:
            account = self.account(region)
            for lineage in account.chain:
                if done := _completed(account.lives[lineage]):
                    places[region] = Position(lineage=lineage, checkpoint=max(done))
            if drain and region in newest and account.live is not None and not account.left:
                live = account.lives[account.live]
                account.closed = True
                account.final = max(_completed(live), default=live.decided)
                self.leave(account)
        if places or self.savepoint:
            names, others = self.savepoint or Target((), {})
            self.savepoint = Target((*names, name), {**others, **places})
        else:
            self.saved[name] = self.decided


def _completed(life: Life) -> list[int]:
    return [number for number, pile in life.open().items() if pile.completion is not None]


def _stall(account: Account, life: Life, checkpoint: int) -> None:
    """A region waits for a new lineage, which must begin before what is wrong."""
    account.fault = True
    life.hold(checkpoint)
