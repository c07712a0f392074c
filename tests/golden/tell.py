"""One line of a trace for each effect, with its outcome."""

from collections.abc import Mapping, Sequence

from sluicegate.coordinator.core.effects import (
    Announce,
    AppendAbandoned,
    AppendDecision,
    AppendPolicy,
    AppendVoided,
    Ask,
    Carry,
    Effect,
    Failed,
    Publish,
    ReleaseOffsets,
    Result,
    WriteRecord,
)
from sluicegate.coordinator.core.state import Due
from sluicegate.events.models import (
    CutAbandoned,
    CutCommitted,
    CutVoided,
    OpeningAnswered,
    Position,
    SavepointTaken,
    StreamStalled,
)
from sluicegate.lakes.port import (
    Absent,
    Ahead,
    Conflict,
    Found,
    NotPublished,
    OtherDigest,
    OutcomeUnknown,
    Published,
    Refused,
    SnapshotRef,
    TableReplaced,
    Unproven,
)


def effect_line(
    effect: Effect, result: Result | None, names: Sequence[str], low_water: int, *, whole: bool = False
) -> str:
    """Describe an effect; `result` is None if nobody learns of it, `names` are the files of a publication.

    With `whole`, reasons are not cut behind what is wrong.
    """
    match effect:
        case AppendDecision(body):
            said = f"{body.decision} {cut(body.cut)}" + (" final" if body.final else "")
        case AppendAbandoned(body):
            said = f"{body.decision} attempt {body.attempt} waited for {' '.join(body.regions)}"
        case AppendVoided(body):
            said = f"{body.decision} holds out {body.region}:{body.checkpoint}"
        case Carry():
            said = f"{effect.region} {effect.lineage} [{' '.join(names)}]"
        case AppendPolicy(body):
            joined = f" joined: {body.joined}" if body.joined else ""
            said = f"{body.number} partial {body.partial} max {body.max_consecutive_fallbacks}{joined}"
        case Ask():
            said = str(effect.decision)
        case Publish():
            said = f"{effect.decision} [{' '.join(names)}] on {_number(effect.head)}"
        case WriteRecord(record):
            said = f"decided {record.state.decided} committed {record.state.committed} due {len(record.due)}"
        case Announce(due):
            said = _notice(due, whole=whole)
        case ReleaseOffsets():
            said = str(low_water)
        case _:
            said = ""
    return f"{type(effect).__name__} {said}".strip() + _outcome(result)


def cut(positions: Mapping[str, Position | None]) -> str:
    """Describe a cut, such as `r1=q.0:3 r2=nothing`."""
    return " ".join(f"{name}={_at(at)}" for name, at in positions.items())


def _at(position: Position | None) -> str:
    return f"{position.lineage}:{position.checkpoint}" if position else "nothing"


def _number(ref: SnapshotRef | None) -> int:
    return ref.id if ref else 0


def _outcome(result: Result | None) -> str:
    match result:
        case None:
            return " -> crash"
        case Failed(reason):
            return f" -> failed: {reason}"
        case Found(snapshot) | Published(snapshot):
            return f" -> snapshot {snapshot.id}"
        case Absent(head):
            return f" -> absent from {_number(head)}"
        case OtherDigest():
            return " -> other content"
        case Ahead(decision):
            return f" -> ahead at {decision}"
        case Unproven(reason) | Refused(reason) | NotPublished(reason) | OutcomeUnknown(reason):
            return f" -> {type(result).__name__.lower()}: {reason}"
        case TableReplaced():
            return " -> another table"
        case Conflict():
            return " -> conflict"
    return ""


def _notice(due: Due, *, whole: bool) -> str:
    body = due.body
    told = str if whole else _brief
    match body:
        case OpeningAnswered():
            answer = (
                f"accepted at {_at(body.committed)}"
                f"{f', goes on from {_at(body.start)}' if body.start else ''}"
                if body.accepted
                else f"refused: {told(body.reason)}"
            )
            said = f"{due.region} {due.lineage} {answer}"
        case CutCommitted():
            said = f"{body.decision} {cut(body.cut)}{_more(body)}"
        case CutAbandoned():
            said = f"{body.decision} attempt {body.attempt} waited for {' '.join(body.regions)}"
        case CutVoided():
            said = f"{body.decision} holds out {body.region}:{body.checkpoint}"
        case SavepointTaken():
            drained = " drained" if body.drained else ""
            said = f"{body.name}{drained} decision {body.decision} {cut(body.cut)}"
        case StreamStalled():
            said = f"{body.region or 'stream'}: {told(body.reason)}"
    return f"{due.type} {said}"


def _brief(reason: str) -> str:
    """What is wrong; what to do about it stands behind, and is not repeated in every case."""
    first = min((at for mark in ("; ", ". ") if (at := reason.find(mark)) > 0), default=len(reason))
    return reason[:first] + (" ..." if first < len(reason) else "")


def _more(body: CutCommitted) -> str:
    said = f" fallback {cut(body.fallbacks)}" if body.fallbacks else ""
    said += " forced" if body.forced else ""
    said += f" files {body.files}"
    said += f" watermark {body.watermark}" if body.watermark is not None else ""
    states = [f"{name}.{key}={state}" for name, kept in body.listeners.items() for key, state in kept.items()]
    said += f" listeners {' '.join(states)}" if states else ""
    return said + ("" if body.snapshot else " snapshot expired")
