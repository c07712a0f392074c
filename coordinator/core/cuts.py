"""Cuts: choosing one, judging one at its own offset, and what a decision makes of the book.

A commit's content is a function of the log up to its decision, and of nothing else.
"""

import hashlib
import json
from collections.abc import Container, Mapping

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.ledger import Checkpoint
from sluicegate.coordinator.core.state import Decision
from sluicegate.events.models import CutDecided, Position

Included = tuple[str, str, int, Checkpoint]
"""Region, lineage, checkpoint number, and what arrived of it."""


def choose(book: Book, barred: Container[str] = ()) -> CutDecided | None:
    """The next cut: every region as far as it is sealed; None while an active region cannot move.

    A barred region has files that the table would not take; it does not move.
    """
    if book.state.assignment is None or book.state.policy is None:
        return None
    moves = {
        name: position
        for name, region in book.state.regions.items()
        if region.fault is None and name not in barred and (position := book.frontier(name)) is not None
    }
    if not moves or not is_full(book, moves):
        return None
    return CutDecided(
        decision=book.state.decided + 1,
        cut=_vector(book, moves),
        final=_carries_final(book, moves),
        completions=completions_digest(included(book, moves)),
    )


def is_full(book: Book, moves: Mapping[str, Position]) -> bool:
    """Whether every active region moves."""
    return all(name in moves for name in book.active())


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


def refusal(book: Book, body: CutDecided) -> str | None:
    """Why a decision is void at the offset that the book has reached; None if it is valid."""
    state = book.state
    if body.decision != state.decided + 1:
        return f"decision {body.decision} does not follow {state.decided}"
    moves: dict[str, Position] = {}
    for name, position in body.cut.items():
        region = state.regions.get(name)
        if region is None:
            return f"region {name} was never opened"
        if position == region.ref:
            continue
        if region.fault is not None:
            return f"region {name} is stalled"
        if not any(
            (at, number) == (position.lineage, position.checkpoint) for at, number, _ in book.sealed(name)
        ):
            return f"checkpoint {position.checkpoint} of region {name} is not sealed beyond its ref"
        moves[name] = position
    if not moves:
        return "no region moves"
    if body.cut != _vector(book, moves):
        return "the cut leaves out a region"
    if not is_full(book, moves):
        return "the cut is not full"
    if body.final != _carries_final(book, moves):
        return "the final mark is wrong"
    if body.completions != completions_digest(included(book, moves)):
        return "the digest of the completions differs"
    return None


def take(book: Book, offset: int, body: CutDecided) -> Decision:
    """Enter a valid decision: the regions move to the cut, and what it includes leaves the ledger."""
    state = book.state
    moves = {name: at for name, at in body.cut.items() if at != state.regions[name].ref}
    content = included(book, moves)
    parts = [part for *_, entry in content for part in entry.named()]
    decision = Decision(
        id=body.decision,
        digest=decision_digest(book.stream, body),
        offset=offset,
        cut=body.cut,
        final=body.final,
        watermark=_watermark(book, content),
        parts=[part.offset for part in parts],
        files=sum(part.files for part in parts),
        last_time=max((entry.last_time for *_, entry in content), default=0),
        first_offset=min((entry.first_offset for *_, entry in content), default=offset),
    )
    for name, position in moves.items():
        _move(book, name, position, content)
    state.decided = decision.id
    state.watermark = decision.watermark
    state.pending.append(decision)
    return decision


def _move(book: Book, name: str, position: Position, content: list[Included]) -> None:
    region = book.state.regions[name]
    for at, lineage, number, entry in content:
        if at != name or entry.completion is None:
            continue
        region.lineages[lineage].decided = number
        region.ref_digest = entry.completion.body.source_digest
        if entry.completion.body.watermark is not None:
            region.watermark = entry.completion.body.watermark
    reached = region.chain.index(position.lineage)
    for passed in region.chain[:reached]:
        del book.ledgers[name, passed]
    del region.chain[:reached]
    book.ledgers[name, position.lineage].decide(position.checkpoint)
    region.ref = position
    book.leave(region)


def _vector(book: Book, moves: Mapping[str, Position]) -> dict[str, Position]:
    """The whole cut: the moves, and the refs of the regions that stay."""
    stay = {name: region.ref for name, region in book.state.regions.items() if region.ref is not None}
    return dict(sorted({**stay, **moves}.items()))


def _carries_final(book: Book, moves: Mapping[str, Position]) -> bool:
    regions = book.state.regions
    return any(
        regions[name].closed
        and at.lineage == regions[name].live
        and regions[name].final is not None
        and at.checkpoint >= (regions[name].final or 0)
        for name, at in moves.items()
    )


def _watermark(book: Book, content: list[Included]) -> int | None:
    """The previous one, or the minimum over the active regions at their component of the cut, if later."""
    state = book.state
    at: dict[str, int | None] = {name: region.watermark for name, region in state.regions.items()}
    for name, _, _, entry in content:
        if entry.completion is not None and entry.completion.body.watermark is not None:
            at[name] = entry.completion.body.watermark
    counted = [at.get(name) for name in book.active()]
    known = [value for value in counted if value is not None]
    if not counted or len(known) < len(counted):
        return state.watermark
    lowest = min(known)
    return lowest if state.watermark is None else max(state.watermark, lowest)
