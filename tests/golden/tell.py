"""One line of a trace for each effect, with its result."""

from collections.abc import Mapping, Sequence

from sluicegate.coordinator.core.effects import (
    Announce,
    Append,
    Ask,
    Effect,
    Failed,
    Publish,
    Result,
    WriteRecord,
)
from sluicegate.coordinator.core.state_record import Due
from sluicegate.events.models import (
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    Position,
    RegionHeartbeat,
    SnapshotRef,
    StreamPolicy,
)
from sluicegate.events.notifications import (
    Committed,
    IncarnationsEnded,
    RegistrationAnswered,
    SavepointTaken,
    Stalled,
    StreamAdopted,
)
from sluicegate.events.problems import Cause, CauseCode, Problem
from sluicegate.lakes.port import (
    Absent,
    Ahead,
    Found,
    OtherDigest,
    OutcomeUnknown,
    Published,
    Refused,
    TableReplaced,
    Unproven,
)


def effect_line(effect: Effect, result: Result | None, names: Sequence[str]) -> str:
    """Describe an effect; `result` is None if nobody receives it, `names` are the files of a publication."""
    match effect:
        case Append(kind, body, region):
            text = f"{kind} {_event(body)}" + (f" of {region}" if region else "")
        case Ask():
            text = f"{effect.decision} from {_number(effect.known)}"
        case Publish():
            text = f"{effect.decision} [{' '.join(names)}] on {_number(effect.head)}"
            text += f" with {' '.join(effect.offsets_of)}" if effect.offsets_of else ""
            text += " apart" if effect.apart else ""
        case WriteRecord(record):
            text = f"decided {record.state.decided} upto {record.table.upto} due {len(record.due)}"
        case Announce(due):
            text = _notice(due)
        case _:
            text = ""
    return f"{type(effect).__name__} {text}".strip() + _result(result)


def cut(positions: Mapping[str, Position | None]) -> str:
    """Describe a cut, such as `r1=q.0:3 r2=none`."""
    return " ".join(f"{name}={_at(at)}" for name, at in positions.items())


def problem_line(problem: Problem) -> str:
    """Describe a problem by its code and its arguments."""
    found = problem.model_dump(exclude_defaults=True, exclude={"code", "cause"})
    found |= {"cause": f"({problem.cause})"} if problem.cause is not None else {}
    names = " ".join(str(each) for each in found.pop("names", ()))
    arguments = " ".join(f"{name}={value}" for name, value in found.items())
    return " ".join(each for each in (str(problem.code), arguments, f"[{names}]" if names else "") if each)


def _at(position: Position | None) -> str:
    return f"{position.incarnation}:{position.checkpoint}" if position else "none"


def _number(head: SnapshotRef | None) -> int:
    return head.id if head else 0


def _event(body: object) -> str:
    match body:
        case CutDecided():
            return f"{body.decision} {cut(body.cut)}"
        case CutCommitted() | CutReverted():
            return f"{body.decision} snapshot {_number(body.snapshot)}"
        case CutAbandoned():
            return f"{body.decision} attempt {body.attempt} {body.kind} [{' '.join(body.regions)}]"
        case StreamPolicy():
            return f"{body.number} partial {body.partial} max {body.max_consecutive_fallbacks}"
        case RegionHeartbeat():
            return "silent" if body.silent else "alive"
    return type(body).__name__


def _result(result: Result | None) -> str:
    match result:
        case None:
            return " -> crash"
        case Found(snapshot, tables=tables) | Published(snapshot, tables):
            more = "".join(
                f" {name} {_number(at) if at else 'expired'}" for name, at in sorted(tables.items())
            )
            return f" -> snapshot {snapshot.id}{more}"
        case Absent(head):
            elsewhere = f" but in {' '.join(result.elsewhere)}" if result.elsewhere else ""
            return f" -> absent from {head.id if head else 0}{elsewhere}"
        case OtherDigest():
            return " -> other content"
        case Ahead(decision):
            return f" -> ahead at {decision}"
        case Refused(cause=Cause(code=CauseCode.OTHER_WRITER)):
            return " -> conflict"
        case Failed() | Unproven() | Refused() | OutcomeUnknown():
            why = ", ".join(str(each) for each in (result.cause, result.reason) if each)
            return f" -> {type(result).__name__.lower()}: {why}"
        case TableReplaced():
            return " -> another table"
    return ""


def _notice(due: Due) -> str:
    body = due.body
    match body:
        case RegistrationAnswered():
            verdict = "accepted" if body.problem is None else f"refused {problem_line(body.problem)}"
            text = (
                f"{due.region} {due.incarnation} {verdict} at {_at(body.committed)} decision {body.decision}"
            )
            text += f" unresolved {body.unresolved}" if body.unresolved is not None else ""
            if body.problem is not None:
                text += f" live {body.live or 'none'}"
                text += f" offsets {body.source_offsets}" if body.source_offsets is not None else ""
        case Committed():
            text = f"{body.decision} {cut(body.cut)}{_more(body)}"
        case CutAbandoned():
            text = f"{body.decision} attempt {body.attempt} {body.kind} [{' '.join(body.regions)}]"
        case CutReverted():
            text = f"{body.decision}"
        case SavepointTaken():
            drained = " drained" if body.drained else ""
            text = f"{body.name}{drained} decision {body.decision} {cut(body.cut)}{_vector(body)}"
            text += f" discarded {' '.join(body.discarded)}" if body.discarded else ""
        case IncarnationsEnded():
            text = " ".join(f"{name} {life}" for name, life in body.incarnations.items())
        case Stalled():
            text = f"{'ended ' if body.ended else ''}{problem_line(body.problem)}"
        case StreamAdopted():
            text = f"{body.decision}"
    return f"{due.type} {text}"


def _vector(body: Committed | SavepointTaken) -> str:
    found = [f"{name}@{each.decision}" for name, each in body.tables.items()]
    return f" tables {' '.join(found)}" if found else ""


def _more(body: Committed) -> str:
    text = f" fallback {cut(body.fallbacks)}" if body.fallbacks else ""
    text += f" files {body.files}"
    text += f" watermark {body.watermark}" if body.watermark is not None else ""
    text += _vector(body)
    states = [f"{name}.{key}={state}" for name, kept in body.listeners.items() for key, state in kept.items()]
    text += f" listeners {' '.join(states)}" if states else ""
    return text + ("" if body.snapshot else " snapshot expired")
