"""Refused openings in words: what is wrong, and what to do. Nothing here decides anything."""

from collections.abc import Iterable
from typing import Final

from sluicegate.coordinator.core.descent import Place, last
from sluicegate.coordinator.core.state import RegionState
from sluicegate.events.envelope import Envelope
from sluicegate.events.models import Assignment, Parent, Position

ONE_OWN_PARENT = "a lineage of region {} may have one parent of the same region; name the newest of them only"
NO_OWN_PARENT = (
    "region {} has no lineage in this stream that could be a parent; leave it out of the option `parents`. "
    "If its checkpoint location is from another stream, start the query in an empty one, with a source that "
    "begins right after the committed rows"
)
_PUT_BACK: Final = "Stop the query, put the newer location back, and start it again"
_EMPTY_LOCATION: Final = (
    "If it is lost, start the query in an empty one, with a source that begins right after the committed "
    "rows; that start is refused, and the refusal names the command to accept it: sluicegate accept"
)
ONLY_ANEW = (
    "the parent {} is another region, which only a new assignment can take over; raise the assignment's "
    "number"
)


def no_such_parent(parent: Parent, region: RegionState | None) -> str:
    if region is None or not region.lineages:
        return f"the parent region {parent.region} is unknown in this stream; correct the option `parents`"
    known = region.lineages.get(parent.lineage)
    if known is not None and known.dropped:
        return (
            f"the parent lineage {parent.lineage} of region {parent.region} was itself displaced: others "
            "went on from elsewhere before anything of it was committed. Name what they went on from, and "
            "let the source start there"
        )
    return (
        f"the parent lineage {parent.lineage} is unknown or was itself replaced; name one that region "
        f"{parent.region} has: {', '.join(region.chain)}"
    )


def older_location(region: str, ref: Position, known: int) -> str:
    return (
        f"region {region} is committed up to checkpoint {ref.checkpoint}, but its checkpoint "
        f"location knows batches up to {known} only: it was restored from a backup, or partly deleted. Rows "
        f"that it numbers anew would be taken for those in the table. {_PUT_BACK}. {_EMPTY_LOCATION}"
    )


def other_content(stream: str, region: str, at: Position, ref: Position | None, *, is_heir: bool) -> str:
    """Return the reason for a location that has a checkpoint with other source data than the log.

    An heir goes on from other regions: begun anew from nothing, it would read again what those have.
    """
    if ref == at:
        has, way_out = "is committed", _EMPTY_LOCATION
    elif ref is None and is_heir:
        has, way_out = "was completed", _EMPTY_LOCATION
    elif ref is not None:
        has = "was completed"
        way_out = (
            "If it is lost, set the query back to its committed checkpoint: sluicegate rewind "
            f"--stream {stream} --region {region} --checkpoint-location ..."
        )
    else:
        has = "was completed"
        way_out = "If it is lost, delete the location and start the query: nothing of it is committed yet"
    return (
        f"checkpoint {at.checkpoint} of lineage {at.lineage} of region {region} {has} with other source data "
        "than its checkpoint location has under that number: the location was restored from a backup, or "
        f"partly deleted. Rows would be lost or written twice. {_PUT_BACK}. {way_out}"
    )


def passed_on(envelope: Envelope, limit: int, others: Iterable[Place]) -> str:
    names = ", ".join(f"region {place.region}" for place in others) or "another lineage"
    if limit < 0:
        end = "before its first checkpoint"
        begin = (
            "start the query in an empty checkpoint location, with the option parents = "
            f"{envelope.region}:{envelope.lineage}:-, and a source that begins there"
        )
    else:
        end = f"at checkpoint {limit}"
        begin = f"once checkpoint {limit} is committed, sluicegate rewind"
    return (
        f"lineage {envelope.lineage} of region {envelope.region} ended {end}: {names} went on from there. "
        f"Leave the region out of the assignment, or begin a new lineage of it there: {begin}"
    )


def not_in_its_own(region: str, wanted: Assignment) -> str:
    return (
        f"region {region} is not in its own assignment {wanted.number} "
        f"({', '.join(sorted(wanted.regions))}); list every region of the stream in the option `regions`"
    )


def older_assignment(wanted: Assignment, held: Assignment) -> str:
    return (
        f"assignment {wanted.number} is older than the stream's assignment {held.number}; "
        f"start the job with assignment {held.number} or a higher number"
    )


def other_regions(wanted: Assignment, held: Assignment) -> str:
    return (
        f"assignment {wanted.number} was opened with the regions {', '.join(sorted(held.regions))}, "
        f"not {', '.join(sorted(wanted.regions))}. If the option region or regions is wrong, correct it. To "
        "change the regions, raise the assignment's number for all queries: what a new one reads that an old "
        "one has read comes twice, so let its source begin behind that"
    )


def too_deep(waiting: Iterable[int], following: Assignment, wanted: Assignment) -> str:
    return (
        f"assignments {', '.join(map(str, sorted(waiting)))} have had no full cut yet; start the job with "
        f"assignment {following.number}, and let one be committed before assignment {wanted.number}; if none "
        "of them ever can be, raise max_consecutive_fallbacks"
    )


def replaced(name: str, lineage: str, live: str | None) -> str:
    if live is None:
        return (
            f"lineage {lineage} of region {name} is void: others went on from elsewhere before anything of "
            "it was committed. Start the query in an empty checkpoint location: its option `parents` names "
            "who has that work now, and its source begins right after it"
        )
    return (
        f"lineage {lineage} of region {name} was replaced by {live}: one query writes a region. If that of "
        f"{live} is the right one, start it from its own checkpoint location, and leave this one stopped; "
        "else stop that one, and start this one in an empty location, with the same source (where something "
        "is committed, that is refused, and the refusal has the way on)"
    )


def no_parent(envelope: Envelope, region: RegionState) -> str:
    parents = region.lineages[region.chain[-1]].parents if region.ref is None else []
    named = [
        f"checkpoint {_named(each)} of lineage {each.lineage} of region {each.region}" for each in parents
    ]
    stands = f"goes on from {' and '.join(named)}" if named else f"stands at {_at(region.ref)}"
    return (
        f"region {envelope.region} {stands}, but lineage {envelope.lineage} names no "
        "parent: its checkpoint location was deleted or replaced, and rows may be written twice. Put the old "
        "location back. If it is lost, and the source of the new one begins right after the committed rows, "
        f"accept it: {_accept(envelope)}. If it begins elsewhere, start the query in another empty location, "
        "with a source that begins there; that is refused with a command of its own"
    )


def moved_on(envelope: Envelope, behind: Position | None, ref: Position | None) -> str:
    wrong = "what the new query reads of that again would be written twice"
    if ref is None:
        wrong = "what lies before the new query's start would be lost"
    return (
        f"lineage {envelope.lineage} was accepted when region {envelope.region} stood at {_at(behind)}; it "
        f"stands at {_at(ref)} now, and {wrong}. Stop the old query, and start the new one in another empty "
        "location, with a source that begins right after that; if that is refused, the refusal has a command "
        f"of its own. Only if the source of this one begins there, accept it again: {_accept(envelope)}"
    )


def _accept(envelope: Envelope) -> str:
    place = f"--stream {envelope.stream} --region {envelope.region} --lineage {envelope.lineage}"
    return f"sluicegate accept {place}"


def is_void(parent: Parent, limit: int) -> str:
    if limit < 0:
        return (
            f"all of lineage {parent.lineage} of region {parent.region} is void: others went on from before "
            f"its first checkpoint. Name {parent.region}:{parent.lineage}:- as the parent, and let the "
            "source start there"
        )
    return f"what lineage {parent.lineage} has beyond checkpoint {limit} is void; name that or earlier"


def held_out(parent: Parent, held: Parent) -> str:
    own = (held.region, held.lineage) == (parent.region, parent.lineage)
    behind = f", which lineage {parent.lineage} of region {parent.region} goes on from,"
    return (
        f"checkpoint {held.checkpoint} of lineage {held.lineage} of region {held.region}"
        f"{'' if own else behind} is held out of all commits; name one before it, best the committed one, "
        "as the parent"
    )


def behind_another(parent: Parent) -> str:
    return (
        f"lineage {parent.lineage} of region {parent.region} is behind another named parent already, "
        "which went on from it; leave it out of the parents, or its work would be read twice. If region "
        f"{parent.region} kept a part of it, name the lineage instead with which it goes on"
    )


def ended_elsewhere(parent: Parent, limit: int | None) -> str:
    if limit in (None, last(parent)):
        return (
            f"others of this assignment build on what went on from checkpoint {_named(parent)} of lineage "
            f"{parent.lineage} of region {parent.region}; raise the assignment's number"
        )
    return (
        f"lineage {parent.lineage} of region {parent.region} was ended elsewhere than at {_named(parent)} "
        f"by an opening of this assignment; name checkpoint {limit} of it, or raise the assignment's number"
    )


def goes_on(place: Place) -> str:
    return (
        f"lineage {place.lineage} of region {place.region} goes on in this assignment, so nobody else can go "
        f"on from there; begin a new lineage of region {place.region} first, or leave the region out"
    )


def beyond(parent: Parent, region: str, ref: Position | None) -> str:
    other = "" if region == parent.region else f", or name region {region} as the parent"
    return (
        f"region {region} is committed up to {_at(ref)}, beyond the named checkpoint {_named(parent)} of "
        f"lineage {parent.lineage}{f' of region {parent.region}' if other else ''}; set the query back to "
        f"the committed one instead, and name that as the parent{other}"
    )


def _at(ref: Position | None) -> str:
    return f"checkpoint {ref.checkpoint} of lineage {ref.lineage}" if ref else "no committed checkpoint"


def _named(parent: Parent) -> str:
    return "(none)" if parent.checkpoint is None else str(parent.checkpoint)
