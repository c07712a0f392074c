"""What a record of the log makes of the book: the one way by which the log changes it."""

from typing import Final

from sluicegate.coordinator.core import carrying, cuts, decisions, openings, orders
from sluicegate.coordinator.core.book import Book
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import (
    Body,
    CheckpointCompleted,
    CheckpointFailed,
    CutAbandoned,
    CutDecided,
    CutVoided,
    LineageCarried,
    RegionClosed,
    RegionHeartbeat,
    RegionOpened,
    StreamCommand,
    StreamPolicy,
    StreamStalled,
)

HIGHEST_POLICY: Final = 2**53
"""A number beyond would leave none for the next policy."""
VOID: Final = "void decision"
UNEXPECTED: Final = "unexpected type"


def enter(book: Book, offset: int, time: int, envelope: Envelope, body: Body | None) -> str | None:
    """Enter a record; returns why it has no effect, if it has none.

    Records that the light state includes already refill the ledgers, and change nothing else.
    """
    if envelope.origin is not None:
        return carrying.copied(book, offset, time, envelope, body)
    if envelope.type is EventType.FILES_WRITTEN:
        return book.part(offset, time, envelope)
    match body:
        case LineageCarried():
            return carrying.carried(book, offset, envelope, body)
        case CheckpointCompleted():
            return book.completion(offset, time, envelope, body)
        case CheckpointFailed():
            return book.failure(offset, envelope, body)
        case RegionHeartbeat():
            return book.heartbeat(offset, envelope, body.idle)
        case RegionClosed():
            return book.close(offset, envelope, body.final)
    if offset <= book.applied:
        return None
    if isinstance(body, RegionOpened):
        return openings.judge(book, offset, envelope, body)
    if isinstance(body, CutDecided | CutAbandoned | CutVoided):
        problem = _decide(book, offset, time, body)
        return f"{VOID}: {problem}" if problem else None
    return _obey(book, envelope, body)


def _decide(book: Book, offset: int, time: int, body: CutDecided | CutAbandoned | CutVoided) -> str | None:
    match body:
        case CutDecided():
            problem = cuts.refusal(book, body)
            if problem is None:
                decisions.take(book, offset, body)
        case CutAbandoned():
            problem = cuts.abandonment_refusal(book, body)
            if problem is None:
                decisions.abandon(book, time)
        case CutVoided():
            problem = decisions.void(book, body)
    return problem


def _obey(book: Book, envelope: Envelope, body: Body | None) -> str | None:
    match body:
        case StreamPolicy():
            held = book.state.policy
            if body.number > HIGHEST_POLICY:
                return f"no policy has a number beyond {HIGHEST_POLICY}"
            if held is None or body.number > held.number:
                book.state.policy = body
        case StreamCommand():
            orders.obey(book, envelope.stream, body)
        case StreamStalled():
            book.state.blocked, book.state.paused = body.reason, False
        case _:
            return UNEXPECTED
    return None
