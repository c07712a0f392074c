"""Carrying: what is pending for long is appended again, so that the log's retention never overtakes it.

A checkpoint is carried whole or not at all: copies of its events, then a mark. The copies are duplicates,
found by their ids; with the mark, readers take them in place of the originals. A reader that begins behind
the originals finds the same in the copies.
"""

from collections.abc import Iterator
from typing import Final

from sluicegate.coordinator.core.book import DUPLICATE, REPLAYED, SETTLED, UNOPENED, Book
from sluicegate.coordinator.core.effects import Carry
from sluicegate.coordinator.core.ledger import Checkpoint, Completion, Copy, LineageLedger, Part
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Body, CheckpointCompleted

NOT_WHOLE: Final = "it was not carried whole"
UNEXPECTED: Final = "nothing of this type is carried"
_COMPLETION: Final = ""


def next_carry(book: Book, before: int) -> Carry | None:
    """The oldest checkpoint of which a record was appended before that time, in milliseconds."""
    found = min(_stored(book), key=lambda each: each[3].stored_at, default=None)
    if found is None or found[3].stored_at >= before:
        return None
    region, lineage, number, entry = found
    offsets = [part.offset for part in _needed(entry).values()]
    if entry.completion is not None:
        offsets.append(entry.completion.offset)
    return Carry(region, lineage, number, tuple(offsets))


def copied(book: Book, offset: int, time: int, envelope: Envelope, body: Body | None) -> str | None:
    """Enter a copy; it is news only to who begins to read behind its original."""
    origin, ledger = envelope.origin, book.ledger_of(offset, envelope)
    if ledger is None or origin is None:
        return UNOPENED
    known = envelope.checkpoint in ledger.checkpoints
    entry = ledger.open_checkpoint(envelope.checkpoint, offset, origin.time)
    if entry is None:
        return SETTLED
    if not known:
        entry.stored_at = time
    if envelope.type is EventType.FILES_WRITTEN:
        entry.copies[envelope.id] = Copy(offset, time)
        return _part(ledger, entry, offset, envelope)
    if not isinstance(body, CheckpointCompleted):
        return UNEXPECTED
    entry.copies[_COMPLETION] = Copy(offset, time)
    if entry.completion is not None:
        return REPLAYED
    ledger.complete(envelope.checkpoint, entry, Completion(offset, origin.time, body))
    return None


def _part(ledger: LineageLedger, entry: Checkpoint, offset: int, envelope: Envelope) -> str | None:
    if envelope.id in entry.parts:
        return DUPLICATE
    entry.parts[envelope.id] = Part(offset, envelope.files)
    if envelope.origin is not None:
        entry.last_time = envelope.origin.time
    if envelope.id in entry.missing:
        entry.missing.discard(envelope.id)
        if not entry.missing:
            ledger.advance(entry.last_time)
    return None


def carried(book: Book, offset: int, envelope: Envelope) -> str | None:
    """Enter the mark: from now on the copies are what is needed of the checkpoint."""
    place = (envelope.region, envelope.lineage)
    for ledger in (book.included.get(place), book.ledgers.get(place)):
        entry = ledger.checkpoints.get(envelope.checkpoint) if ledger is not None else None
        if entry is None:
            continue
        parts = _needed(entry)
        wanted = [*parts, *([_COMPLETION] if entry.completion is not None else [])]
        if not wanted or not entry.copies.keys() >= set(wanted):
            return NOT_WHOLE
        moved = {part.offset: entry.copies[name].offset for name, part in parts.items()}
        _move(entry, wanted, parts)
        if ledger is book.included.get(place) and offset > book.applied:
            _move_decision(book, moved)
        return None
    return SETTLED


def _move(entry: Checkpoint, wanted: list[str], parts: dict[str, Part]) -> None:
    entry.parts = {name: part._replace(offset=entry.copies[name].offset) for name, part in parts.items()}
    if entry.completion is not None:
        entry.completion = entry.completion._replace(offset=entry.copies[_COMPLETION].offset)
    entry.first_offset = min(entry.copies[name].offset for name in wanted)
    entry.stored_at = min(entry.copies[name].time for name in wanted)
    entry.copies = {}


def _move_decision(book: Book, moved: dict[int, int]) -> None:
    """The last decision finds its parts where they stand now."""
    decision = book.state.pending[-1]
    decision.parts = [moved.get(part, part) for part in decision.parts]
    entries = [ledger.checkpoints[number] for ledger in book.included.values() for number in ledger.sealed]
    decision.first_offset = min(entry.first_offset for entry in entries)


def _needed(entry: Checkpoint) -> dict[str, Part]:
    """The parts that may still be committed: once it is completed, those that are named."""
    if entry.completion is None:
        return dict(entry.parts)
    return {name: entry.parts[name] for name in entry.completion.body.events if name in entry.parts}


def _stored(book: Book) -> Iterator[tuple[str, str, int, Checkpoint]]:
    for (region, lineage), ledger in book.ledgers.items():
        for number, entry in ledger.checkpoints.items():
            if entry.parts or entry.completion is not None:
                yield region, lineage, number, entry
    for (region, lineage), ledger in book.included.items():
        for number in ledger.sealed:
            yield region, lineage, number, ledger.checkpoints[number]
