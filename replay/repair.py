"""Repair: commit valid decisions of the log that the table provably lacks.

Repair asks and publishes like a coordinator, with the same ids and digests. It cannot commit twice, even
beside other writers. A decision is published on exactly the head where its absence was proven, so the slower
writer finds it. Only the last decisions can be lacking. A hole among them cannot be filled, because ids only
rise along a table's history.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sluicegate.coordinator.core.commit import Resolved
from sluicegate.coordinator.core.state import LightState, StateRecord
from sluicegate.kafka.bodies import BodyUnavailable
from sluicegate.lakes.port import SnapshotRef
from sluicegate.replay.base import Base
from sluicegate.replay.comparison import WRONG, Comparison, Finding, Standing
from sluicegate.replay.course import Settled
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.log import StreamLog
from sluicegate.replay.marks import Window
from sluicegate.replay.run import Pass, Say, run_over
from sluicegate.replay.tables import ReplayTable, standing


@dataclass
class Repaired:
    """Result of a repair, made or only planned."""

    committed: list[Finding] = field(default_factory=list)
    left: list[tuple[Finding, str]] = field(default_factory=list)
    """Decisions that were left out, with the reason."""
    done: Pass | None = None
    record: StateRecord | None = None
    """The state record to write, so that a coordinator continues from the present table."""


class Repair:
    """One repair of a table from a log."""

    def __init__(
        self,
        log: StreamLog,
        table: ReplayTable,
        newest: StateRecord | None,
        refuse_if_owned: Callable[[], Awaitable[None]],
        *,
        dry: bool,
    ) -> None:
        self._log = log
        self._table = table
        self._newest = newest
        self._refuse_if_owned = refuse_if_owned
        self._dry = dry
        self._state: LightState | None = None
        self._before: tuple[int, SnapshotRef] | None = None
        """The last decision found in the table with its own digest, and its snapshot."""
        self._last: int | None = None
        """Id of the stream's last commit in the table; 0 if there is none, None if unknown."""
        self._result = Repaired()

    async def run(self, stream: str, choices: list[Base], window: Window, say: Say) -> Repaired:
        """Commit the missing decisions in order.

        Raises ReplayRefused at the first decision that cannot be committed.

        Decisions before it stay committed.
        """
        await self._table.inspect()
        history = Comparison(await self._table.history(), self._table.settings.commit_user)
        self._last = history.newest if history.newest or not history.history.whole else 0
        end = await self._log.end()

        async def mend(settled: Settled) -> None:
            finding = history.judge(settled)
            if finding.standing in WRONG - {Standing.MISSING}:
                raise ReplayRefused(_wrong(finding))
            if finding.standing is Standing.THERE:
                self._before = finding.decision, history.ref(finding.snapshots[0])
            if finding.standing in (Standing.THERE, Standing.EXPIRED):
                return
            if history.newest is not None and finding.decision < history.newest:
                raise ReplayRefused(
                    f"decision {finding.decision} is not in the table, but {history.newest} is: what lies "
                    "before it cannot be put back in order. Build a fresh table: --into"
                )
            await self._commit(finding, settled, say)

        self._result.done = await run_over(self._log, stream, choices, end, window, mend, say=say)
        if not self._dry:
            self._result.record = await self._corrected_record()
        return self._result

    async def _commit(self, finding: Finding, settled: Settled, say: Say) -> None:
        if settled.open and settled.decision.void is not None:
            why = "an operator ordered to void it: the coordinator asks the table and does what is right"
            self._result.left.append((finding, why))
            return
        decision = settled.decision
        if self._last is not None and decision.id != self._last + 1:
            ends = f"decision {self._last}" if self._last else "nothing"
            raise ReplayRefused(
                f"decision {decision.id} cannot be committed: the table ends at {ends} of this stream, and "
                "what lies between is not in this range of the log. Take it along with --from earliest; if "
                "the log has it no more, put the table's snapshots back"
            )
        self._last = decision.id
        if not settled.voided and decision.void is not None:
            # The void came too late: a later decision follows this one in the log.
            decision = decision.model_copy(update={"void": None})
        if self._dry:
            self._result.committed.append(finding)
            return
        # A coordinator may have started since the last commit of this run.
        await self._refuse_if_owned()
        offsets = [] if settled.voided else decision.parts
        try:
            bodies = await self._log.fetcher.fetch(self._log.source.partition, offsets) if offsets else {}
        except BodyUnavailable as error:
            raise ReplayRefused(f"decision {decision.id} cannot be committed: {error}") from error
        state = await self._standing(decision.id)
        outcome = await self._table.commit(decision, state, bodies)
        if isinstance(outcome, Resolved) and outcome.snapshot is None:
            raise ReplayRefused(f"the table has a later decision than {decision.id}, and not that one")
        made = outcome.snapshot.id if outcome.snapshot else 0
        say(f"decision {decision.id} is in the table as snapshot {made}")
        self._result.committed.append(finding._replace(snapshots=(made,)))

    async def _standing(self, decision: int) -> LightState:
        """Return the state from which absence is proven: the previous commit, or the recorded snapshot."""
        if self._state is None:
            allowed = self._table.settings.allowed_locations
            self._state = standing(await self._table.inspect(), self._table.settings, allowed)
            history = await self._table.history()
            seen = any(past.commit_user == self._table.settings.commit_user for past in history.commits)
            newest = self._newest.state if self._newest else None
            if self._before is not None and self._before[0] == decision - 1:
                # Commits are ordered, so no snapshot up to that of the previous decision has this one.
                self._state.recorded = self._before[1]
            if not seen and not history.whole and newest is not None and newest.committed < decision:
                self._state.recorded = newest.recorded
        self._state.decided = decision
        return self._state

    async def _corrected_record(self) -> StateRecord | None:
        """Return the newest record with a snapshot of the table, if the recorded one no longer exists."""
        newest, result = self._newest, self._result
        if newest is None or not result.committed:
            return None
        history = await self._table.history()
        recorded = newest.state.recorded
        if recorded is None or any(past.ref == recorded for past in history.commits):
            return None
        # A snapshot before the oldest readable one has expired, which is normal.
        if not history.whole and recorded.id < history.commits[-1].ref.id:
            return None
        user, last = self._table.settings.commit_user, newest.state.committed
        there = next(
            (each.ref for each in history.commits if each.commit_user == user and each.decision == last), None
        )
        state = newest.state.model_copy(update={"recorded": there, "snapshot": there.id if there else None})
        return newest.model_copy(update={"state": state, "stalled": None})


def _wrong(finding: Finding) -> str:
    at = ", ".join(map(str, finding.snapshots))
    if finding.standing is Standing.DOUBLED:
        return f"decision {finding.decision} is in the table more than once (snapshots {at}): see --verify"
    return (
        f"decision {finding.decision} is in the table with other content (snapshot {at}, digest "
        f"{finding.digest}): another deployment commits as the same commit user. See --verify"
    )
