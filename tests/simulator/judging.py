"""Validity of registrations, completions, decisions and attempts, by the dumb account."""

from sluicegate.events.envelope import Envelope
from sluicegate.events.models import (
    Assignment,
    CheckpointCompleted,
    CutAbandoned,
    CutDecided,
    Position,
    RegionRegistered,
)
from tests.simulator.account import Account
from tests.simulator.places import Life, Place


def may_register(account: Account, offset: int, envelope: Envelope, body: RegionRegistered) -> bool:
    wanted, name = body.assignment, envelope.region
    if account.policy is None or name not in wanted.regions:
        return False
    if account.policy.regions and set(wanted.regions) - set(account.policy.regions):
        return False
    if body.table is not None and not body.table.startswith(account.policy.allowed_locations):
        return False
    if set(body.tables) - account.policy.tables.keys():
        return False
    if not _may_assign(account, wanted):
        return False
    following = account.number is None or wanted.number > account.number
    place = account.places.get(name, Place())
    if not following and place.live and place.life and place.life.name == envelope.incarnation:
        return _may_restart(place, place.life, body)
    live = place.life.name if place.live and place.life and not following else None
    if body.takes_over is not None:
        replaces = place.registered < body.takes_over <= offset
    else:
        replaces = body.replaces == live
    if not replaces or (place.removed and not following):
        return False
    return _may_begin(account, envelope, body, place)


def _may_assign(account: Account, wanted: Assignment) -> bool:
    """Return True if the assignment is the one in force, or may follow it."""
    if account.number is not None and wanted.number <= account.number:
        same = wanted.number == account.number and set(wanted.regions) == set(account.regions)
        return same and wanted.after == account.followed[wanted.number]
    if wanted.number <= account.withdrawn:
        return False
    ended = not account.active() and account.open is None and wanted.after == account.decided
    return account.number is None or ended


def _may_begin(account: Account, envelope: Envelope, body: RegionRegistered, place: Place) -> bool:
    """Return True if the incarnation is a new one, and begins at the committed position."""
    known = {each.life.name for each in account.places.values() if each.life}
    known |= {each.life.name for each in account.asleep().values() if each.life}
    committed = account.open is None or envelope.region not in account.open.moves
    right = body.takes_over is not None or body.base == place.at
    return envelope.incarnation not in known | account.ended and committed and right


def _may_restart(place: Place, life: Life, body: RegionRegistered) -> bool:
    if body.base != life.base:
        return False
    own = place.at if place.at and place.at.incarnation == life.name else None
    newest = max((each.checkpoint for each in body.planned), default=-1)
    if own is not None and newest < own.checkpoint:
        return False
    for each in body.planned:
        if own is not None and each.checkpoint == own.checkpoint and each.digest != own.digest:
            return False
        known = None if place.is_past(each.checkpoint) else life.completions.get(each.checkpoint)
        if known is not None and known.source_digest != each.digest:
            return False
    return True


def cannot_follow(place: Place, number: int, body: CheckpointCompleted) -> bool:
    sealed, before = place.sealed(), body.predecessor
    tail = sealed[-1] if sealed else place.at
    life = place.life
    if life is None:
        return False
    own = before.checkpoint if before is not None and before.incarnation == life.name else None
    for other, each in life.completions.items():
        same = each.predecessor is not None and each.predecessor.incarnation == life.name
        theirs = each.predecessor.checkpoint if same and each.predecessor else None
        if other != number and other not in life.impossible and not place.is_past(other) and theirs == own:
            return True
    if own is not None and own >= number:
        return True
    if before == tail:
        return False
    tail_own = tail.checkpoint if tail is not None and tail.incarnation == life.name else -1
    return own is None or own <= tail_own


def decision_problem(account: Account, body: CutDecided) -> tuple[str, str] | None:
    """Return the invariant that a decision would break, and how; None if it is valid."""
    if body.decision != account.decided + 1 or account.open is not None:
        return "I3", f"decision {body.decision} does not follow a resolved {account.decided}"
    if account.paused:
        return "I4", "the stream is paused"
    moves = {
        name: at
        for name, at in body.cut.items()
        if name not in account.places or at != account.places[name].at
    }
    for name, at in moves.items():
        place = account.places.get(name)
        ended = place is not None and not place.live and not place.removed
        if place is None or ended or at not in place.sealed():
            return "I1", f"{name} is not sealed up to {at.checkpoint}"
        if at not in account.known(name):
            return "I1", f"{name} has files of an unknown table up to {at.checkpoint}"
        if place.stalled:
            return "I2", f"{name} is stalled"
    held = {name for name, place in account.places.items() if place.at is not None}
    if not moves or held - body.cut.keys():
        return "I1", "nothing moves, or a region is left out"
    return _partial_problem(account, moves)


def _partial_problem(account: Account, moves: dict[str, Position]) -> tuple[str, str] | None:
    fallbacks = [name for name in account.expected() if name not in moves]
    if account.provisional and fallbacks:
        return "I7", f"the first cut of the assignment lacks {fallbacks}"
    if fallbacks and (not account.may_be_partial() or account.is_forced()):
        return "I7", f"{fallbacks} may not fall back"
    if len(fallbacks) > account.most_fallbacks():
        return "I7", f"{fallbacks} are too many"
    return None


def abandonment_problem(account: Account, body: CutAbandoned) -> tuple[str, str] | None:
    """Return the invariant that an abandoned attempt would break."""
    if (
        (body.decision, body.attempt) != (account.decided + 1, account.attempts + 1)
        or account.open
        or account.paused
    ):
        return "I7", "it is out of order"
    fallbacks = set(account.expected())
    lagging = {name for name in fallbacks if name not in account.places or not account.places[name].sealed()}
    if not body.regions or not lagging <= set(body.regions) <= fallbacks or not account.may_be_partial():
        return "I7", f"{body.regions} are not those left behind"
    forced = account.is_forced()
    if forced != (body.kind == "forced") or (not forced and len(body.regions) <= account.most_fallbacks()):
        return "I7", f"{body.kind} is the wrong kind"
    return None
