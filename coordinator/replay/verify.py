"""Verification: missing, doubled or foreign commits of tables, by the log's decisions.

A further table has the decisions that touched it, and no other one. The log is read once for all of them.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from sluicegate.coordinator.replay.decisions import (
    WRONG,
    CommitStatus,
    Comparison,
    Finding,
    Foreign,
    Group,
    LoggedDecision,
    ReplayRefused,
    Start,
)
from sluicegate.coordinator.replay.log import StreamLog
from sluicegate.coordinator.replay.reading import Reading, Window, read_decisions
from sluicegate.coordinator.replay.tables import ReplayTable

_PLAIN = (CommitStatus.THERE, CommitStatus.EXPIRED)


@dataclass
class Verdict:
    """Result of a verification."""

    done: Reading
    history: Comparison
    """It names the table."""
    counts: dict[CommitStatus, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    """Decisions that are not simply in the table, in order; all decisions if they were asked for."""
    foreign: list[Foreign] = field(default_factory=list)
    unverified: tuple[Group, ...] = ()
    """Records that may have decisions which this command cannot verify."""
    unjudged: list[Foreign] = field(default_factory=list)
    """Commits whose decisions may be among those records."""

    @property
    def replaced(self) -> bool:
        """True if the table is not the one that the stream has committed to."""
        state, identity = self.done.fold.replica.state, self.history.history.identity
        if not self.history.table:
            return state.table not in (None, identity)
        known = state.tables.get(self.history.table)
        return known is not None and known.terms.identity != identity

    @property
    def wrong(self) -> bool:
        """True if table and log differ."""
        return self.replaced or bool(self.foreign) or any(self.counts.get(each) for each in WRONG)

    def add_foreign(self, found: list[Foreign], unverified: tuple[Group, ...]) -> None:
        """Add commits without a decision. If records cannot be verified, their decisions may be there."""
        self.unverified = unverified
        if unverified:
            self.unjudged = found
        else:
            self.foreign = found

    def count(self, finding: Finding, *, keep: bool) -> None:
        """Add the finding of a decision."""
        self.counts[finding.status] = self.counts.get(finding.status, 0) + 1
        if keep or finding.status not in _PLAIN:
            self.findings.append(finding)


async def verify(
    log: StreamLog,
    stream: str,
    start: Start,
    window: Window,
    tables: Collection[ReplayTable],
    *,
    everything: bool = False,
    forged: Collection[str] = (),
) -> dict[str, Verdict | ReplayRefused]:
    """Compare a range of the log with tables of the stream; nothing is changed.

    `everything`: keep the finding of each decision. `forged`: ids of keys, or `UNSIGNED`, whose refused
    records count as forged. Return the verdicts by name of the table, or the reason why it cannot be read.
    Raises KafkaError, TimeoutError, and ReplayRefused if the anchor, or a table alone, cannot be read.
    """
    checks: dict[str, _Check] = {}
    found: dict[str, Verdict | ReplayRefused] = {}
    for table in tables:
        # A decision is in the log before it is in the table: each commit of this history is before the end.
        try:
            checks[table.name] = _Check(table, await table.comparison(), everything=everything)
        except ReplayRefused as error:
            if not table.name or len(tables) == 1:
                raise
            found[table.name] = error

    async def judge(logged: LoggedDecision) -> None:
        for check in checks.values():
            check.judge(logged)

    done = await read_decisions(log, stream, start, await log.end(), window, judge)
    for name, check in checks.items():
        try:
            found[name] = await check.verdict(done, window, forged)
        except ReplayRefused as error:
            if not name or len(tables) == 1:
                raise
            found[name] = error
    return found


class _Check:
    """The comparison of one table, while the log is read."""

    def __init__(self, table: ReplayTable, before: Comparison, *, everything: bool) -> None:
        self._table = table
        self._before = before
        self._everything = everything
        self._found: list[Finding] = []
        self._plain: dict[CommitStatus, int] = {}

    def judge(self, logged: LoggedDecision) -> None:
        """Compare one decision, if it belongs into the table."""
        if not self._before.concerns(logged):
            return
        finding = self._before.judge(logged)
        if finding.status in _PLAIN and not self._everything:
            self._plain[finding.status] = self._plain.get(finding.status, 0) + 1
        else:
            self._found.append(finding)

    async def verdict(self, done: Reading, window: Window, forged: Collection[str]) -> Verdict:
        """Return the result, after the whole range was read. Raises ReplayRefused."""
        before, fold = self._before, done.fold
        verdict = Verdict(done, before, self._plain)
        # They precede the starting point, so only their ids are known.
        for finding in before.lost(_before_start(before, fold.start)) if window.from_start else ():
            verdict.count(finding, keep=True)
        # An outcome is in the log after it is in the table: this history has every commit before the end.
        after = await self._table.comparison() if self._found else before
        for finding in self._found:
            verdict.count(_judge_again(finding, after), keep=self._everything)
        verdict.add_foreign(_foreign(before, done, window), fold.unverified.besides(forged))
        return verdict


def _before_start(history: Comparison, start: Start) -> Collection[int]:
    """Return the decisions before the start of the log that the table must have, as far as they are known."""
    if not history.table:
        return range(1, start.resolved + 1)
    known = start.state.tables.get(history.table)
    if known is None or known.terms.identity != history.history.identity:
        return ()
    return (known.newest.decision,) if known.newest.decision else ()


def _judge_again(finding: Finding, after: Comparison) -> Finding:
    """Judge a decision by a newer history, if it was not simply in the table."""
    if finding.logged is None or finding.status in _PLAIN:
        return finding
    return after.judge(finding.logged)


def _foreign(history: Comparison, done: Reading, window: Window) -> list[Foreign]:
    """Return foreign commits within the range; a range with an open end has no last decision."""
    fold = done.fold
    last = None if window.open_end and fold.problem is None else done.last or 0
    if done.first is None:
        # Without a decision in the range, only a commit after all known ones can be foreign.
        return history.foreign(fold.start.resolved + 1, last) if window.from_start else []
    return history.foreign(fold.start.resolved + 1 if window.from_start else done.first, last)
