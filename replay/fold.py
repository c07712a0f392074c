"""The decisions of a stream's log, in order, with their outcomes.

Pure: records of the log in, decisions out. `Replica` has the rules, which are those of every coordinator. A
table is not needed: the log alone determines the content of each commit.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from sluicegate.coordinator.account import account_after, account_of
from sluicegate.coordinator.core.replica import Replica
from sluicegate.events.attributes import RawHeader
from sluicegate.events.codec import Reading, read_record
from sluicegate.events.envelope import LogRecord
from sluicegate.events.models import CutCommitted, CutDecided, CutReverted
from sluicegate.events.problems import Code, Problem
from sluicegate.replay.decisions import LoggedDecision, Step
from sluicegate.replay.start import Start
from sluicegate.replay.unverified import Unverified

Decoder = Callable[[int, int, Sequence[RawHeader], bytes | None], Reading]
"""Reads a record of the log by offset, append time, headers and value, as `read_record` does."""


class LogFold:
    """The log of one stream, folded up to an offset."""

    def __init__(
        self,
        stream: str,
        partition: int,
        start: Start,
        decode: Decoder = read_record,
        accounted: Callable[[int], bool] = lambda decision: False,
    ) -> None:
        """Begin a fold; `decode` is that of the coordinators of the stream, which also checks signatures.

        `accounted`: True for each decision whose account is wanted.
        """
        self.stream = stream
        self.start = start
        self._decode = decode
        self._accounted = accounted
        self.replica = Replica(stream, partition, start.state, start.applied)
        self.problem: Problem | None = None
        """Reason for which later records are not applied; None if all were."""
        self.unverified = Unverified(stream)
        """Later records that are refused for their signature, and may be true."""
        self._open: LoggedDecision | None = None
        """The decision without an outcome."""
        self._time = 0
        """Append time of that decision, if it is in the state before the first record."""
        self._refilled = False

    def read(self, offset: int, time: int, headers: Sequence[RawHeader], value: bytes | None) -> Step | None:
        """Apply one record of the partition; None if it has no event of the stream that can be applied."""
        record, flaw = self._decode(offset, time, headers, value)
        fresh = offset > self.start.applied
        if fresh and flaw is not None and flaw.stalls and flaw.stream == self.stream:
            self.problem = self.problem or flaw.problem
        if fresh:
            self.unverified.note(offset, time, flaw)
        if record is None or record.envelope.stream != self.stream:
            return None
        # The files of a skipped record are nobody's: they are neither committed nor orphans.
        step = self.apply(record)
        return None if record.skipped else step

    def apply(self, record: LogRecord) -> Step | None:
        """Apply one record of the stream; None if no later record can be applied."""
        fresh = record.offset > self.start.applied
        if fresh:
            self._finish_refill()
        return None if self.problem is not None else self._step(record, fresh=fresh)

    def finish(self) -> LoggedDecision | None:
        """Return the decision without an outcome, after the last record; None if there is none."""
        self._finish_refill()
        made, state = self._open, self.replica.state
        if made is None:
            return None
        wanted = self._accounted(made.decision.id)
        account = account_of(self.stream, state, made.decision.digest) if wanted else None
        return replace(made, policy=state.policy, account=account)

    def _step(self, record: LogRecord, *, fresh: bool) -> Step:
        state, body = self.replica.state, record.body
        if state.pending is not None and record.offset == state.pending.offset:
            self._time = record.time
        applied = self.replica.step(record)
        if applied.ignored is not None and applied.ignored.code is Code.SKIPPED_LATE:
            self.problem = applied.ignored
        settled = None
        if applied.resolved is not None and self._open is not None:
            outcome = body if isinstance(body, CutCommitted | CutReverted) else None
            # The order to revert it, if there is one, came after the decision.
            settled = replace(self._open, policy=state.policy, table=state.table, outcome=outcome)
            if outcome is not None and self._accounted(outcome.decision):
                settled = replace(settled, account=account_after(self.stream, state, outcome.digest))
            self._open = None
        elif fresh and isinstance(body, CutDecided) and applied.ignored is None:
            self._open = self._opened(record.time)
        return Step(record, applied, fresh, settled)

    def _finish_refill(self) -> None:
        """Collect the content of the decision that the state before the first record has open."""
        if self._refilled:
            return
        self._refilled = True
        self.replica.finish_refill()
        if self.replica.lost_content:
            self.problem = Problem(code=Code.LOG_DISCONTINUOUS, number=self.start.begin)
        self._open = self._opened(self._time)

    def _opened(self, time: int) -> LoggedDecision | None:
        log = self.replica.log
        if log.state.pending is None:
            return None
        included = {
            name: tuple(each.position.checkpoint for each in checkpoints)
            for name, checkpoints in log.included.items()
        }
        return LoggedDecision(log.state.pending, time, included, log.state.policy, log.state.table)
