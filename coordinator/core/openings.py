"""Openings: which lineage may add checkpoints to a region, and which assignment of regions holds.

An opening is judged at its own offset by the log alone, so that every reader judges alike.
"""

from typing import Final

from sluicegate.coordinator.core import refusals
from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.descent import (
    Place,
    ancestors,
    checkpoint_of,
    displaced,
    held_out,
    held_out_before,
    last,
    lived,
    takers,
)
from sluicegate.coordinator.core.state import LineageState, RegionState
from sluicegate.events.envelope import Envelope
from sluicegate.events.models import Assignment, Parent, Position, RegionOpened

_JOINED: Final = {
    "all-to-all": "the sink joins all writers by an exchange",
    "shared-files": "several writers of the sink fill one physical file",
}
MOST_ASSIGNMENTS: Final = 64
"""Of so many older assignments it is known who shares what: a region may never be opened."""


def judge(book: Book, offset: int, envelope: Envelope, body: RegionOpened) -> str | None:
    """Accept an opening into the book, or return why it is refused; a refusal changes nothing."""
    problem = _assignment_problem(book, envelope.region, body)
    if problem:
        return problem
    region = book.state.regions.get(envelope.region) or RegionState()
    if region.live != envelope.lineage:
        problem = _lineage_problem(book, region, envelope, body)
        if problem:
            return problem
        book.state.regions[envelope.region] = region
        _begin(book, offset, envelope, body)
    elif problem := (
        _older_location(region, envelope, body)
        or _other_plan(book, envelope, body)
        or _passed_on(book, region, envelope)
    ):
        return problem
    region.lineages[envelope.lineage].continued = body.assignment.number
    region.bounded = body.bounded
    region.idle = region.closed = region.left = region.removed = False
    region.final = None
    region.owned = region.owned and body.owned
    region.joined = _JOINED.get(body.sink)
    _adopt(book, body.assignment)
    return None


def _older_location(region: RegionState, envelope: Envelope, body: RegionOpened) -> str | None:
    ref, known = region.ref, body.planned
    if known is None or ref is None or ref.lineage != envelope.lineage or known >= ref.checkpoint:
        return None
    return refusals.older_location(envelope.region, ref, known)


def _other_plan(book: Book, envelope: Envelope, body: RegionOpened) -> str | None:
    """Compare what the location has as its newest two checkpoints with what the log has of those numbers."""
    if body.planned is None:
        return None
    digests = ((body.planned, body.planned_digest), (body.planned - 1, body.previous_digest))
    for checkpoint, digest in digests:
        if checkpoint >= 0:
            at = Position(lineage=envelope.lineage, checkpoint=checkpoint)
            if problem := _other_content(book, envelope, at, digest):
                return problem
    return None


def _other_parent(book: Book, envelope: Envelope, parent: Parent, body: RegionOpened) -> str | None:
    """Compare what the location of a rewound query has behind it with what the log has there."""
    if parent.region != envelope.region or parent.checkpoint is None:
        return None
    at = Position(lineage=parent.lineage, checkpoint=parent.checkpoint)
    return _other_content(book, envelope, at, body.parent_digest)


def _other_content(book: Book, envelope: Envelope, at: Position, digest: str | None) -> str | None:
    known = book.source_digest(envelope.region, at)
    if known is None or digest is None or known == digest:
        return None
    region = book.state.regions[envelope.region]
    is_heir = _inherits(region)
    return refusals.other_content(envelope.stream, envelope.region, at, region.ref, is_heir=is_heir)


def _passed_on(book: Book, region: RegionState, envelope: Envelope) -> str | None:
    limit = region.lineages[envelope.lineage].limit
    if limit is None:
        return None
    return refusals.passed_on(envelope, limit, takers(book, Place(envelope.region, envelope.lineage)))


def start_of(book: Book, envelope: Envelope) -> Position | None:
    """The checkpoint of its region that a lineage goes on from; None if none, or if it is decided."""
    region = book.state.regions[envelope.region]
    place, start = region.chain.index(envelope.lineage), region.lineages[envelope.lineage].start
    if place == 0 or start is None:
        return None
    return Position(lineage=region.chain[place - 1], checkpoint=start)


def _adopt(book: Book, wanted: Assignment) -> None:
    """The first assignment is in force at once, a higher one with its first full cut."""
    state = book.state
    if wanted not in state.assignments:
        places = [Place(name, each) for name, region in state.regions.items() for each in region.chain]
        kept = {known.assignment for place in places if (known := lived(book, place)).decided is None}
        kept |= {state.assignment.number} if state.assignment else set()
        kept |= {each.number for each in state.assignments if _is_awaited(book, each, wanted)}
        held = [each for each in state.assignments if each.number in kept]
        state.assignments = [*held[-MOST_ASSIGNMENTS:], wanted]
    if state.assignment is None:
        state.assignment = wanted
    elif wanted.number > (state.next or state.assignment).number:
        state.next = wanted
        for region in (state.regions.get(name) for name in wanted.regions):
            # Gone with an assignment that did not have it, it is waited for again.
            if region is not None and region.left and not region.closed:
                region.left = region.idle = False


def _is_awaited(book: Book, older: Assignment, wanted: Assignment) -> bool:
    """Whether a region of both has not been opened since: it may still go on beside its siblings."""
    regions = [book.state.regions.get(name) for name in older.regions if name in wanted.regions]
    return any(
        region is None or not region.chain or region.lineages[region.chain[-1]].continued < older.number
        for region in regions
    )


def _assignment_problem(book: Book, region: str, body: RegionOpened) -> str | None:
    wanted, held = body.assignment, book.state.next or book.state.assignment
    if region not in wanted.regions:
        return refusals.not_in_its_own(region, wanted)
    if held is None:
        return None
    if wanted.number > held.number:
        return _depth_problem(book, wanted)
    if wanted.number < held.number:
        return refusals.older_assignment(wanted, held)
    if set(wanted.regions) != set(held.regions):
        return refusals.other_regions(wanted, held)
    return None


def _depth_problem(book: Book, wanted: Assignment) -> str | None:
    """Why another assignment must wait: refs are as many of them deep at most as a region may fall back."""
    state = book.state
    if state.assignment is None or state.next is None:
        return None
    places = [Place(name, each) for name, region in state.regions.items() for each in region.chain]
    # What builds on a checkpoint that is held out never gets its full cut, so there is nothing to wait for.
    hopeless = {place for place in places if held_out_before(book, place)}
    opened = {lived(book, place).assignment for place in places if place not in hopeless}
    waiting = {number for number in opened if number > state.assignment.number}
    if any(place.region in state.next.regions for place in hopeless):
        return None
    if len(waiting) < (state.policy.max_consecutive_fallbacks if state.policy else 1):
        return None
    return refusals.too_deep(waiting, state.next, wanted)


def _lineage_problem(book: Book, region: RegionState, envelope: Envelope, body: RegionOpened) -> str | None:
    name, lineage = envelope.region, envelope.lineage
    own = [parent for parent in body.parents if parent.region == name]
    others = [parent for parent in body.parents if parent.region != name]
    if lineage in region.lineages:
        # Of one that was dropped, what it went on from is live again: its location is not.
        return refusals.replaced(name, lineage, None if region.lineages[lineage].dropped else region.live)
    if len(own) > 1:
        return refusals.ONE_OWN_PARENT.format(name)
    if own and not region.chain:
        return refusals.NO_OWN_PARENT.format(name)
    unnamed = bool(region.chain) and not own and not _comes_for_others(region, others)
    if unnamed and lineage in region.accepted_behind:
        # A void moves a region back, so this holds also where nothing is decided any more.
        if region.accepted_behind[lineage] != region.ref:
            return refusals.moved_on(envelope, region.accepted_behind[lineage], region.ref)
    elif unnamed and lineage not in region.accepted and _is_needed(book, name):
        return _unnamed_problem(book, region, name, body) or refusals.no_parent(envelope, region)
    problem = _others_problem(book, others, body)
    found = (_parent_problem(book, envelope, parent, body) for parent in body.parents)
    problem = problem or next((each for each in found if each), None)
    return problem or (None if own or not region.chain else _unnamed_problem(book, region, name, body))


def _unnamed_problem(book: Book, region: RegionState, name: str, body: RegionOpened) -> str | None:
    """Why a lineage cannot go on from what there is of its region, which it does not name."""
    parent = _resume_point(region, name, body)
    if parent is not None:
        return _displacement_problem(book, name, parent, body)
    live = region.chain[-1]
    ended = Parent(region=name, lineage=live, checkpoint=checkpoint_of(region.lineages[live].limit))
    held = held_out(book, ended)
    return refusals.held_out(ended, held) if held else None


def _comes_for_others(region: RegionState, others: list[Parent]) -> bool:
    """Return whether a region goes on from others' work alone: others have ended its own lineage."""
    return bool(others) and region.lineages[region.chain[-1]].limit is not None


def _is_needed(book: Book, name: str) -> bool:
    """Return whether a region must say which of its own checkpoints it goes on from.

    Not before anything of it is decided: what it has completed is void then, so that nothing comes twice.
    """
    region = book.state.regions[name]
    # What builds on others' checkpoints would read anew what those have in the table.
    return region.ref is not None or _inherits(region)


def _inherits(region: RegionState) -> bool:
    """Return whether a region goes on from the checkpoints of others."""
    return any(region.lineages[each].parents for each in region.chain)


def _others_problem(book: Book, others: list[Parent], body: RegionOpened) -> str | None:
    """Why the work of other regions cannot be taken over, if so."""
    held = book.state.assignment
    if others and (held is None or body.assignment.number <= held.number):
        return refusals.ONLY_ANEW.format(others[0].region)
    for parent in body.parents:
        region = book.state.regions.get(parent.region)
        if region is None or parent.lineage not in region.chain:
            return refusals.no_such_parent(parent, region)
    return None


def _parent_problem(book: Book, envelope: Envelope, parent: Parent, body: RegionOpened) -> str | None:
    region, named = book.state.regions[parent.region], last(parent)
    known = lived(book, Place.of(parent))
    if known.decided is not None and known.decided > named:
        return refusals.beyond(parent, parent.region, region.ref)
    if known.limit is not None and named > known.limit:
        return refusals.is_void(parent, known.limit)
    if held := held_out(book, parent):
        return refusals.held_out(parent, held)
    others = [Place.of(each) for each in body.parents if each != parent]
    if parent.region != envelope.region and Place.of(parent) in ancestors(book, others):
        return refusals.behind_another(parent)
    if problem := _other_parent(book, envelope, parent, body):
        return problem
    return _displacement_problem(book, envelope.region, parent, body)


def _displacement_problem(book: Book, name: str, parent: Parent, body: RegionOpened) -> str | None:
    """Why what went on from the parent cannot be made void, if so."""
    number, parents = body.assignment.number, [Place.of(each) for each in body.parents]
    places = displaced(book, parent, name, body.assignment, parents)
    for place in places:
        if lived(book, place).decided is not None:
            return refusals.beyond(parent, place.region, book.state.regions[place.region].ref)
    for place in places:
        known = lived(book, place)
        if place.region != name and known.assignment < number <= known.continued:
            return refusals.goes_on(place)
        if (place.region != name and known.assignment >= number) or place in parents:
            return refusals.ended_elsewhere(parent, lived(book, Place.of(parent)).limit)
    known = lived(book, Place.of(parent))
    if parent.region != name and known.limit is None and known.continued >= number:
        return refusals.goes_on(Place.of(parent))
    return None


def _resume_point(region: RegionState, name: str, body: RegionOpened) -> Parent | None:
    """The parent that holds. An accepted lineage without one starts behind what is decided."""
    own = [parent for parent in body.parents if parent.region == name]
    if own or not region.chain:
        return own[0] if own else None
    if body.parents and region.lineages[region.chain[-1]].limit is not None:
        return None
    if region.ref is not None:
        return Parent(region=name, lineage=region.ref.lineage, checkpoint=region.ref.checkpoint)
    return Parent(region=name, lineage=region.chain[0], checkpoint=None)


def _begin(book: Book, offset: int, envelope: Envelope, body: RegionOpened) -> None:
    """Make the lineage the live one; what its parents have beyond the named checkpoint is void."""
    name, region = envelope.region, book.state.regions[envelope.region]
    others = [each for each in body.parents if each.region != name]
    number, own = body.assignment.number, _resume_point(region, name, body)
    begun = LineageState(opened_at=offset, assignment=number, parents=others)
    if own is not None:
        begun.start = own.checkpoint
    for parent in (*([own] if own else []), *others):
        _drop(book, displaced(book, parent, name, body.assignment, map(Place.of, body.parents)))
        lived(book, Place.of(parent)).limit = last(parent)
        book.ledgers[parent.region, parent.lineage].cap(last(parent))
        ended = book.state.regions[parent.region]
        if ended.live == parent.lineage:
            # What it stalls for is beyond the named checkpoint, or nobody could go on from that.
            ended.fault = None
    region.lineages[envelope.lineage] = begun
    region.chain.append(envelope.lineage)
    region.accepted = [each for each in region.accepted if each != envelope.lineage]
    region.accepted_behind.pop(envelope.lineage, None)
    region.fault = None
    book.open_ledger(name, envelope.lineage)


def _drop(book: Book, places: list[Place]) -> None:
    """Make lineages void, unless they are decided."""
    for name, lineage in places:
        region = book.state.regions[name]
        known = region.lineages[lineage]
        if lineage in region.chain and known.decided is None:
            region.chain.remove(lineage)
            known.limit, known.dropped = -1, True
            del book.ledgers[name, lineage]
