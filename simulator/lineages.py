"""The dumb reading's judgement of an opening: may this lineage add checkpoints to its region?"""

from typing import Final

from sluicegate.events.envelope import Envelope
from sluicegate.events.models import Parent, RegionOpened
from sluicegate.simulator.accounts import Account, Life
from sluicegate.simulator.standing import Standing

REFUSALS: Final = (
    "the region is not in its own assignment",
    "a newer assignment is known",
    "the assignment has other regions",
    "the lineage was replaced",
    "the checkpoint location is older than the table",
    "no such parent",
    "the lineage names no parent",
    "only a new assignment takes other regions over",
    "more than the named checkpoint is decided",
    "the parent ends elsewhere",
    "the named checkpoint is held out",
    "too many assignments have had no full cut yet",
)
"""Why openings are refused."""


def read_opening(now: Standing, offset: int, envelope: Envelope, body: RegionOpened) -> None:
    """Enter an opening, if it is accepted where the standing is."""
    problem = _assignment_problem(now, envelope, body) or _lineage_problem(now, envelope, body)
    now.openings[offset] = problem
    if problem is not None:
        now.saw(f"opening refused: {problem}")
        return
    now.accepted.add(envelope.id)
    account = now.account(envelope.region)
    if account.live == envelope.lineage:
        now.saw("opening: restart")
    else:
        _begin(now, offset, account, envelope, body)
    account.idle = account.closed = account.left = account.removed = False
    account.final = None
    account.joined = body.sink != "independent"
    if now.assignment is None:
        now.assignment = body.assignment
    elif body.assignment.number > (now.next or now.assignment).number:
        now.next = body.assignment
        for back in (now.regions.get(name) for name in body.assignment.regions):
            if back is not None and back.left and not back.closed:
                back.left = back.idle = False


def _begin(now: Standing, offset: int, account: Account, envelope: Envelope, body: RegionOpened) -> None:
    own = next((parent for parent in body.parents if parent.region == envelope.region), None)
    elsewhere = tuple(parent for parent in body.parents if parent.region != envelope.region)
    start: int | None = None
    if own is not None:
        now.saw("opening: rewind")
        start = _end(now, own, None)
    elif elsewhere:
        now.saw("opening: child of other regions")
    elif not account.chain:
        now.saw("opening: first")
    else:
        now.saw("opening: accepted without parents")
        at = account.ref
        now.starts[offset] = (at.lineage, at.checkpoint) if at else (account.chain[0], None)
        lineage, checkpoint = now.starts[offset]
        start = _end(now, Parent(region=envelope.region, lineage=lineage, checkpoint=checkpoint), None)
    for parent in elsewhere:
        other = now.regions[parent.region]
        _end(now, parent, body.assignment.number)
        other.lives[parent.lineage].fixed = True
    account.lives[envelope.lineage] = Life(start, body.assignment.number, elsewhere)
    account.chain.append(envelope.lineage)
    account.accepted.discard(envelope.lineage)
    account.fault = False


def _end(now: Standing, parent: Parent, under: int | None) -> int | None:
    """End a lineage behind the named checkpoint; what came after it, or builds on another end, is void."""
    account, named = now.regions[parent.region], _last(parent)
    life = account.lives[parent.lineage]
    for name, heir in _heirs(now, parent):
        older = under is None or now.regions[name].lives[heir].assignment < under
        if older if name == parent.region else life.limit != named:
            _drop(now.regions[name], heir)
    life.fixed = life.fixed and life.limit == named
    life.limit = named
    return parent.checkpoint


def _drop(account: Account, lineage: str) -> None:
    if lineage in account.chain:
        place = account.chain.index(lineage)
        for void in account.chain[place:]:
            account.lives[void].limit = -1
        account.chain = account.chain[:place]


def _last(parent: Parent) -> int:
    return -1 if parent.checkpoint is None else parent.checkpoint


def _heirs(now: Standing, parent: Parent) -> list[tuple[str, str]]:
    """The lineages that come after a lineage in its region, or build on it from another region."""
    found: list[tuple[str, str]] = []
    for name, account in now.regions.items():
        if name == parent.region and parent.lineage in account.chain:
            found += [(name, each) for each in account.chain[account.chain.index(parent.lineage) + 1 :]]
            continue
        for each in account.chain:
            built_on = [(other.region, other.lineage) for other in account.lives[each].elsewhere]
            if (parent.region, parent.lineage) in built_on:
                found.append((name, each))
    return found


def _outdone(now: Standing, parent: Parent, number: int) -> bool:
    """Whether what builds on a lineage is of older assignments, and not decided."""
    lives = [now.regions[name].lives[heir] for name, heir in _heirs(now, parent)]
    return all(life.assignment < number and life.decided is None for life in lives)


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
    if now.next and wanted.number > now.next.number and len(_pending_assignments(now)) >= most:
        return "too many assignments have had no full cut yet"
    return None


def _lineage_problem(now: Standing, envelope: Envelope, body: RegionOpened) -> str | None:
    account = now.regions.get(envelope.region) or Account()
    if account.live == envelope.lineage:
        ref = account.ref if account.ref and account.ref.lineage == envelope.lineage else None
        older = ref is not None and body.planned is not None and body.planned < ref.checkpoint
        return "the checkpoint location is older than the table" if older else None
    if envelope.lineage in account.lives:
        return "the lineage was replaced"
    own = [parent for parent in body.parents if parent.region == envelope.region]
    if len(own) > 1 or (own and not account.chain):
        return "no such parent"
    if account.chain and not own and envelope.lineage not in account.accepted and _used(account):
        return "the lineage names no parent"
    elsewhere = [parent for parent in body.parents if parent.region != envelope.region]
    held = now.assignment
    if elsewhere and (held is None or body.assignment.number <= held.number):
        return "only a new assignment takes other regions over"
    number = body.assignment.number
    problems = (_wrong(now, parent, number) for parent in [*own, *elsewhere])
    if problem := next((each for each in problems if each), None):
        return problem
    if any(_ended(now, parent) and not _outdone(now, parent, number) for parent in elsewhere):
        return "the parent ends elsewhere"
    return None


def _pending_assignments(now: Standing) -> set[int]:
    """The assignments above the one in force whose lineages are still in a chain."""
    held = now.assignment.number if now.assignment else 0
    lives = [account.lives[name] for account in now.regions.values() for name in account.chain]
    return {life.assignment for life in lives if life.assignment > held and not _hopeless(now, life)}


def _hopeless(now: Standing, life: Life) -> bool:
    """Whether a lineage builds on what is held out, so that it never gets into a cut."""
    held = [(parent, now.regions[parent.region].lives[parent.lineage].held) for parent in life.elsewhere]
    return any(first is not None and _last(parent) >= first for parent, first in held)


def _used(account: Account) -> bool:
    """Whether it has completed anything that counts."""
    return account.ref is not None or any(
        pile.completion is not None or pile.arrived
        for lineage in account.chain
        for pile in account.lives[lineage].open().values()
    )


def _wrong(now: Standing, parent: Parent, number: int) -> str | None:
    """What is wrong with a parent's named checkpoint, for an opening under an assignment of this number."""
    account = now.regions.get(parent.region)
    if account is None or parent.lineage not in account.chain:
        return "no such parent"
    life, named = account.lives[parent.lineage], _last(parent)
    later = account.chain[account.chain.index(parent.lineage) + 1 :]
    if life.floor > named or any(account.lives[name].decided is not None for name in later):
        return "more than the named checkpoint is decided"
    if life.limit is not None and named > life.limit:
        return "the parent ends elsewhere"
    if life.held is not None and named >= life.held:
        return "the named checkpoint is held out"
    if life.fixed and named != life.limit and not _outdone(now, parent, number):
        return "the parent ends elsewhere"
    return None


def _ended(now: Standing, parent: Parent) -> bool:
    """Whether another child has ended it at another checkpoint."""
    return now.regions[parent.region].lives[parent.lineage].limit not in (None, _last(parent))
