"""Openings: which lineage may add checkpoints to a region, and which assignment of regions holds.

An opening is judged at its own offset by the log alone, so that every reader judges alike.
"""

from typing import Final

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.state import LineageState, Order, RegionState, Savepoint
from sluicegate.events.envelope import Envelope
from sluicegate.events.models import Assignment, Parent, Position, RegionOpened, StreamCommand

_JOINED: Final = {
    "all-to-all": "the sink joins all writers by an exchange",
    "shared-files": "several writers of the sink fill one physical file",
}


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
        start = _resume_point(region, envelope.region, body)
        book.state.regions[envelope.region] = region
        _begin(book, offset, envelope, body, start)
    elif (problem := _older_location(region, envelope, body)) is not None:
        return problem
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
    return (
        f"region {envelope.region} is committed up to checkpoint {ref.checkpoint}, but its checkpoint "
        f"location knows batches up to {known} only: it was restored from a backup, or partly deleted. Rows "
        "that it numbers anew would be taken for those in the table. Put the newer location back, or begin a "
        "new query in an empty one and accept it: sluicegate accept"
    )


def _adopt(book: Book, wanted: Assignment) -> None:
    """The first assignment is in force at once, a higher one with its first full cut."""
    state = book.state
    if state.assignment is None:
        state.assignment = wanted
    elif wanted.number > (state.next or state.assignment).number:
        state.next = wanted
        for region in (state.regions.get(name) for name in wanted.regions):
            # Gone with an assignment that did not have it, it is waited for again.
            if region is not None and region.left and not region.closed:
                region.left = region.idle = False


def obey(book: Book, stream: str, body: StreamCommand) -> None:
    """Do what an operator orders; what does not apply any more changes nothing."""
    state = book.state
    match body.command:
        case "resume":
            state.blocked = None
        case "pause":
            state.blocked = f"an operator paused the stream; go on with: sluicegate resume --stream {stream}"
        case "remove" if body.region is not None:
            book.region(body.region).removed = True
        case "accept" if body.region is not None and body.lineage is not None:
            region = book.region(body.region)
            if body.lineage not in region.accepted and body.lineage not in region.lineages:
                region.accepted.append(body.lineage)
        case "void" if state.pending and state.pending[-1].id == body.decision:
            if body.region is not None and body.checkpoint is not None:
                state.pending[-1].void = (body.region, body.checkpoint)
        case "savepoint" | "drain" if body.name is not None:
            _save(book, body.name, drain=body.command == "drain")


def _save(book: Book, name: str, *, drain: bool) -> None:
    """Aim at the last completed checkpoint of every region."""
    targets: dict[str, Position] = {}
    for each in (book.state.next or book.state.assignment or Assignment(number=0, regions=())).regions:
        region = book.region(each)
        if region.live is None:
            continue
        last = book.ledgers[each, region.live].last_completed()
        if last is not None:
            targets[each] = Position(lineage=region.live, checkpoint=last)
        elif (at := book.frontier(each)) is not None:
            targets[each] = at
        if drain and not region.left:
            region.closed = True
            decided = region.lineages[region.live].decided
            region.final = last if last is not None else decided
            book.leave(region)
    order, state = Order(name=name, drain=drain), book.state
    if targets or state.savepoint:
        state.savepoint = (state.savepoint or Savepoint()).joined_by(order, targets)
    elif state.pending:
        pending = state.pending[-1]
        pending.savepoint = (pending.savepoint or Savepoint()).joined_by(order, {})
    else:
        book.taken.append(order)


def _assignment_problem(book: Book, region: str, body: RegionOpened) -> str | None:
    wanted, held = body.assignment, book.state.next or book.state.assignment
    if region not in wanted.regions:
        return (
            f"region {region} is not in its own assignment {wanted.number} "
            f"({', '.join(sorted(wanted.regions))}); list every region of the stream in the option `regions`"
        )
    if held is None:
        return None
    if wanted.number > held.number:
        return _depth_problem(book, wanted)
    if wanted.number < held.number:
        return (
            f"assignment {wanted.number} is older than the stream's assignment {held.number}; "
            f"start the job with assignment {held.number} or a higher number"
        )
    if set(wanted.regions) != set(held.regions):
        return (
            f"assignment {wanted.number} was opened with the regions {', '.join(sorted(held.regions))}, "
            f"not {', '.join(sorted(wanted.regions))}; raise the assignment's number to change the regions"
        )
    return None


def _depth_problem(book: Book, wanted: Assignment) -> str | None:
    """Why another assignment must wait: refs are as many of them deep at most as a region may fall back."""
    state = book.state
    if state.assignment is None or state.next is None:
        return None
    lineages = [region.lineages[name] for region in state.regions.values() for name in region.chain]
    # What builds on a checkpoint that is held out never gets its full cut, so there is nothing to wait for.
    alive = [lived for lived in lineages if not any(_is_held_out(book, parent) for parent in lived.parents)]
    waiting = {lived.assignment for lived in alive if lived.assignment > state.assignment.number}
    if len(waiting) < (state.policy.max_consecutive_fallbacks if state.policy else 1):
        return None
    return (
        f"assignments {', '.join(map(str, sorted(waiting)))} have had no full cut yet; start the job with "
        f"assignment {state.next.number}, and let one be committed before assignment {wanted.number}"
    )


def _is_held_out(book: Book, parent: Parent) -> bool:
    held = book.state.regions[parent.region].lineages[parent.lineage].held
    return held is not None and _last(parent) >= held


def _lineage_problem(book: Book, region: RegionState, envelope: Envelope, body: RegionOpened) -> str | None:
    name, lineage = envelope.region, envelope.lineage
    own = [parent for parent in body.parents if parent.region == name]
    others = [parent for parent in body.parents if parent.region != name]
    if lineage in region.lineages:
        return (
            f"lineage {lineage} of region {name} was replaced by {region.live}; "
            "start the query from the checkpoint location of the live lineage"
        )
    if len(own) > 1:
        return f"a lineage of region {name} may have one parent of the same region"
    if own and not region.chain:
        return f"region {name} has no lineage that could be a parent"
    if region.chain and not own and lineage not in region.accepted and book.used(name):
        return (
            f"region {name} stands at checkpoint {_at(region.ref)}, but lineage {lineage} names no parent: "
            "its checkpoint location was deleted or replaced, and rows may be written twice. Put the old "
            f"location back, or accept it: sluicegate accept --stream {envelope.stream} --region {name} "
            f"--lineage {lineage}"
        )
    problem = _parent_problem(book, region, own[0], body) if own else None
    return problem or _others_problem(book, others, body)


def _others_problem(book: Book, others: list[Parent], body: RegionOpened) -> str | None:
    """Why the work of other regions cannot be taken over, if so."""
    held = book.state.assignment
    if others and (held is None or body.assignment.number <= held.number):
        return (
            f"the parent {others[0].region} is another region, which only a new assignment can take over; "
            "raise the assignment's number"
        )
    for parent in others:
        region = book.state.regions.get(parent.region)
        if region is None or not region.chain:
            return f"the parent region {parent.region} is unknown"
        if problem := _parent_problem(book, region, parent, body):
            return problem
        limit = region.lineages[parent.lineage].limit
        if limit not in (None, _last(parent)) and not _are_older(book, parent, body.assignment.number):
            return _named_otherwise(parent)
    return None


def _last(parent: Parent) -> int:
    return -1 if parent.checkpoint is None else parent.checkpoint


def _heirs(book: Book, parent: Parent) -> list[tuple[str, str]]:
    """The undecided lineages of any region that build on this parent's lineage."""
    found: list[tuple[str, str]] = []
    for name, region in book.state.regions.items():
        after = name == parent.region and parent.lineage in region.chain
        first = region.chain.index(parent.lineage) + 1 if after else 0
        for place, lineage in enumerate(region.chain):
            named = [(each.region, each.lineage) for each in region.lineages[lineage].parents]
            if (after and place >= first) or (parent.region, parent.lineage) in named:
                found.append((name, lineage))
    return found


def _are_older(book: Book, parent: Parent, number: int) -> bool:
    """Whether all that builds on the parent was opened under older assignments, and nothing is decided."""
    lived = [book.state.regions[name].lineages[lineage] for name, lineage in _heirs(book, parent)]
    return all(heir.assignment < number and heir.decided is None for heir in lived)


def _named_otherwise(parent: Parent) -> str:
    return (
        f"lineage {parent.lineage} of region {parent.region} was ended elsewhere than at {parent.checkpoint} "
        "by an opening of this assignment; name the same checkpoint, or raise the assignment's number"
    )


def _parent_problem(book: Book, region: RegionState, parent: Parent, body: RegionOpened) -> str | None:
    if parent.lineage not in region.chain:
        return f"the parent lineage {parent.lineage} is unknown or was itself replaced"
    passed = region.chain.index(parent.lineage) < len(region.chain) - 1
    lived = region.lineages[parent.lineage]
    decided, limit = lived.decided, lived.limit
    name, named = parent.region, _last(parent)
    later_decided = passed and any(
        region.lineages[later].decided is not None
        for later in region.chain[region.chain.index(parent.lineage) + 1 :]
    )
    if later_decided or (decided is not None and decided > named):
        return (
            f"region {name} is committed up to {_at(region.ref)}, beyond the named checkpoint "
            f"{parent.checkpoint} of lineage {parent.lineage}; set the query back to the committed one "
            "instead, and name that as the parent"
        )
    if limit is not None and named > limit:
        return f"what lineage {parent.lineage} has beyond checkpoint {limit} is void; name that or earlier"
    if _is_held_out(book, parent):
        return (
            f"checkpoint {lived.held} of lineage {parent.lineage} of region {name} is held out of all "
            "commits; name one before it, best the committed one, as the parent"
        )
    if lived.fixed and named != limit:
        return None if _are_older(book, parent, body.assignment.number) else _named_otherwise(parent)
    return None


def _resume_point(region: RegionState, name: str, body: RegionOpened) -> Parent | None:
    """The parent that holds. An accepted lineage without one starts behind what is decided."""
    own = [parent for parent in body.parents if parent.region == name]
    if body.parents:
        return own[0] if own else None
    if region.ref is not None:
        return Parent(region=name, lineage=region.ref.lineage, checkpoint=region.ref.checkpoint)
    if region.chain:
        return Parent(region=name, lineage=region.chain[0], checkpoint=None)
    return None


def _begin(book: Book, offset: int, envelope: Envelope, body: RegionOpened, parent: Parent | None) -> None:
    """Make the lineage the live one; what its parents have beyond the named checkpoint is void."""
    region, lineage = book.state.regions[envelope.region], envelope.lineage
    others = [each for each in body.parents if each.region != envelope.region]
    lived = LineageState(opened_at=offset, assignment=body.assignment.number, parents=others)
    if parent is not None:
        lived.start = parent.checkpoint
        _end(book, parent)
    for other in others:
        _end(book, other, before=body.assignment.number)
        book.state.regions[other.region].lineages[other.lineage].fixed = True
    region.lineages[lineage] = lived
    region.chain.append(lineage)
    region.accepted = [name for name in region.accepted if name != lineage]
    region.fault = None
    book.open_ledger(envelope.region, lineage)


def _end(book: Book, parent: Parent, before: int | None = None) -> None:
    """End a parent at the named checkpoint.

    Void are the lineages after it (those of older assignments only, with `before`), and all that builds on
    another end of it.
    """
    region, limit = book.state.regions[parent.region], _last(parent)
    lived = region.lineages[parent.lineage]
    for name, heir in _heirs(book, parent):
        after = name == parent.region
        older = before is None or book.state.regions[name].lineages[heir].assignment < before
        if older if after else limit != lived.limit:
            _drop(book, name, heir)
    lived.fixed = lived.fixed and limit == lived.limit
    lived.limit = limit
    book.ledgers[parent.region, parent.lineage].cap(limit)


def _drop(book: Book, name: str, lineage: str) -> None:
    """Make a lineage and those after it void."""
    region = book.state.regions[name]
    if lineage not in region.chain:
        return
    first = region.chain.index(lineage)
    for void in region.chain[first:]:
        del book.ledgers[name, void]
        region.lineages[void].limit = -1
    del region.chain[first:]


def _at(ref: Position | None) -> str:
    return f"{ref.checkpoint} of lineage {ref.lineage}" if ref else "nothing"
