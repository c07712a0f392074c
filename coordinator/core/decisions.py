"""What a decision includes, and what it makes of the book; how a void takes that back."""

import hashlib
import json
from collections.abc import Mapping

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.ledger import Checkpoint
from sluicegate.coordinator.core.owing import active, exhausted, expected, owing, unreached
from sluicegate.coordinator.core.state import Before, Decision, LineageState, RegionState, Savepoint
from sluicegate.events.models import CutDecided, CutVoided, Position

Included = tuple[str, str, int, Checkpoint]
"""Region, lineage, checkpoint number, and what arrived of it."""


def included(book: Book, moves: Mapping[str, Position]) -> list[Included]:
    """The checkpoints between the last decided cut and the moves, in a fixed order."""
    found: list[Included] = []
    for name in sorted(moves):
        for lineage, number, entry in book.sealed(name):
            found.append((name, lineage, number, entry))
            if Position(lineage=lineage, checkpoint=number) == moves[name]:
                break
    return found


def completions_digest(content: list[Included]) -> str:
    """Digest of the completions of a commit: which events of which source ranges it includes."""
    digest = hashlib.sha256()
    for region, lineage, number, entry in content:
        if entry.completion is None:
            raise ValueError(f"checkpoint {number} of {region} is not sealed")
        body = entry.completion.body
        line = [region, lineage, number, body.source_digest, sorted(body.events)]
        digest.update(json.dumps(line, separators=(",", ":")).encode())
    return digest.hexdigest()


def decision_digest(stream: str, body: CutDecided) -> str:
    """The digest that the table keeps with the commit: canonical JSON of stream, id, cut and completions."""
    content = {
        "stream": stream,
        "id": body.decision,
        "cut": {name: [at.lineage, at.checkpoint] for name, at in body.cut.items()},
        "completions": body.completions,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def void_digest(digest: str) -> str:
    """The digest of the empty commit that takes the place of a decision."""
    return hashlib.sha256(f"void {digest}".encode()).hexdigest()


def take(book: Book, offset: int, body: CutDecided) -> Decision:
    """Enter a valid decision: the regions move to the cut, and what it includes leaves the ledgers."""
    state = book.state
    moves = {name: at for name, at in body.cut.items() if at != state.regions[name].ref}
    content = included(book, moves)
    parts = [part for *_, entry in content for part in entry.named()]
    late = owing(book, expected(book), moves)
    before = Before(
        regions={name: _copy(region) for name, region in state.regions.items()},
        assignment=state.assignment,
        next=state.next,
        savepoint=state.savepoint,
        watermark=state.watermark,
    )
    decision = Decision(
        id=body.decision,
        digest=decision_digest(book.stream, body),
        offset=offset,
        cut=body.cut,
        fallbacks={name: state.regions[name].ref if name in state.regions else None for name in late},
        forced=not late and bool(exhausted(book, expected(book))),
        final=body.final,
        watermark=None,
        parts=[part.offset for part in parts],
        files=sum(part.files for part in parts),
        last_time=max((entry.last_time for *_, entry in content), default=0),
        first_offset=min((entry.first_offset for *_, entry in content), default=offset),
        before=before,
    )
    _count(book, late, moves)
    if state.next is not None and not owing(book, state.next.regions, moves):
        _put_in_force(book)
    if state.savepoint is not None and not late and not unreached(book, moves):
        decision.savepoint, state.savepoint = state.savepoint, None
    counted = active(book, moves)
    _move(book, moves, content)
    state.watermark = decision.watermark = _watermark(book, counted)
    decision.listeners = {
        name: region.listeners for name, region in state.regions.items() if region.listeners
    }
    state.decided = decision.id
    state.attempt = 0
    state.pending.append(decision)
    return decision


def abandon(book: Book, time: int) -> None:
    """Give a forced full cut up: everybody may fall back again."""
    for region in book.state.regions.values():
        region.fallbacks = 0
    book.state.attempt += 1
    book.state.abandoned_at = time


def void(book: Book, body: CutVoided) -> str | None:
    """Take back the last decision, and hold the named checkpoint out; returns why not, if so."""
    state = book.state
    decision = state.pending[-1] if state.pending else None
    if decision is None or decision.id != body.decision or decision.before is None:
        return f"decision {body.decision} is not pending"
    before = decision.before
    chains = {name: book.chain_before(name) for name in state.regions}
    state.pending.pop()
    book.put_back()
    for name, region in state.regions.items():
        was = before.regions.get(name) or RegionState()
        region.chain = chains[name]
        for field in ("ref", "ref_digest", "watermark", "listeners", "fallbacks"):
            setattr(region, field, getattr(was, field))
        # What an opening has said of these since, it has said beside the decision.
        region.owned, region.left = region.owned and was.owned, region.left and was.left
        for lineage, lived in was.lineages.items():
            region.lineages[lineage].decided = lived.decided
            region.lineages[lineage].watermark = lived.watermark
            region.lineages[lineage].highest = lived.highest
        book.leave(region)
    if state.next is None or (before.next and state.next.number <= before.next.number):
        state.next = before.next
    state.assignment = before.assignment
    _restore_savepoint(book, decision)
    state.watermark = before.watermark
    state.committed = decision.id
    book.hold_out(body)
    return None


def _restore_savepoint(book: Book, decision: Decision) -> None:
    """Put back what the decision would have answered; what was asked for since is answered with it."""
    state, before = book.state, decision.before
    asked = [*(decision.savepoint.orders if decision.savepoint else ())]
    asked += [*(state.savepoint.orders if state.savepoint else ())]
    targets = {**(before.savepoint.targets if before and before.savepoint else {})}
    targets |= state.savepoint.targets if state.savepoint else {}
    state.savepoint = Savepoint(orders=asked, targets=targets) if asked else None


def _copy(region: RegionState) -> RegionState:
    lineages = {name: lived.model_copy() for name, lived in region.lineages.items()}
    lists = {"chain": list(region.chain), "accepted": list(region.accepted)}
    behind = dict(region.accepted_behind)
    return region.model_copy(update={"lineages": lineages, **lists, "accepted_behind": behind})


def _count(book: Book, late: list[str], moves: Mapping[str, Position]) -> None:
    regions = book.state.regions
    for name in late:
        book.region(name).fallbacks += 1
    for name in moves:
        regions[name].fallbacks = 0
    if not late:
        for region in regions.values():
            region.owned = True


def _put_in_force(book: Book) -> None:
    """Let the new assignment hold: the regions that it does not have are gone for ever."""
    state = book.state
    state.assignment, state.next = state.next, None
    for name, region in state.regions.items():
        if state.assignment is not None and name not in state.assignment.regions:
            region.left = True


def _move(book: Book, moves: Mapping[str, Position], content: list[Included]) -> None:
    heirs: dict[str, LineageState] = {}
    for name, lineage, number, entry in content:
        region = book.state.regions[name]
        lived = region.lineages[lineage]
        if lived.decided is None and lived.parents:
            heirs[name] = lived
        lived.decided = number
        if entry.completion is None:
            continue
        said = entry.completion.body
        region.ref_digest = said.source_digest
        if said.watermark is not None:
            # Each batch carries its own maximum, which late data lowers; a new lineage begins with its own.
            lived.highest = max(said.watermark, said.watermark if lived.highest is None else lived.highest)
            region.watermark = lived.highest
            heirs.pop(name, None)
        lived.watermark = region.watermark
        if said.listeners:
            region.listeners = {**region.listeners, **said.listeners}
    for name, heir in sorted(heirs.items(), key=lambda each: each[1].opened_at):
        _inherit(book, name, heir)
    for earlier in book.state.pending:
        earlier.before = None
    book.settle(moves, moves)
    for name, position in moves.items():
        region = book.state.regions[name]
        del region.chain[: region.chain.index(position.lineage)]
        region.ref = position
        book.leave(region)


def _inherit(book: Book, name: str, heir: LineageState) -> None:
    """What took over the work of others, and has said no watermark yet, is as far as the last of them."""
    regions = book.state.regions
    marks = [regions[parent.region].lineages[parent.lineage].watermark for parent in heir.parents]
    if regions[name].ref is not None:
        marks.append(regions[name].watermark)
    known = [mark for mark in marks if mark is not None]
    heir.watermark = regions[name].watermark = min(known) if len(known) == len(marks) else None


def _watermark(book: Book, names: list[str]) -> int | None:
    """The previous one, or the minimum over these regions at their refs, if later."""
    state = book.state
    known = [at for name in names if (at := book.region(name).watermark) is not None]
    if not names or len(known) < len(names):
        return state.watermark
    lowest = min(known)
    return lowest if state.watermark is None else max(state.watermark, lowest)
