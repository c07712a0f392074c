"""The dumb now's judgement of a decision: which rule it breaks, and which invariant that rule is for."""

from collections.abc import Iterable, Mapping

from sluicegate.events.models import CutDecided, Parent, Position
from sluicegate.simulator.accounts import Account
from sluicegate.simulator.standing import Rejection, Standing

Moves = Mapping[str, Position]


def waited_for(now: Standing) -> list[str]:
    """The regions that a cut waits for; while a new assignment is pending, those that are in both."""
    held, following = now.assignment, now.next
    names = held.regions if held else ()
    return [name for name in names if following is None or name in following.regions]


def owes(now: Standing, names: Iterable[str], moves: Moves) -> list[str]:
    """Those that have work and do not move, unless they wait for a full cut themselves."""
    return [name for name in stays(now, names, moves) if not _held(now, name)]


def stays(now: Standing, names: Iterable[str], moves: Moves) -> list[str]:
    """Those that have work and do not move."""
    return [name for name in names if name not in moves and has_work(now.regions.get(name))]


def has_work(account: Account | None) -> bool:
    """Whether the region is neither idle nor gone; one that was never opened has work."""
    return account is None or not (account.resting or account.left or account.removed)


def _held(now: Standing, name: str) -> bool:
    account = now.regions.get(name)
    sealed = account.sealed() if account else []
    return (
        account is not None
        and bool(sealed)
        and any(account.at_or_beyond(sealed[0], end) for end in ends(now, name))
    )


def ends(now: Standing, name: str) -> list[Position]:
    """The checkpoints that only a full cut may reach: a closed region's last, a savepoint's target."""
    account, found = now.regions[name], []
    if account.closed and account.final is not None and account.live is not None:
        found.append(Position(lineage=account.live, checkpoint=account.final))
    if now.savepoint is not None and name in now.savepoint.places:
        found.append(now.savepoint.places[name])
    return found


def tired(now: Standing, names: Iterable[str]) -> list[str]:
    """Those that have fallen back as often in a row as they may."""
    most = now.policy.max_consecutive_fallbacks if now.policy else 1
    return [name for name in names if name in now.regions and now.regions[name].fallbacks >= most]


def may_fall_back(now: Standing) -> bool:
    """Whether cuts may be partial at all."""
    policy, held = now.policy, now.assignment
    if policy is None or policy.partial != "allow" or policy.joined:
        return False
    return not any(now.account(name).joined for name in (held.regions if held else ()))


def unreached(now: Standing, moves: Moves) -> list[str]:
    """The regions of the savepoint that are not at their target with these moves."""
    found: list[str] = []
    for name, target in now.savepoint.places.items() if now.savepoint else ():
        account = now.regions[name]
        limit = account.lives[target.lineage].limit
        gone = target.lineage not in account.chain or (limit is not None and target.checkpoint > limit)
        at = moves.get(name, account.ref)
        there = at is not None and account.at_or_beyond(at, target)
        if not (gone or account.removed or there):
            found.append(name)
    return found


def reject(now: Standing, body: CutDecided) -> Rejection | None:
    """Why a decision is void where the now stands; None if it is valid."""
    if body.decision != now.decided + 1:
        return Rejection("I3", f"decision {body.decision} does not follow {now.decided}")
    if now.blocked:
        return Rejection("I4", "the stream is paused or stalled")
    moves: dict[str, Position] = {}
    for name, at in body.cut.items():
        account = now.regions.get(name)
        if account is None:
            return Rejection("I1", f"{name} was never opened")
        if at == account.ref:
            continue
        if account.fault:
            return Rejection("I2", f"{name} is stalled")
        if at not in account.sealed():
            known = at.lineage in account.chain
            return Rejection("I1" if known else "I2", f"{name} is not sealed up to {at.checkpoint}")
        moves[name] = at
    refs = {name for name, account in now.regions.items() if account.ref is not None}
    if not moves or refs - set(body.cut):
        return Rejection("I1", "no region moves, or one is left out")
    if lonely := [name for name, at in moves.items() if not _founded(now, name, at, moves)]:
        return Rejection("I1", f"{lonely} build on checkpoints that are not in the cut")
    return _reject_partial(now, body, moves)


def _reject_partial(now: Standing, body: CutDecided, moves: Moves) -> Rejection | None:
    late = owes(now, waited_for(now), moves)
    regions, following = now.regions, now.next
    carries = any(
        regions[name].at_or_beyond(at, end) for name, at in moves.items() for end in ends(now, name)
    )
    if body.final != carries:
        return Rejection("I7", "the final mark is wrong")
    if following is not None and now.assignment is not None:
        held = now.assignment.number
        newer = [name for name, at in moves.items() if regions[name].lives[at.lineage].assignment > held]
        if newer and (late := owes(now, following.regions, moves)):
            return Rejection("I7", f"the first cut of assignment {following.number} lacks {late}")
    if carries and ((lacking := stays(now, waited_for(now), moves)) or _half(now, moves)):
        return Rejection("I7", f"it has a final checkpoint, but lacks {lacking}")
    if late and not may_fall_back(now):
        return Rejection("I7", f"{late} may not fall back")
    if late and (worn := tired(now, late)):
        return Rejection("I7", f"{worn} fell back as often as they may")
    return None


def _half(now: Standing, moves: Moves) -> bool:
    """Whether some targets of the savepoint are reached, and some are not."""
    if now.savepoint is None or not unreached(now, moves):
        return False
    places = now.savepoint.places
    return any(
        name in places and now.regions[name].at_or_beyond(at, places[name]) for name, at in moves.items()
    )


def _founded(now: Standing, name: str, at: Position, moves: Moves) -> bool:
    """Whether what the move builds on in other regions is in the cut, or was before."""
    account = now.regions[name]
    for lineage in account.chain[: account.chain.index(at.lineage) + 1]:
        for parent in _foundations(now, name, lineage):
            other = now.regions[parent.region]
            if other.lives[parent.lineage].floor >= (parent.checkpoint or 0):
                continue
            target = Position(lineage=parent.lineage, checkpoint=parent.checkpoint or 0)
            reached = moves.get(parent.region)
            if reached is None or not other.at_or_beyond(reached, target):
                return False
    return True


def _foundations(now: Standing, name: str, lineage: str) -> list[Parent]:
    """The checkpoints that a lineage builds on; of a parent that it takes nothing of, those of the parent."""
    found: list[Parent] = []
    for parent in now.regions[name].lives[lineage].elsewhere:
        if parent.checkpoint is not None:
            found.append(parent)
            continue
        account = now.regions[parent.region]
        for each in account.chain:
            if each == parent.lineage:
                break
            limit = account.lives[each].limit
            if limit is not None and limit >= 0:
                found.append(Parent(region=parent.region, lineage=each, checkpoint=limit))
            found += _foundations(now, parent.region, each)
        found += _foundations(now, parent.region, parent.lineage)
    return found
