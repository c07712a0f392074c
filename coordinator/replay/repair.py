"""Repair: commit valid decisions of the log that the table provably lacks.

Repair asks and publishes like a coordinator, with the same ids and digests. It cannot commit twice, even
beside other writers. A decision is published on exactly the head where its absence was proven, so the slower
writer finds it. Only the last decisions can be missing. A gap among them cannot be filled, because ids only
rise along a table's history.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sluicegate.coordinator.core.table import TableProgress, asked_decision
from sluicegate.coordinator.observe.messages import ADOPT, fill, format_cause, format_problem
from sluicegate.coordinator.replay.decisions import (
    CommitStatus,
    Comparison,
    Finding,
    LoggedDecision,
    ReplayRefused,
    Start,
)
from sluicegate.coordinator.replay.log import Print, StreamLog
from sluicegate.coordinator.replay.reading import Reading, Window, read_decisions
from sluicegate.coordinator.replay.tables import ReplayTable
from sluicegate.events.models import SnapshotRef, StreamCommand
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.bodies import BodyUnavailable
from sluicegate.lakes.history import TableHistory


@dataclass
class Repaired:
    """Result of a repair, made or only planned."""

    committed: list[Finding] = field(default_factory=list)
    left: list[tuple[Finding, str]] = field(default_factory=list)
    """Decisions that were left out, with the reason."""
    done: Reading | None = None
    orders: list[StreamCommand] = field(default_factory=list)
    """Orders to append, so that a coordinator continues from the table as it is now."""


class Repair:
    """One repair of a table from a log."""

    def __init__(
        self,
        log: StreamLog,
        stream: str,
        table: ReplayTable,
        refuse_if_owned: Callable[[], Awaitable[None]],
        *,
        dry: bool,
    ) -> None:
        self._log = log
        self._stream = stream
        self._table = table
        self._refuse_if_owned = refuse_if_owned
        self._dry = dry
        self._before: tuple[int, SnapshotRef | None] | None = None
        """The last decision that the table has with its own digest, and its snapshot."""
        self._last: int | None = None
        """Id of the stream's last commit in the table; 0 if there is none, None if unknown."""
        self._result = Repaired()

    async def run(self, start: Start, window: Window, note: Print, show: Print) -> Repaired:
        """Commit the missing decisions in order. `note` gets each commit, `show` the progress.

        Raises ReplayRefused at the first decision that cannot be committed. Decisions before it stay
        committed.
        """
        await self._table.inspect()
        history = Comparison(await self._table.history(), self._table.settings.commit_user)
        self._last = history.newest if history.newest or not history.history.whole else 0

        async def repair(logged: LoggedDecision) -> None:
            if logged.table not in (None, history.history.identity):
                replaced = Problem(code=Code.TABLE_REPLACED, detail=history.history.identity)
                raise ReplayRefused(format_problem(replaced, self._stream))
            finding = history.judge(logged)
            if finding.status is CommitStatus.THERE:
                self._before = finding.decision, finding.snapshots[0]
            elif self._is_missing(finding, history):
                await self._commit(finding, logged, history.history, note)

        end = await self._log.end()
        done = await read_decisions(
            self._log, self._stream, start, end, window, repair, show, accounted=not self._dry
        )
        self._result.done = done
        if not self._dry and done.fold.problem is None:
            self._result.orders = self._orders(done, await self._table.history())
        return self._result

    def _is_missing(self, finding: Finding, history: Comparison) -> bool:
        """True if the decision is to be committed. Raises ReplayRefused."""
        if finding.status in (CommitStatus.OTHER, CommitStatus.DOUBLED):
            raise ReplayRefused(_wrong(finding, self._stream))
        if finding.status is CommitStatus.EXPIRED:
            return False
        if finding.status is CommitStatus.UNKNOWN:
            why = "the log has it as committed, and the history that could show it has expired"
            self._result.left.append((finding, why))
            return False
        if history.newest is not None and finding.decision < history.newest:
            raise ReplayRefused(
                f"decision {finding.decision} is not in the table, but {history.newest} is: commits are "
                "ordered, so it cannot be added before that one. Build a fresh table: sluicegate replay "
                f"rebuild --stream {self._stream} --into TABLE"
            )
        return True

    async def _commit(
        self, finding: Finding, logged: LoggedDecision, history: TableHistory, note: Print
    ) -> None:
        decision = logged.decision
        if logged.undetermined:
            why = "an operator ordered to revert it: the coordinator asks the table, and chooses"
            self._result.left.append((finding, why))
            return
        if self._last is not None and decision.id != self._last + 1:
            ends = f"decision {self._last}" if self._last else "no decision"
            raise ReplayRefused(
                f"decision {decision.id} cannot be committed: the table ends with {ends} of this stream, and "
                "those in between are not in this range of the log. Include them with --from earliest; if "
                "the log does not have them any more, restore the table's snapshots"
            )
        self._last = decision.id
        # A coordinator may have started since the last commit of this run.
        if not self._dry:
            await self._refuse_if_owned()
        offsets = [] if logged.reverted else decision.parts
        try:
            bodies = await self._log.bodies(offsets) if offsets else {}
        except BodyUnavailable as error:
            why = format_cause(error.cause)
            raise ReplayRefused(f"decision {decision.id} cannot be committed: {why}") from error
        policy = logged.policy
        if self._dry:
            await self._table.require_files(logged, history.identity, policy, bodies)
            self._result.committed.append(finding)
            return
        known = self._known(logged, history)
        outcome = await self._table.commit(logged, history.identity, known, policy, bodies)
        self._before = decision.id, outcome.snapshot
        made = outcome.snapshot
        note(f"decision {decision.id} is in the table{f' as snapshot {made.id}' if made else ''}")
        self._result.committed.append(finding._replace(snapshots=(made,) if made else ()))

    def _known(self, logged: LoggedDecision, history: TableHistory) -> SnapshotRef | None:
        """Return a head that no commit of the decision precedes; None if the whole history is readable."""
        if self._before is not None and self._before[0] == logged.decision.id - 1:
            # Commits are ordered: no snapshot up to that of the decision before has this one.
            return self._before[1]
        return None if history.whole else logged.decision.head

    def _orders(self, done: Reading, history: TableHistory) -> list[StreamCommand]:
        """Return the operator's statement about the head, if the log's own proof names a lost snapshot.

        After a rollback and this repair, the outcomes in the log name snapshots that do not exist any more.
        So they do if the owner of the table has brought the commits back in other snapshots.
        """
        state = done.fold.replica.state
        asked, known = asked_decision(state), TableProgress().known_head(state, None)
        if self._before is None or (not self._result.committed and self._before[0] != asked - 1):
            return []
        user = self._table.settings.commit_user
        if any(past.commit_user == user and past.decision >= asked for past in history.commits):
            return []
        there = known is None or any(past.ref == known for past in history.commits)
        # A snapshot before the oldest readable one has expired, which is normal.
        expired = known is not None and not history.whole and known.id < history.commits[-1].ref.id
        if there or expired or not history.commits:
            return []
        head = history.commits[0].ref
        orders = [StreamCommand(command="resume", decision=asked, head=head)]
        # The statement ends a pause, which another operator may have ordered for another reason.
        return [*orders, StreamCommand(command="pause")] if state.paused else orders


def _wrong(finding: Finding, stream: str) -> str:
    at = ", ".join(str(each.id) for each in finding.snapshots)
    if finding.status is CommitStatus.DOUBLED:
        return (
            f"decision {finding.decision} is in the table more than once (snapshots {at}). See: sluicegate "
            "replay verify"
        )
    return (
        f"decision {finding.decision} is in the table with other content (snapshot {at}, digest "
        f"{finding.digest}): another deployment commits as the same commit user, or this log was restored "
        "from an older copy and continued differently. To continue from the table, "
        + fill(ADOPT, {"stream": stream})
    )
