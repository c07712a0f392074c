"""Defects in completions, outcomes, reverts and savepoints."""

from typing import Any, Final

from sluicegate.coordinator.core.log import Log, Part
from sluicegate.events.envelope import EventType
from sluicegate.events.models import CutAbandoned, CutReverted
from sluicegate.events.problems import Code
from tests.simulation.seams import Defect, Function, always, skip, variant, without


@variant
def _later_wins(right: Function, log: Log, record: Any, body: Any, region: Any) -> Any:
    pending, number = log.pending[record.envelope.region], record.envelope.checkpoint
    found = pending.checkpoints.get(number)
    sealed = any(each.position.checkpoint == number for each in pending.sealed)
    same = found is not None and found.body is not None and not sealed
    if found is not None and same and pending.digest_of(number) == body.source_digest:
        found.body, found.missing = body, set(body.events).difference(found.parts)
    return right(log, record, body, region)


@variant
def _contradiction_is_replay(right: Function, log: Log, record: Any, body: Any, region: Any) -> Any:
    number, at = record.envelope.checkpoint, region.position
    known = log.pending[record.envelope.region].digest_of(number)
    if region.covers(record.envelope.incarnation, number) and at.checkpoint == number:
        known = at.digest
    return right(log, record, body.model_copy(update={"source_digest": known or body.source_digest}), region)


@variant
def _adds_no_files(right: Function, replica: Any, record: Any) -> Any:
    if record.envelope.type is EventType.CHECKPOINT_COMPLETED:
        record = record._replace(envelope=record.envelope._replace(writer=""))
    return right(replica, record)


@variant
def _completion_leaves_idle(right: Function, log: Log, record: Any, body: Any, region: Any) -> Any:
    idle = region.idle
    found = right(log, record, body, region)
    region.idle = idle
    return found


@variant
def _whatever_it_names(right: Function, log: Log, envelope: Any, body: Any, region: Any) -> Any:
    found = right(log, envelope, body, region)
    region.idle = body.idle
    return found


@variant
def _not_remembered(right: Function, region: Any, number: int) -> None:
    region.idle = False


@variant
def _of_any_process(right: Function, log: Log, record: Any) -> Any:
    region = log.state.regions.get(record.envelope.region)
    if region is not None and hasattr(record.body, "run"):
        record = record._replace(body=record.body.model_copy(update={"run": region.run}))
    return right(log, record)


@variant
def _all_parts(right: Function, self: Any) -> list[Part]:
    return list(self.parts.values()) if right(self) else []


@variant
def _too_late(right: Function, self: Any, record: Any) -> Any:
    ignored, event = right(self, record), record.envelope.id
    found = self.checkpoints.get(record.envelope.checkpoint)
    if ignored is None and found.body is not None and event in found.body.events:
        found.missing.add(event)
    return ignored


def _keeps_after(kind: type, *, watermark: bool = False, counters: bool = False) -> Any:
    """Keep the stream's watermark, or the counters, when a record of this kind changes them."""

    @variant
    def keeping(right: Function, self: Any, record: Any) -> Any:
        state = self.state
        mark = state.watermark
        counts = {name: each.fallbacks for name, each in state.regions.items()}
        applied = right(self, record)
        if isinstance(record.body, kind) and applied.ignored is None:
            state.watermark = mark if watermark else state.watermark
            for name in counts if counters else ():
                state.regions[name].fallbacks = counts[name]
        return applied

    return keeping


@variant
def _highest(right: Function, log: Log, names: set[str]) -> Any:
    marks = [log.state.regions[name].watermark for name in names if name in log.state.regions]
    known = [mark for mark in (*marks, log.state.watermark) if mark is not None]
    return max(known, default=None)


@variant
def _forgets_the_former(right: Function, log: Log, names: set[str]) -> Any:
    former, log.state.watermark = log.state.watermark, None
    found = right(log, names)
    log.state.watermark = former
    return former if found is None else found


@variant
def _before_the_outcome(right: Function, log: Log) -> Any:
    made, log.state.unresolved = log.state.unresolved, None
    try:
        return right(log)
    finally:
        log.state.unresolved = made


@variant
def _awaits_nobody(right: Function, log: Log, name: str, offset: int, *, drain: bool) -> Any:
    found = right(log, name, offset, drain=drain)
    for savepoint in log.state.savepoints:
        savepoint.awaited = []
    return found


IN_OUTCOMES: Final = (
    # First completion wins.
    Defect("a later completion wins", "a completion", _later_wins, ("I1", "I2", "I3"), ("replay", "restart")),
    Defect(
        "a completion with files adds none", "applying a record", _adds_no_files, ("I1", "I12"), ("replay",)
    ),
    Defect(
        "a contradiction counts as a replay",
        "a completion",
        _contradiction_is_replay,
        ("I2",),
        ("contradict",),
    ),
    Defect(
        "a completion leaves a region idle",
        "a completion",
        _completion_leaves_idle,
        ("I5", "I7"),
        ("idle in a batch", "heartbeat"),
    ),
    Defect(
        "an idle heartbeat counts whatever it names",
        "a heartbeat",
        _whatever_it_names,
        ("I5", "I7"),
        ("idle in a batch", "heartbeat", "duplicate"),
    ),
    Defect(
        "a beginning is not remembered",
        "the beginning of a checkpoint",
        _not_remembered,
        ("I5", "I7"),
        ("idle in a batch", "heartbeat", "duplicate"),
    ),
    Defect(
        "unnamed events are committed", "named parts", _all_parts, ("I1", "I2", "I3"), ("zombie", "duplicate")
    ),
    Defect("uploads may not follow the completion", "adding a part", _too_late, ("I1", "I12"), ()),
    Defect(
        "events of an older process count",
        "events of regions",
        _of_any_process,
        ("I2", "I5", "I7", "I12"),
        ("late closing", "restart"),
    ),
    Defect("a closed region is gone", "gone regions", lambda right: lambda self: self.ends, ("I7",), ()),
    # Decisions, outcomes and reverts.
    Defect("fallbacks are not found", "fallbacks of a cut", always([]), ("I7",), ("wait", "restart")),
    Defect(
        "an outcome's digest is not compared",
        "outcomes",
        without(Code.OTHER_DIGEST),
        ("I1", "I2", "I3"),
        ("forged outcome", "revert", "unknown, invisible"),
    ),
    Defect(
        "a revert keeps the watermark",
        "applying a record",
        _keeps_after(CutReverted, watermark=True),
        ("I5",),
        ("revert", "refused", "unknown, invisible"),
    ),
    Defect(
        "a revert keeps the counters",
        "applying a record",
        _keeps_after(CutReverted, counters=True),
        ("I7",),
        ("revert", "wait", "unknown, invisible"),
    ),
    Defect(
        "an abandoned attempt changes no counter",
        "applying a record",
        _keeps_after(CutAbandoned, counters=True),
        ("I7",),
        ("wait", "policy"),
    ),
    Defect(
        "a revert loses the checkpoints",
        "restoring checkpoints",
        skip,
        ("I1", "I12"),
        ("revert", "refused", "unknown, invisible"),
    ),
    Defect(
        "the incarnation that a revert names lives on",
        "incarnations after a revert",
        skip,
        ("I1", "I2"),
        ("revert", "refused", "unknown, invisible"),
    ),
    Defect("the watermark is the highest of all", "the watermark", _highest, ("I5",), ("wait",)),
    Defect(
        "the watermark may fall",
        "the watermark",
        _forgets_the_former,
        ("I5",),
        ("reset", "reassign", "heartbeat"),
    ),
    Defect(
        "a savepoint is reached before the outcome",
        "reached savepoints",
        _before_the_outcome,
        ("I7",),
        ("savepoint", "unknown, invisible", "revert"),
    ),
    Defect(
        "a savepoint awaits no lagging region",
        "targets of savepoints",
        _awaits_nobody,
        ("I7",),
        ("savepoint", "wait"),
    ),
)
