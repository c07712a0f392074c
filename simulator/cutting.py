"""The dumb reading of cuts: what a valid decision makes of the regions, and how a void takes it back."""

from sluicegate.coordinator.core.decisions import decision_digest
from sluicegate.events.models import CutAbandoned, CutDecided, CutVoided, Position
from sluicegate.simulator.accounts import Account, Target, Verdict
from sluicegate.simulator.judging import (
    has_work,
    may_fall_back,
    owes,
    reject,
    tired,
    unreached,
    waited_for,
)
from sluicegate.simulator.standing import Standing
from sluicegate.simulator.world import STREAM


def decide(now: Standing, offset: int, body: CutDecided) -> None:
    """Enter a decision, if it is valid where the standing is."""
    digest = decision_digest(STREAM, body)
    rejection = reject(now, body)
    if rejection is not None:
        now.rejected.setdefault(digest, []).append(rejection)
        now.saw(f"decision: void by {'number' if rejection.invariant == 'I3' else 'content'}")
        return
    moves = {name: at for name, at in body.cut.items() if at != now.regions[name].ref}
    late = owes(now, waited_for(now), moves)
    verdict = _verdict(now, offset, digest, body, moves, late)
    _count(now, late, moves)
    if now.next is not None and not owes(now, now.next.regions, moves):
        _put_in_force(now)
        now.saw("decision: assignment comes into force")
    if now.savepoint is not None and not late and not unreached(now, moves):
        now.saved |= dict.fromkeys(now.savepoint.names, body.decision)
        now.savepoint = None
        now.saw("decision: savepoint reached")
    regions = now.assignment.regions if now.assignment else ()
    counted = [name for name in regions if name in moves or has_work(now.regions.get(name))]
    _move(now, verdict, moves)
    _raise(now, counted)
    verdict.watermark, verdict.counted = now.watermark, counted
    verdict.listeners = {
        name: dict(account.listeners) for name, account in now.regions.items() if account.listeners
    }
    now.decided, now.attempt = body.decision, 0
    now.valid[body.decision] = verdict
    now.saw("decision: partial" if late else "decision: full")
    if verdict.forced:
        now.saw("decision: forced")
    if verdict.final:
        now.saw("decision: final")


def _verdict(
    now: Standing, offset: int, digest: str, body: CutDecided, moves: dict[str, Position], late: list[str]
) -> Verdict:
    verdict = Verdict(
        number=body.decision,
        offset=offset,
        digest=digest,
        cut=dict(body.cut),
        groups=[],
        events=[],
        fallbacks={name: now.account(name).ref for name in late},
        forced=not late and bool(tired(now, waited_for(now))),
        final=body.final,
        watermark=None,
        counted=[],
        listeners={},
        before={name: account.copy() for name, account in now.regions.items()},
        was=(now.assignment, now.next, now.savepoint, now.watermark),
    )
    for name in sorted(moves):
        for at in now.regions[name].sealed():
            pile = now.regions[name].lives[at.lineage].piles[at.checkpoint]
            verdict.groups.append((name, at.lineage, at.checkpoint))
            verdict.events += dict.fromkeys(pile.completion.events if pile.completion else ())
            if at == moves[name]:
                break
    return verdict


def _count(now: Standing, late: list[str], moves: dict[str, Position]) -> None:
    for name in late:
        now.account(name).fallbacks += 1
    for name in moves:
        now.regions[name].fallbacks = 0


def _put_in_force(now: Standing) -> None:
    now.assignment, now.next = now.next, None
    for name, account in now.regions.items():
        account.left = account.left or (now.assignment is not None and name not in now.assignment.regions)


def _move(now: Standing, verdict: Verdict, moves: dict[str, Position]) -> None:
    silent: list[tuple[str, str]] = []
    for name, lineage, number in verdict.groups:
        account = now.regions[name]
        life = account.lives[lineage]
        said = life.piles[number].completion
        if life.decided is None and life.elsewhere:
            silent.append((name, lineage))
        for before in range((life.decided if life.decided is not None else -1) + 1, number):
            if before in life.piles:
                life.piles[before].passed = True
        life.decided = number
        if said is None:
            continue
        account.digest = said.source_digest
        if said.watermark is not None:
            life.highest = max(mark for mark in (said.watermark, life.highest) if mark is not None)
            account.watermark = life.highest
            silent = [each for each in silent if each[0] != name]
        life.watermark = account.watermark
        account.listeners = {**account.listeners, **said.listeners}
    for name, lineage in sorted(silent, key=lambda each: now.regions[each[0]].lives[each[1]].opened):
        _take_watermark(now, name, lineage)
    for name, at in moves.items():
        account = now.regions[name]
        account.chain = account.chain[account.chain.index(at.lineage) :]
        account.ref = at
        now.leave(account)


def _take_watermark(now: Standing, name: str, lineage: str) -> None:
    """A region that took over others' work is no further than they were, until it says so itself."""
    account = now.regions[name]
    life = account.lives[lineage]
    marks = [now.regions[parent.region].lives[parent.lineage].watermark for parent in life.elsewhere]
    marks += [account.watermark] if account.ref is not None else []
    known = [mark for mark in marks if mark is not None]
    life.watermark = account.watermark = min(known) if len(known) == len(marks) else None


def _raise(now: Standing, counted: list[str]) -> None:
    marks = [now.account(name).watermark for name in counted]
    known = [mark for mark in marks if mark is not None]
    if marks and len(known) == len(marks):
        now.watermark = max(min(known), now.watermark if now.watermark is not None else min(known))


def abandon(now: Standing, body: CutAbandoned) -> None:
    """Let everybody fall back again, if a full cut was forced."""
    follows = (body.decision, body.attempt) == (now.decided + 1, now.attempt + 1)
    if follows and not now.blocked and may_fall_back(now) and tired(now, waited_for(now)):
        for account in now.regions.values():
            account.fallbacks = 0
        now.attempt += 1
        now.abandoned.add((body.decision, body.attempt))
        now.saw("abandonment: valid")
    else:
        now.saw("abandonment: void")


def void(now: Standing, body: CutVoided) -> None:
    """Take the last decision back, once."""
    verdict = now.valid.get(now.decided)
    if verdict is None or verdict.number != body.decision or verdict.void:
        now.saw("void: repeated")
        return
    now.saw("void: taken back")
    verdict.void = True
    for name, account in now.regions.items():
        was = verdict.before.get(name) or Account()
        passed = was.chain[: was.chain.index(account.chain[0])] if was.chain and account.chain else []
        account.chain = passed + account.chain
        account.ref, account.digest, account.watermark = was.ref, was.digest, was.watermark
        account.listeners, account.fallbacks = was.listeners, was.fallbacks
        # Who was opened since is waited for, whatever the decision found.
        account.left = account.left and was.left
        for lineage, life in was.lives.items():
            account.lives[lineage].decided = life.decided
            account.lives[lineage].watermark = life.watermark
            account.lives[lineage].highest = life.highest
        now.leave(account)
    assignment, following, savepoint, watermark = verdict.was
    if now.next is None or (following and now.next.number <= following.number):
        now.next = following
    now.assignment, now.watermark = assignment, watermark
    _ask_again(now, body.decision, savepoint)
    held = now.regions.get(body.region)
    if held is not None and held.live is not None:
        places = [at.lineage for at in held.sealed() if at.checkpoint == body.checkpoint]
        held.lives[places[0] if places else held.live].hold(body.checkpoint)
        held.fault = True
        now.faults.add((body.region, body.checkpoint, "was held out when decision"))


def _ask_again(now: Standing, decision: int, before: Target | None) -> None:
    """The savepoints that a void decision had answered, or was to answer, are still to be taken."""
    again = [name for name, answered in now.saved.items() if answered == decision]
    for name in again:
        del now.saved[name]
    names = (*again, *(now.savepoint.names if now.savepoint else ()))
    places = {**(before.places if before else {}), **(now.savepoint.places if now.savepoint else {})}
    now.savepoint = Target(names, places) if names else None
