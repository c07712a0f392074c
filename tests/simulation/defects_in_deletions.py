"""Defects in retention, orphans, notifications, and in the state that others read."""

from dataclasses import replace
from typing import Any, Final

from sluicegate.coordinator.core.effects import Publish
from tests.simulation.seams import Defect, Function, always, skip, variant


def _needed_by_nobody(right: Function) -> Function:
    return lambda needed, kept_from, begin: right([kept_from], kept_from, begin)


def _without_other_processes(right: Function) -> Function:
    return lambda needed, kept_from, begin: right([max(needed)], kept_from, begin)


def _newest(right: Function) -> Function:
    return lambda newest, bases, begin: newest


@variant
def _all_lose(right: Function, self: Any, settled: Any, time: int) -> None:
    decision = settled.decision.model_copy(update={"parts": []})
    right(self, replace(settled, decision=decision), time)


@variant
def _numbered(right: Function, self: Any, kind: Any, name: str, *arguments: Any) -> None:
    right(self, kind, f"{name}/{len(self.due)}", *arguments)


def _without_due(right: Function) -> Function:
    return lambda self, *arguments: right(self, *arguments).model_copy(update={"due": ()})


@variant
def _of_newest_sealed(right: Function, self: Any, record: Any) -> Any:
    problem, answer = right(self, record)
    sealed = self.log.sealed(record.envelope.region)
    if sealed and sealed[-1].checkpoint.body is not None:
        offsets = sealed[-1].checkpoint.body.source_offsets
        answer = answer.model_copy(update={"source_offsets": offsets})
    return problem, answer


@variant
def _decided_as_committed(right: Function, self: Any, record: Any) -> Any:
    problem, answer = right(self, record)
    region = self.state.regions.get(record.envelope.region)
    at = region.position if region is not None else None
    return problem, answer.model_copy(update={"committed": at})


@variant
def _highest_of_regions(right: Function, self: Any, state: Any, table: Any) -> Any:
    step = right(self, state, table)
    marks = [each.watermark for each in state.regions.values() if each.watermark is not None]
    return replace(step, watermark=max(marks)) if isinstance(step, Publish) and marks else step


IN_DELETIONS: Final = (
    Defect(
        "the low-water marks are not asked",
        "records that may be deleted",
        _needed_by_nobody,
        ("I8",),
        ("records deleted",),
    ),
    Defect(
        "the highest low-water mark counts",
        "records that may be deleted",
        _without_other_processes,
        ("I8",),
        ("records deleted", "old record"),
    ),
    Defect(
        "base records are not read",
        "the record to recover from",
        _newest,
        ("I8",),
        ("records deleted", "old record"),
    ),
    Defect(
        "the end of an incarnation discards everything",
        "checkpoints that may be committed",
        always(False),
        ("I9",),
        ("orphans deleted", "remove"),
    ),
    Defect("winners are losers, too", "winners and losers", _all_lose, ("I9",), ("orphans deleted",)),
    Defect(
        "the id of a notification depends on the process",
        "notifications",
        _numbered,
        ("I10",),
        ("crash", "old record"),
    ),
    Defect("a commit is not announced", "notifications of commits", skip, ("I12",), ()),
    Defect("a record forgets what is due", "the state record", _without_due, ("I12",), ("crash",)),
    Defect(
        "an answer has the offsets of undecided checkpoints",
        "judging a registration",
        _of_newest_sealed,
        ("I11",),
        ("reset", "stand still"),
    ),
    Defect(
        "an answer tells a decided position as committed",
        "judging a registration",
        _decided_as_committed,
        ("I15",),
        ("reset", "restart", "unknown, invisible"),
    ),
    Defect(
        "a commit has the watermark of its fastest region",
        "the next step of a commit",
        _highest_of_regions,
        ("I6",),
        ("stand still",),
    ),
)
