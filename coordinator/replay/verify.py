"""Verification: missing, doubled or foreign commits of a table, by the log's decisions."""

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
    Start,
)
from sluicegate.coordinator.replay.log import Print, StreamLog
from sluicegate.coordinator.replay.reading import Reading, Window, read_decisions
from sluicegate.coordinator.replay.tables import ReplayTable

_PLAIN = (CommitStatus.THERE, CommitStatus.EXPIRED)


@dataclass
class Verdict:
    """Result of a verification."""

    done: Reading
    history: Comparison
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
        return self.done.fold.replica.state.table not in (None, self.history.history.identity)

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
    table: ReplayTable,
    show: Print,
    *,
    everything: bool = False,
    forged: Collection[str] = (),
) -> Verdict:
    """Compare a range of the log with the table; nothing is changed.

    `everything`: keep the finding of each decision. `forged`: ids of keys, or `UNSIGNED`, whose refused
    records count as forged. Raises ReplayRefused, KafkaError, TimeoutError.
    """
    user = table.settings.commit_user
    # A decision is in the log before it is in the table: each commit of this history is before the end.
    before = Comparison(await table.history(), user)
    found: list[Finding] = []
    plain: dict[CommitStatus, int] = {}

    async def judge(logged: LoggedDecision) -> None:
        finding = before.judge(logged)
        if finding.status in _PLAIN and not everything:
            plain[finding.status] = plain.get(finding.status, 0) + 1
        else:
            found.append(finding)

    done = await read_decisions(log, stream, start, await log.end(), window, judge, show)
    verdict = Verdict(done, before, plain)
    # They precede the starting point, so only their ids are known.
    for finding in before.lost(start.resolved) if window.from_start else ():
        verdict.count(finding, keep=True)
    # An outcome is in the log after it is in the table: this history has every commit before the end.
    after = Comparison(await table.history(), user) if found else before
    for finding in found:
        verdict.count(_judge_again(finding, after), keep=everything)
    verdict.add_foreign(_foreign(before, done, window), done.fold.unverified.besides(forged))
    return verdict


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
