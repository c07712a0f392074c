"""The dumb reading's judgement of an opening: may this lineage add checkpoints to its region?"""

from collections.abc import Sequence
from typing import Final

from sluicegate.events.envelope import Envelope
from sluicegate.events.models import Parent, Position, RegionOpened
from sluicegate.simulator.accounts import Account, Life
from sluicegate.simulator.families import Families, Member, last
from sluicegate.simulator.standing import Standing

TOO_DEEP: Final = "too many assignments have had no full cut yet"
REFUSALS: Final = (
    "the region is not in its own assignment",
    "a newer assignment is known",
    "the assignment has other regions",
    "the lineage was replaced",
    "the checkpoint location is older than the table",
    "the checkpoint location has other content",
    "the location that is set back has other content",
    "no such parent",
    "the lineage names no parent",
    "only a new assignment takes other regions over",
    "more than the named checkpoint is decided",
    "the parent ends elsewhere",
    "the named checkpoint is held out",
    "another region goes on from there",
    "others went on from the lineage",
    TOO_DEEP,
)
"""Why openings are refused."""


def read_opening(now: Standing, offset: int, envelope: Envelope, body: RegionOpened) -> None:
    """Enter an opening, if it is accepted where the standing is."""
    problem = problem_of(now, envelope, body)
    now.openings[offset] = problem
    if problem is not None:
        now.saw(f"opening refused: {problem}")
        return
    account = now.account(envelope.region)
    if account.live == envelope.lineage:
        now.saw("opening: restart")
    else:
        _begin(now, offset, account, envelope, body)
    now.accepted[envelope.id] = _start_of(account, envelope.lineage)
    account.lives[envelope.lineage].continued = body.assignment.number
    account.idle = account.closed = account.left = account.removed = False
    account.final = None
    account.joined = body.sink != "independent"
    if body.assignment.number not in now.shared:
        lives = [each.lives[name] for each in now.regions.values() for name in each.chain]
        kept = {life.assignment for life in lives if life.decided is None}
        kept |= {now.assignment.number} if now.assignment else set()
        opened = {name: _opened_last(account) for name, account in now.regions.items()}
        kept |= {
            number
            for number, names in now.shared.items()
            if any(opened.get(name, -1) < number for name in names.intersection(body.assignment.regions))
        }
        now.shared = {number: names for number, names in now.shared.items() if number in kept}
        now.shared[body.assignment.number] = frozenset(body.assignment.regions)
    if now.assignment is None:
        now.assignment = body.assignment
    elif body.assignment.number > (now.next or now.assignment).number:
        now.next = body.assignment
        for back in (now.regions.get(name) for name in body.assignment.regions):
            if back is not None and back.left and not back.closed:
                back.left = back.idle = False


def _start_of(account: Account, lineage: str) -> Position | None:
    """Where a lineage starts, if that is in the log and no decision includes the lineage."""
    place, start = account.chain.index(lineage), account.lives[lineage].start
    if place == 0 or start is None:
        return None
    return Position(lineage=account.chain[place - 1], checkpoint=start)


def _opened_last(account: Account) -> int:
    """Under which assignment a region was opened last; -1 if it never was."""
    return account.lives[account.live].continued if account.live is not None else -1


def problem_of(now: Standing, envelope: Envelope, body: RegionOpened) -> str | None:
    """Why an opening would be refused where the standing is; None if it would be accepted."""
    return _assignment_problem(now, envelope, body) or _lineage_problem(now, envelope, body)


def _begin(now: Standing, offset: int, account: Account, envelope: Envelope, body: RegionOpened) -> None:
    name, number = envelope.region, body.assignment.number
    own = next((parent for parent in body.parents if parent.region == name), None)
    elsewhere = tuple(parent for parent in body.parents if parent.region != name)
    if own is not None:
        now.saw("opening: rewind")
    elif elsewhere:
        now.saw("opening: child of other regions")
    elif not account.chain:
        now.saw("opening: first")
    elif account.ref is None:
        now.saw("opening: begun again before anything was committed")
    else:
        now.saw("opening: accepted without parents")
    if own is None and account.live is not None and not _comes_for_others(account, elsewhere):
        own = _ground(account, name)
        now.starts[offset] = (own.lineage, own.checkpoint)
    for parent in [*([own] if own else []), *elsewhere]:
        families = Families(now)
        for member in families.displaced(parent, name, body.assignment, body.parents):
            families.kill(member)
        ended = now.regions[parent.region]
        ended.lives[parent.lineage].limit = last(parent)
        ended.fault = ended.fault and ended.live != parent.lineage
    account.lives[envelope.lineage] = Life(own.checkpoint if own else None, number, offset, elsewhere)
    account.chain.append(envelope.lineage)
    account.accepted.pop(envelope.lineage, None)
    account.fault = False


def _comes_for_others(account: Account, elsewhere: Sequence[Parent]) -> bool:
    """Whether a region goes on from others' work alone: its own lineage was ended already."""
    ended = account.live is not None and account.lives[account.live].limit is not None
    return bool(elsewhere) and ended


def _ground(account: Account, name: str) -> Parent:
    """What a lineage of a region stands on that does not say so: what is decided."""
    at = account.ref
    lineage, checkpoint = (at.lineage, at.checkpoint) if at else (account.chain[0], None)
    return Parent(region=name, lineage=lineage, checkpoint=checkpoint)


def _assignment_problem(now: Standing, envelope: Envelope, body: RegionOpened) -> str | None:
    wanted, newest = body.assignment, now.next or now.assignment
    if envelope.region not in wanted.regions:
        return "the region is not in its own assignment"
    if newest is None:
        return None
    if wanted.number < newest.number:
        return "a newer assignment is known"
    if wanted.number == newest.number and set(wanted.regions) != set(newest.regions):
        return "the assignment has other regions"
    most = now.policy.max_consecutive_fallbacks if now.policy else 1
    if now.next is None or wanted.number == now.next.number:
        return None
    healthy, stuck = _pending(now)
    if len(healthy) >= most and not stuck & set(now.next.regions):
        return TOO_DEEP
    return None


def _lineage_problem(now: Standing, envelope: Envelope, body: RegionOpened) -> str | None:
    account = now.regions.get(envelope.region) or Account()
    if account.live == envelope.lineage:
        return _restart_problem(account, envelope, body)
    if envelope.lineage in account.lives:
        return "the lineage was replaced"
    own = [parent for parent in body.parents if parent.region == envelope.region]
    elsewhere = [parent for parent in body.parents if parent.region != envelope.region]
    if len(own) > 1 or (own and not account.chain):
        return "no such parent"
    unnamed = account.live is not None and not own and not _comes_for_others(account, elsewhere)
    if unnamed and envelope.lineage in account.accepted:
        if account.accepted[envelope.lineage] != account.ref:
            now.saw("opening: accepted behind what was committed since")
            return "more is committed than when the lineage was accepted"
    elif unnamed and (account.ref or any(account.lives[each].elsewhere for each in account.chain)):
        return _unsaid(now, account, elsewhere, envelope.region, body) or "the lineage names no parent"
    held = now.assignment
    if elsewhere and (held is None or body.assignment.number <= held.number):
        return "only a new assignment takes other regions over"
    if any(parent.lineage not in now.account(parent.region).chain for parent in body.parents):
        return "no such parent"
    problems = (_wrong(now, parent, envelope.region, body) for parent in body.parents)
    problem = next((each for each in problems if each), None)
    if problem or own or account.live is None:
        return problem
    return _unsaid(now, account, elsewhere, envelope.region, body)


def _unsaid(
    now: Standing, account: Account, elsewhere: Sequence[Parent], region: str, body: RegionOpened
) -> str | None:
    """What is wrong with what a lineage stands on without naming it."""
    if not _comes_for_others(account, elsewhere):
        return _wrong_heirs(now, _ground(account, region), region, body)
    live = account.chain[-1]
    limit = account.lives[live].limit
    whole = Parent(region=region, lineage=live, checkpoint=None if limit is None or limit < 0 else limit)
    return "the named checkpoint is held out" if Families(now).is_held_out(whole) else None


def _restart_problem(account: Account, envelope: Envelope, body: RegionOpened) -> str | None:
    ref = account.ref if account.ref and account.ref.lineage == envelope.lineage else None
    if ref is not None and body.planned is not None and body.planned < ref.checkpoint:
        return "the checkpoint location is older than the table"
    if _is_other(account, envelope.lineage, body.planned, body.planned_digest):
        return "the checkpoint location has other content"
    previous = None if body.planned is None else body.planned - 1
    if _is_other(account, envelope.lineage, previous, body.previous_digest):
        return "the checkpoint location has other content"
    if account.lives[envelope.lineage].limit is not None:
        return "others went on from the lineage"
    return None


def _pending(now: Standing) -> tuple[set[int], set[str]]:
    """The assignments that wait for a full cut and may have one; the regions that will not be in one."""
    held, families = now.assignment.number if now.assignment else 0, Families(now)
    healthy: set[int] = set()
    stuck: set[str] = set()
    for name, account in now.regions.items():
        for lineage in account.chain:
            if families.is_hopeless(Member(name, lineage)):
                stuck.add(name)
            elif account.lives[lineage].assignment > held:
                healthy.add(account.lives[lineage].assignment)
    return healthy, stuck


def _is_other(account: Account, lineage: str, checkpoint: int | None, digest: str | None) -> bool:
    """Whether a location has another range for a checkpoint than the log, as far as both are known."""
    pile = account.lives[lineage].open().get(-1 if checkpoint is None else checkpoint)
    known = pile.completion.source_digest if pile is not None and pile.completion is not None else None
    if account.ref is not None and (account.ref.lineage, account.ref.checkpoint) == (lineage, checkpoint):
        known = account.digest
    return None not in (known, digest) and known != digest


def _wrong(now: Standing, parent: Parent, region: str, body: RegionOpened) -> str | None:
    """What is wrong with a parent's named checkpoint, for an opening of a region."""
    account = now.regions[parent.region]
    life, families, number = account.lives[parent.lineage], Families(now), body.assignment.number
    if life.floor > last(parent):
        return "more than the named checkpoint is decided"
    if life.limit is not None and last(parent) > life.limit:
        return "the parent ends elsewhere"
    if families.is_held_out(parent):
        return "the named checkpoint is held out"
    beside = [Member(each.region, each.lineage) for each in body.parents if each != parent]
    if parent.region != region and families.is_behind(Member(parent.region, parent.lineage), beside):
        return "the parent is behind another one"
    if parent.region == region and _is_other(account, parent.lineage, parent.checkpoint, body.parent_digest):
        return "the location that is set back has other content"
    problem = _wrong_heirs(now, parent, region, body)
    if problem is None and parent.region != region and life.limit is None and life.continued >= number:
        return "another region goes on from there"
    return problem


def _wrong_heirs(now: Standing, parent: Parent, region: str, body: RegionOpened) -> str | None:
    """Why those who went on from a parent cannot be made void."""
    families, number = Families(now), body.assignment.number
    members = families.displaced(parent, region, body.assignment, body.parents)
    if any(families.life(member).decided is not None for member in members):
        return "more than the named checkpoint is decided"
    for member in members:
        gone = families.life(member)
        foreign = member.region != region
        if foreign and gone.assignment < number <= gone.continued:
            return "another region goes on from there"
        if foreign and gone.assignment >= number:
            return "the parent ends elsewhere"
        if any(member == Member(named.region, named.lineage) for named in body.parents):
            return "the parent ends elsewhere"
    return None
