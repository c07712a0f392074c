"""Verification: missing, doubled or foreign commits of a table, by the log's decisions."""

from dataclasses import dataclass, field

from sluicegate.replay.base import Base
from sluicegate.replay.comparison import WRONG, Comparison, Finding, Foreign, Standing
from sluicegate.replay.course import Settled
from sluicegate.replay.log import StreamLog
from sluicegate.replay.marks import Window
from sluicegate.replay.run import Pass, Say, run_over
from sluicegate.replay.tables import ReplayTable


@dataclass
class Verdict:
    """Result of a verification."""

    done: Pass
    history: Comparison
    counts: dict[Standing, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    """Decisions that are not simply in the table, in order; expired ones are only counted."""
    foreign: list[Foreign] = field(default_factory=list)
    replaced: bool = False
    """True if the table is not the one that the stream has committed to."""

    @property
    def wrong(self) -> bool:
        """True if table and log differ."""
        return self.replaced or bool(self.foreign) or any(self.counts.get(each) for each in WRONG)

    def count(self, finding: Finding) -> None:
        """Add the finding of a decision."""
        self.counts[finding.standing] = self.counts.get(finding.standing, 0) + 1
        if finding.standing not in (Standing.THERE, Standing.EXPIRED):
            self.findings.append(finding)


async def verify(
    log: StreamLog,
    stream: str,
    choices: list[Base],
    window: Window,
    table: ReplayTable,
    *,
    known: str | None,
    working: bool,
    say: Say,
) -> Verdict:
    """Compare a range of the log with the table; nothing is changed.

    `known` is the identity of the table that the stream has committed to. `working` is True if a coordinator
    runs: its last decisions may not be published yet. Raises ReplayRefused, KafkaError, TimeoutError.
    """
    user = table.settings.commit_user
    # A decision is in the log before it is in the table, so the history is read before the end offset.
    before = Comparison(await table.history(), user)
    end = await log.end()
    found: list[Finding] = []
    counts: dict[Standing, int] = {}

    async def judge(settled: Settled) -> None:
        finding = before.judge(settled)
        if finding.standing in (Standing.THERE, Standing.EXPIRED):
            counts[finding.standing] = counts.get(finding.standing, 0) + 1
        else:
            found.append(finding)

    done = await run_over(log, stream, choices, end, window, judge, say=say)
    verdict = Verdict(done, before, counts, replaced=known not in (None, before.history.identity))
    if window.from_start:
        # They precede the starting point, so only their ids are known.
        for finding in before.lost(done.course.known_from):
            verdict.count(finding)
    # Compare again with a newer history: decisions published during the reading are not missing.
    after = Comparison(await table.history(), user) if found else before
    told = max((base.record.state.committed for base in choices if base.record is not None), default=0)
    for finding in found:
        verdict.count(_again(finding, after, told, working=working))
    verdict.foreign = _foreign(before, done, window)
    return verdict


def _again(finding: Finding, after: Comparison, told: int, *, working: bool) -> Finding:
    """Judge a missing decision again; it is pending if a coordinator may still publish it.

    A decision that a state record has as committed (`told`) is not pending.
    """
    if finding.settled is None or finding.standing is not Standing.MISSING:
        return finding
    seen = after.judge(finding.settled)
    ahead = after.newest is None or seen.decision > after.newest
    if working and ahead and seen.decision > told and seen.standing is Standing.MISSING:
        return seen._replace(standing=Standing.PENDING)
    return seen


def _foreign(history: Comparison, done: Pass, window: Window) -> list[Foreign]:
    """Return foreign commits within the range; a range with an open end has no last decision."""
    known = done.course.known_from
    last = None if window.open_end and done.course.unreadable is None else done.last or 0
    if done.first is None:
        # Without a decision in the range, only a commit after all known ones can be foreign.
        return history.foreign(known + 1, last) if window.from_start else []
    first = known + 1 if window.from_start else done.first
    return history.foreign(first, last)


async def list_decisions(
    log: StreamLog, stream: str, choices: list[Base], window: Window, table: ReplayTable, *, say: Say
) -> tuple[Pass, list[Finding]]:
    """Return the decisions of a range of the log, with their state in the table. Raises as `verify` does."""
    history = Comparison(await table.history(), table.settings.commit_user)
    found: list[Finding] = []

    async def note(settled: Settled) -> None:
        found.append(history.judge(settled))

    return await run_over(log, stream, choices, await log.end(), window, note, say=say), found
