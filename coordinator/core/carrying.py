"""Carrying: what is pending for long is appended again, so that the log's retention never overtakes it.

A lineage is carried whole or not at all: copies of the events that it still needs, in their order, then a
mark. The copies are duplicates, found by their ids; with the mark, readers take them in place of the
originals. A reader that begins behind the originals finds in the copies what it missed, with where it stood
first: that orders completions, so a later one that it met before is withdrawn.
"""

from collections.abc import Container, Iterator
from typing import Final

from sluicegate.coordinator.core.book import DUPLICATE, REPLAYED, SETTLED, UNOPENED, Book
from sluicegate.coordinator.core.effects import Carry
from sluicegate.coordinator.core.ledger import Checkpoint, Completion, Copy, LineageLedger, Part
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Body, CheckpointCompleted, LineageCarried

NOT_WHOLE: Final = "it was not carried whole"
UNEXPECTED: Final = "nothing of this type is carried"
_COMPLETION: Final = ""
Place = tuple[str, str]
"""Region and lineage."""


def next_carry(book: Book, before: int, upto: int, done: Container[Place] = ()) -> Carry | None:
    """What has been pending since before that time, in milliseconds: the lineage with the oldest record.

    Everything up to the offset `upto` has been read; what is done is left out.
    """
    ages = [
        (entry.stored_at, place)
        for place in (*book.included, *book.ledgers)
        if place not in done
        for entry in _entries(book, place, upto + 1)
    ]
    oldest, place = min(ages, default=(before, None))
    if place is None or oldest >= before:
        return None
    offsets: list[int] = []
    for entry in _entries(book, place, upto + 1):
        offsets += [part.offset for part in _needed(entry).values()]
        offsets += [entry.completion.offset] if entry.completion is not None else []
    return Carry(*place, upto, tuple(sorted(offsets)))


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
    copy = Copy(offset, time, origin.time)
    if envelope.type is EventType.FILES_WRITTEN:
        entry.copies[envelope.id] = copy
        return _part(ledger, entry, copy, envelope)
    if not isinstance(body, CheckpointCompleted):
        return UNEXPECTED
    entry.copies[_COMPLETION] = copy
    for number in (envelope.checkpoint, ledger.follower(body.predecessor)):
        rival = ledger.checkpoints[number].completion if number in ledger.checkpoints else None
        if number is not None and rival is not None and rival.first > origin.offset:
            ledger.withdraw(number)
    if entry.completion is not None:
        return REPLAYED
    ledger.complete(envelope.checkpoint, entry, Completion(offset, origin.time, body, origin.offset))
    return None


def _part(ledger: LineageLedger, entry: Checkpoint, copy: Copy, envelope: Envelope) -> str | None:
    if envelope.id in entry.parts:
        return DUPLICATE
    written = (envelope.files, envelope.rows, envelope.writer, envelope.attempt)
    entry.add(envelope.id, Part(copy.offset, *written))
    entry.last_time = max(entry.last_time, copy.first_time)
    if envelope.id in entry.missing:
        entry.missing.discard(envelope.id)
        if not entry.missing:
            ledger.advance(copy.first_time)
    return None


def carried(book: Book, offset: int, envelope: Envelope, body: LineageCarried) -> str | None:
    """Enter the mark: from now on the copies are what is needed of the lineage."""
    place, fresh = (envelope.region, envelope.lineage), offset > book.applied
    ledger = book.ledgers.get(place)
    entries = list(_entries(book, place, offset))
    # What was disputed behind `upto` could look otherwise to who reads the copies only.
    disputed = ledger is not None and ledger.disputed > body.upto
    if not entries:
        return SETTLED
    if disputed or not all(_is_whole(entry, body.upto) for entry in entries):
        return NOT_WHOLE
    for entry in entries:
        _move(entry, body.upto)
    if ledger is not None:
        if fresh and ledger.garbled:
            book.give_up(envelope, min(ledger.garbled))
        ledger.forget_empty()
    if place in book.included and fresh:
        _find_parts(book)
    return None


def _find_parts(book: Book) -> None:
    """Let the last decision say where its parts stand now, in the order that it included them."""
    decision, offsets, found = book.state.pending[-1], [], []
    for place in sorted(book.included, key=lambda place: place[0]):
        ledger = book.included[place]
        for entry in (ledger.checkpoints[number] for number in ledger.sealed):
            found.append(entry.first_offset)
            offsets += [part.offset for part in entry.named()]
    decision.parts, decision.first_offset = offsets, min(found)


def _wanted(entry: Checkpoint, upto: int) -> list[str]:
    """The names of what must have been copied."""
    names = [name for name, part in _needed(entry).items() if part.offset <= upto]
    completion = entry.completion
    return [*names, _COMPLETION] if completion is not None and completion.offset <= upto else names


def _is_whole(entry: Checkpoint, upto: int) -> bool:
    return all(name in entry.copies for name in _wanted(entry, upto))


def _move(entry: Checkpoint, upto: int) -> None:
    """Take the copies for the originals."""
    copies = {name: entry.copies[name] for name in _wanted(entry, upto)}
    entry.parts = {
        name: part._replace(offset=copies[name].offset) if name in copies else part
        for name, part in _needed(entry).items()
    }
    offsets = [part.offset for part in entry.parts.values()]
    if entry.completion is not None:
        if _COMPLETION in copies:
            entry.completion = entry.completion._replace(offset=copies[_COMPLETION].offset)
        offsets.append(entry.completion.offset)
    # Who began behind the originals has no others than these.
    entry.first_offset = min(offsets, default=entry.first_offset)
    if copies:
        entry.stored_at = min(copy.time for copy in copies.values())
    entry.copies = {}


def _needed(entry: Checkpoint) -> dict[str, Part]:
    """The parts that may still be committed: once it is completed, those that are named."""
    if entry.completion is None:
        return dict(entry.parts)
    return {name: entry.parts[name] for name in entry.completion.body.events if name in entry.parts}


def _entries(book: Book, place: tuple[str, str], offset: int) -> Iterator[Checkpoint]:
    """What is pending of a lineage, decided or not, at an offset."""
    yield from _included(book, place, offset)
    if place in book.ledgers:
        yield from book.ledgers[place].checkpoints.values()


def _included(book: Book, place: tuple[str, str], offset: int) -> Iterator[Checkpoint]:
    ledger = book.included.get(place)
    if ledger is not None:
        # What the decision passed by is needed no more, once it is read.
        passed = offset > book.state.pending[-1].offset
        yield from (
            ledger.checkpoints[number] for number in (ledger.sealed if passed else ledger.checkpoints)
        )
