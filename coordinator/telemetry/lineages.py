"""Log lines for operators about a region's lineages: accepted, replaced, or not live."""

import structlog

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.telemetry.wording import spans
from sluicegate.events.envelope import Envelope
from sluicegate.events.models import Body, RegionOpened, StreamCommand

log = structlog.get_logger(__name__)

Undecided = frozenset[tuple[str, int]]
"""Checkpoints, each with its lineage."""


def undecided(book: Book, region: str | None) -> Undecided:
    """Return the completed checkpoints of a region that no decision includes yet."""
    held = book.state.regions.get(region or "")
    return frozenset(
        (lineage, number)
        for lineage in (held.chain if held else ())
        for number, entry in book.ledgers[region or "", lineage].checkpoints.items()
        if entry.completion is not None
    )


def _committed(book: Book, region: str) -> bool:
    held = book.state.regions.get(region)
    return held is not None and held.ref is not None


def not_live_then(book: Book, envelope: Envelope, offset: int) -> str | None:
    """Return the same as `not_live` for a completion that is read again.

    The region may have a newer live lineage by now. So the result uses the openings before the completion's
    offset.
    """
    held = book.state.regions.get(envelope.region)
    lineages = held.lineages if held is not None else {}
    lived = lineages.get(envelope.lineage)
    if lived is not None:
        if offset < lived.opened_at:
            return _not_live(envelope, "it was not opened then")
        later = [each.opened_at for each in lineages.values() if each.opened_at > lived.opened_at]
        if not later or offset < min(later):
            return None
    return not_live(book, envelope)


def not_live(book: Book, envelope: Envelope) -> str | None:
    """Return the reason, with a remedy, why a completion never has an effect; None for a repeated one."""
    held = book.state.regions.get(envelope.region)
    live = held.live if held is not None else None
    lived = held.lineages.get(envelope.lineage) if held is not None else None
    if lived is not None and (live == envelope.lineage or lived.limit is None):
        return None
    if lived is not None and lived.limit is not None and envelope.checkpoint <= lived.limit:
        return None
    return _not_live(envelope, f"which is {live}" if live else "none was opened")


def _not_live(envelope: Envelope, other: str) -> str:
    return (
        f"lineage {envelope.lineage} of region {envelope.region} of stream {envelope.stream} is not the live "
        f"one ({other}), so that its checkpoint {envelope.checkpoint} is not committed: two queries with one "
        "region name, or a query that was replaced. Give each query a region of its own, or stop this one"
    )


def tell_acceptance(book: Book, body: Body | None) -> None:
    """Log the checkpoints that an operator's acceptance of a lineage will drop."""
    if isinstance(body, StreamCommand) and body.command == "accept":
        log.warning(
            "lineage accepted by the operator",
            stream=book.stream,
            region=body.region,
            lineage=body.lineage,
            not_committed_yet=spans(undecided(book, body.region)) or "nothing",
            note="what is not committed when it starts is dropped",
        )


def tell_replacement(book: Book, envelope: Envelope, body: Body | None, before: Undecided) -> None:
    """Log the checkpoints that a new lineage has dropped, and the risk of repeated rows."""
    dropped = spans(before - undecided(book, envelope.region)) or "nothing"
    told = {"stream": book.stream, "region": envelope.region, "lineage": envelope.lineage, "dropped": dropped}
    if isinstance(body, RegionOpened) and not body.parents and (before or _committed(book, envelope.region)):
        note = "rows of committed checkpoints that the source gives again are written again"
        log.warning("accepted lineage replaces the one before", **told, note=note)
    else:
        log.info("new lineage replaces the one before", **told)
