"""Openings: which lineage may add checkpoints to a region, and which assignment of regions holds.

An opening is judged at its own offset by the log alone, so that every reader judges alike.
"""

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.state import LineageState, RegionState
from sluicegate.events.envelope import Envelope
from sluicegate.events.models import Parent, Position, RegionOpened, StreamCommand


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
        _begin(book, offset, envelope, start)
    region.bounded = body.bounded
    region.idle = region.closed = region.left = False
    region.final = None
    held = book.state.assignment
    if held is None or body.assignment.number > held.number:
        book.state.assignment = body.assignment
    return None


def obey(book: Book, body: StreamCommand) -> None:
    """Let a lineage without parents start at its next opening, or let the stream go on."""
    if body.command == "resume":
        book.state.blocked = None
    if body.command != "accept" or body.region is None or body.lineage is None:
        return
    region = book.state.regions.setdefault(body.region, RegionState())
    if body.lineage not in region.accepted and body.lineage not in region.lineages:
        region.accepted.append(body.lineage)


def _assignment_problem(book: Book, region: str, body: RegionOpened) -> str | None:
    wanted, held = body.assignment, book.state.assignment
    if region not in wanted.regions:
        return (
            f"region {region} is not in its own assignment {wanted.number} "
            f"({', '.join(sorted(wanted.regions))}); list every region of the stream in the option `regions`"
        )
    if body.sink == "all-to-all" and len(set(wanted.regions)) > 1:
        return (
            "the sink joins all writers by an exchange, so the stream can have one region only; "
            f"assignment {wanted.number} lists {len(set(wanted.regions))}"
        )
    if held is None or wanted.number > held.number:
        return None
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


def _lineage_problem(book: Book, region: RegionState, envelope: Envelope, body: RegionOpened) -> str | None:
    name, lineage = envelope.region, envelope.lineage
    if lineage in region.lineages:
        return (
            f"lineage {lineage} of region {name} was replaced by {region.live}; "
            "start the query from the checkpoint location of the live lineage"
        )
    if not region.chain:
        return f"region {name} has no lineage that could be a parent" if body.parents else None
    if not body.parents:
        if lineage in region.accepted or not book.used(name):
            return None
        return (
            f"region {name} stands at checkpoint {_at(region.ref)}, but lineage {lineage} names no parent: "
            "its checkpoint location was deleted or replaced, and rows may be written twice. Put the old "
            f"location back, or accept it: sluicegate accept --stream {envelope.stream} --region {name} "
            f"--lineage {lineage}"
        )
    if len(body.parents) > 1 or body.parents[0].region != name:
        return f"a lineage of region {name} may have one parent, of the same region"
    return _parent_problem(region, envelope, body.parents[0])


def _parent_problem(region: RegionState, envelope: Envelope, parent: Parent) -> str | None:
    if parent.lineage not in region.chain:
        return f"the parent lineage {parent.lineage} is unknown or was itself replaced"
    passed = region.chain.index(parent.lineage) < len(region.chain) - 1
    decided, limit = region.lineages[parent.lineage].decided, region.lineages[parent.lineage].limit
    named = -1 if parent.checkpoint is None else parent.checkpoint
    later_decided = passed and any(
        region.lineages[name].decided is not None
        for name in region.chain[region.chain.index(parent.lineage) + 1 :]
    )
    if later_decided or (decided is not None and decided > named):
        return (
            f"region {envelope.region} is committed up to {_at(region.ref)}, beyond the named checkpoint "
            f"{parent.checkpoint} of lineage {parent.lineage}; set the query back to the committed one "
            "instead, and name that as the parent"
        )
    if limit is not None and named > limit:
        return f"what lineage {parent.lineage} has beyond checkpoint {limit} is void; name that or earlier"
    return None


def _resume_point(region: RegionState, name: str, body: RegionOpened) -> Parent | None:
    """The parent that holds. An accepted lineage without one starts behind what is decided."""
    if body.parents:
        return body.parents[0]
    if region.ref is not None:
        return Parent(region=name, lineage=region.ref.lineage, checkpoint=region.ref.checkpoint)
    if region.chain:
        return Parent(region=name, lineage=region.chain[0], checkpoint=None)
    return None


def _begin(book: Book, offset: int, envelope: Envelope, parent: Parent | None) -> None:
    """Make the lineage the live one; what its parents have beyond the named checkpoint is void."""
    region, lineage = book.state.regions[envelope.region], envelope.lineage
    lived = LineageState(opened_at=offset)
    if parent is not None:
        lived.start = parent.checkpoint
        keep = region.chain.index(parent.lineage) + 1
        for void in region.chain[keep:]:
            del book.ledgers[envelope.region, void]
            region.lineages[void].limit = -1
        del region.chain[keep:]
        limit = -1 if parent.checkpoint is None else parent.checkpoint
        region.lineages[parent.lineage].limit = limit
        book.ledgers[envelope.region, parent.lineage].cap(limit)
    region.lineages[lineage] = lived
    region.chain.append(lineage)
    region.accepted = [name for name in region.accepted if name != lineage]
    region.fault = None
    book.open_ledger(envelope.region, lineage)


def _at(ref: Position | None) -> str:
    return f"{ref.checkpoint} of lineage {ref.lineage}" if ref else "nothing"
