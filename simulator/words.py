"""Log records, notifications and effects in plain words."""

from collections.abc import Mapping

from sluicegate.coordinator.core.effects import (
    Announce,
    AppendDecision,
    Ask,
    Carry,
    Effect,
    Publish,
    WriteRecord,
)
from sluicegate.events.envelope import Envelope
from sluicegate.events.models import (
    Body,
    CheckpointCompleted,
    CheckpointFailed,
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutVoided,
    FilesWritten,
    LineageCarried,
    OpeningAnswered,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionOpened,
    SavepointTaken,
    StreamCommand,
    StreamPolicy,
    StreamStalled,
)


def cut_in_words(cut: Mapping[str, Position | None]) -> str:
    """A vector of positions."""
    return ", ".join(
        f"{name} at {at.checkpoint} of {at.lineage}" if at else f"{name} at nothing"
        for name, at in cut.items()
    )


def entry_in_words(envelope: Envelope, body: Body) -> str:
    """A record of the log."""
    region, lineage, checkpoint = envelope.region, envelope.lineage, envelope.checkpoint
    if envelope.origin is not None:
        return f"copy of offset {envelope.origin.offset} ({envelope.id})"
    match body:
        case FilesWritten():
            return (
                f"{region} writes files of checkpoint {checkpoint} of {lineage} "
                f"({envelope.id}, {envelope.writer})"
            )
        case CheckpointCompleted():
            return _completion(envelope, body)
        case RegionOpened():
            return _opening(envelope, body)
        case LineageCarried():
            return f"{lineage} of {region} is carried, as of offset {body.upto}"
        case CheckpointFailed(outcome=outcome):
            return f"{region} says that checkpoint {checkpoint} of {lineage} is {outcome}"
        case RegionHeartbeat(idle=idle):
            return f"{region} says that it is {'idle' if idle else 'at work'} ({lineage})"
        case RegionClosed(final=final):
            return f"{region} closes {lineage} after checkpoint {final}"
    return _coordination(body)


def _completion(envelope: Envelope, body: CheckpointCompleted) -> str:
    named = ", ".join(body.events) or "no files"
    mark = "" if body.watermark is None else f", watermark {body.watermark}"
    return (
        f"{envelope.region} completes checkpoint {envelope.checkpoint} of {envelope.lineage} "
        f"with {named}, from {body.source_digest}{mark}"
    )


def _opening(envelope: Envelope, body: RegionOpened) -> str:
    parents = ", ".join(
        f"{parent.region}/{parent.lineage} up to {parent.checkpoint}" for parent in body.parents
    )
    regions = ", ".join(body.assignment.regions)
    return (
        f"{envelope.region} opens {envelope.lineage} ({envelope.id}) in assignment {body.assignment.number} "
        f"({regions}){', built on ' + parents if parents else ''}"
    )


def _coordination(body: Body) -> str:
    match body:
        case StreamPolicy():
            return (
                f"policy {body.number}: partial cuts {body.partial}, "
                f"at most {body.max_consecutive_fallbacks} fallbacks"
            )
        case StreamCommand():
            said = body.model_dump(exclude_none=True, exclude={"command"})
            what = ", ".join(f"{name} {value}" for name, value in said.items())
            return f"the operator orders: {body.command}{' ' if what else ''}{what}"
        case CutDecided():
            final = ", final" if body.final else ""
            return f"decision {body.decision}: {cut_in_words(body.cut)}{final}"
        case CutAbandoned():
            return f"decision {body.decision} abandoned, attempt {body.attempt} ({', '.join(body.regions)})"
        case CutVoided():
            return f"decision {body.decision} is void; {body.region} is held out from {body.checkpoint} on"
        case StreamStalled():
            return f"the stream is stalled: {body.reason}"
    return repr(body)


def notice_in_words(body: Body) -> str:
    """A notification on the commits topic."""
    match body:
        case OpeningAnswered():
            return f"{body.opening} is {'accepted' if body.accepted else 'refused: ' + body.reason}"
        case CutCommitted():
            back = f", fell back: {cut_in_words(body.fallbacks)}" if body.fallbacks else ""
            forced = ", forced" if body.forced else ""
            return f"decision {body.decision} is committed, watermark {body.watermark}{back}{forced}"
        case SavepointTaken():
            return f"savepoint {body.name} is taken with decision {body.decision}"
    return _coordination(body)


def effect_in_words(effect: Effect) -> str:
    """What a coordinator does."""
    match effect:
        case Ask():
            return f"Ask for decision {effect.decision}"
        case Publish():
            return f"Publish of decision {effect.decision} ({len(effect.offsets)} events)"
        case AppendDecision(body):
            return f"AppendDecision {body.decision}"
        case Carry():
            return f"Carry of {effect.lineage} of {effect.region}, offsets {effect.offsets}"
        case WriteRecord(record):
            return f"WriteRecord (up to offset {record.applied}, low-water mark {record.low_water})"
        case Announce(due):
            return f"Announce {due.type}"
    return type(effect).__name__
