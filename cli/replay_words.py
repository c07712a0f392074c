"""Output of `sluicegate replay`, as lines and as JSON values."""

from typing import Any, Final, NamedTuple

from sluicegate.coordinator.telemetry.wording import iso_time
from sluicegate.replay.base import Base
from sluicegate.replay.comparison import Finding, Foreign, Standing
from sluicegate.replay.course import Settled
from sluicegate.replay.rebuild import Rebuilt
from sluicegate.replay.repair import Repaired
from sluicegate.replay.run import Pass
from sluicegate.replay.verify import Verdict

REPLACED: Final = (
    "the table was replaced: it is not the one that the stream has committed to. Put the old one back; a "
    "fresh one is filled by --into"
)
MOST_LINES: Final = 50
"""Limit of lines in a list for people; --json prints all."""


class Said(NamedTuple):
    """Output of one replay."""

    lines: list[str]
    values: dict[str, Any]
    """Values for --json."""
    different: bool = False


def verdict_said(stream: str, verdict: Verdict) -> Said:
    """Format the result of a verification."""
    counts, lines = verdict.counts, _range(stream, verdict.done)
    lines.append(f"  {counts.get(Standing.THERE, 0)} are in the table, each once and with its digest")
    proofs = _limits(verdict)
    lines += [f"  {proof}" for proof in proofs]
    if verdict.replaced:
        lines.append("  " + REPLACED)
    told = [_finding(finding) for finding in verdict.findings] + [_foreign(each) for each in verdict.foreign]
    lines += [f"  {line}" for line in _shortened(told)]
    lines.append(_conclusion(stream, verdict, unproven=bool(proofs)))
    values = {
        **_values(stream, verdict.done),
        "counts": {standing.value: counts.get(standing, 0) for standing in Standing},
        "findings": [_as_json(finding) for finding in verdict.findings],
        "foreign": [each._asdict() for each in verdict.foreign],
        "history_whole": verdict.history.history.whole,
        "not_proven": proofs,
        "table_replaced": verdict.replaced,
        "different": verdict.wrong,
    }
    return Said(lines, values, verdict.wrong)


def dry_said(stream: str, done: Pass, findings: list[Finding]) -> Said:
    """Format the decisions of the log, and the state of each in the table."""
    lines = _range(stream, done)
    lines += [f"  {line}" for line in _shortened([_finding(finding) for finding in findings])]
    values = {**_values(stream, done), "decisions": [_as_json(finding) for finding in findings]}
    return Said(lines, values)


def repaired_said(stream: str, repaired: Repaired, *, dry: bool) -> Said:
    """Format the commits that a repair made, or would make."""
    lines = _range(stream, repaired.done) if repaired.done else []
    did = "would be committed" if dry else "was committed"
    told = [f"{did}: {_decision(each)}" for each in repaired.committed]
    told += [f"left alone: {_decision(finding)}: {why}" for finding, why in repaired.left]
    lines += [f"  {line}" for line in _shortened(told)]
    if not repaired.committed:
        lines.append(f"nothing is missing in the table of stream {stream} that could be committed from here")
    if repaired.record is not None:
        lines.append(
            "the state record named a snapshot that the table has no more; it names "
            f"{_snapshot(repaired.record.state.snapshot)} now, so that a coordinator goes on"
        )
    values = {
        **(_values(stream, repaired.done) if repaired.done else {}),
        "dry_run": dry,
        "committed": [_as_json(each) for each in repaired.committed],
        "left": [{**_as_json(finding), "reason": why} for finding, why in repaired.left],
        "record_corrected": repaired.record is not None,
    }
    return Said(lines, values)


def rebuilt_said(stream: str, table: str, made: Rebuilt, *, dry: bool) -> Said:
    """Format the commits of a rebuilt table, made or only planned."""
    did = "would be made" if dry else "made"
    lines = _range(stream, made.done) if made.done else []
    lines.append(f"  {did} in {table}: {made.commits} commits of {made.files} files ({made.bytes:,} bytes)")
    if made.found:
        lines.append(f"  {made.found} commits were there, from an earlier run that was broken off")
    if made.left:
        lines.append("  left out: the last decision, which an operator ordered to void")
    values = {
        **(_values(stream, made.done) if made.done else {}),
        "dry_run": dry,
        "table": table,
        "commits": made.commits,
        "files": made.files,
        "bytes": made.bytes,
        "found": made.found,
        "left": made.left,
    }
    return Said(lines, values)


def _range(stream: str, done: Pass) -> list[str]:
    """Format the range of decisions, and the limits of the log."""
    if done.decisions:
        which = f"{done.decisions} decision{'s' * (done.decisions > 1)}, {done.first} to {done.last}"
    else:
        which = "no decision in this range"
    lines = [f"stream {stream}: {which} (the log was read from offset {done.base.begin} to {done.end})"]
    if done.base.said:
        lines.append(f"  {done.base.said}")
    if done.course.unreadable:
        lines.append(f"  nothing is known of what follows: {done.course.unreadable}")
    return lines


def _values(stream: str, done: Pass) -> dict[str, Any]:
    return {
        "stream": stream,
        "read_from": done.base.begin,
        "read_to": done.end,
        "first": done.first,
        "last": done.last,
        "decisions_judged": done.decisions,
        "note": done.base.said,
        "unreadable": done.course.unreadable,
        "from_record": _applied(done.base),
    }


def _applied(base: Base) -> int | None:
    return base.record.applied if base.record else None


def _limits(verdict: Verdict) -> list[str]:
    """Format the limits of the proof: snapshots of the table have expired."""
    expired, unknown = (verdict.counts.get(each, 0) for each in (Standing.EXPIRED, Standing.UNKNOWN))
    found: list[str] = []
    if expired:
        found.append(
            f"{expired} cannot be looked up: the snapshots have expired. That they are in the table follows "
            f"from decision {verdict.history.oldest}, since each is published only when the one before it is "
            "there; that each is there once and with its digest cannot be proven any more"
        )
    if unknown:
        found.append(
            f"{unknown} cannot be looked up, and nothing follows for them: all snapshots of this commit user "
            "have expired. Neither that they are in the table nor that they are not can be proven"
        )
    return found


def _conclusion(stream: str, verdict: Verdict, *, unproven: bool) -> str:
    if not verdict.wrong:
        ground = "as far as it can be proven, " if unproven else ""
        if verdict.counts.get(Standing.PENDING, 0):
            ground += "but for what is on its way, "
        return f"{ground}the table has what the log of stream {stream} decided, and nothing else in its name"
    missing = verdict.counts.get(Standing.MISSING, 0)
    way = (
        f"; go on with: sluicegate replay --stream {stream} --commit-missing, or a coordinator"
        * (missing > 0)
        if not verdict.foreign
        and missing == sum(each.standing is Standing.MISSING for each in verdict.findings)
        else ""
    )
    return f"THE TABLE DIFFERS from the log of stream {stream}{way}"


def _finding(finding: Finding) -> str:
    at = ", ".join(map(str, finding.snapshots))
    text = _decision(finding)
    match finding.standing:
        case Standing.THERE:
            return f"{text}: in the table as snapshot {at}"
        case Standing.MISSING:
            return f"MISSING  {text}"
        case Standing.DOUBLED:
            return f"DOUBLED  {text}: snapshots {at}"
        case Standing.OTHER:
            return f"OTHER CONTENT  {text}: snapshot {at} has the digest {finding.digest}"
        case Standing.PENDING:
            return f"not yet there, and a coordinator runs: {text}"
        case Standing.EXPIRED:
            return f"{text}: its snapshot has expired"
        case Standing.UNKNOWN:
            return f"not provable: {text}"


def _foreign(foreign: Foreign) -> str:
    return (
        f"FOREIGN  snapshot {foreign.snapshot} says that it is decision {foreign.decision} (digest "
        f"{foreign.digest or 'none'}), and the log has no such decision"
    )


def _decision(finding: Finding) -> str:
    settled = finding.settled
    if settled is None:
        return f"decision {finding.decision}"
    decision = settled.decision
    what = "voided, an empty commit" if settled.voided else f"{decision.files} files"
    time = iso_time(settled.time or None)
    when = f", {time}" if time else ""
    spans = "; ".join(_moves(settled))
    return f"decision {decision.id} (offset {decision.offset}{when}): {what}{f' of {spans}' if spans else ''}"


def _moves(settled: Settled) -> list[str]:
    return [
        f"{span.region} up to {span.upto} of lineage {span.lineage}"
        for span in sorted(settled.spans)
        if span.upto >= 0
    ]


def _as_json(finding: Finding) -> dict[str, Any]:
    settled = finding.settled
    values: dict[str, Any] = {
        "decision": finding.decision,
        "standing": finding.standing.value,
        "snapshots": list(finding.snapshots),
        "digest": finding.digest,
    }
    if settled is not None:
        values |= {
            "offset": settled.decision.offset,
            "time": settled.time or None,
            "files": settled.decision.files,
            "voided": settled.voided,
            "cut": {name: at.model_dump() for name, at in settled.decision.cut.items()},
        }
    return values


def _shortened(lines: list[str]) -> list[str]:
    rest = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], f"... and {rest} more; --json tells all"] if rest > 0 else lines


def _snapshot(number: int | None) -> str:
    return "none" if number is None else f"snapshot {number}"
