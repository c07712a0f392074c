"""A decision of a stream's log with its outcome, as the fold of the log finds it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sluicegate.coordinator.account import Account
from sluicegate.coordinator.core.cuts import revert_digest
from sluicegate.coordinator.core.log import Applied
from sluicegate.coordinator.core.state import Decision
from sluicegate.events.envelope import LogRecord
from sluicegate.events.models import CutCommitted, CutReverted, StreamPolicy


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """A valid decision of the log."""

    decision: Decision
    time: int
    """Append time in milliseconds."""
    included: Mapping[str, tuple[int, ...]]
    """By region, the checkpoints that it includes."""
    policy: StreamPolicy | None
    """The policy at its outcome, or at the end of the log."""
    table: str | None
    """Identity of the stream's table; None if no outcome precedes it and it has none itself."""
    outcome: CutCommitted | CutReverted | None = None
    """None: the log has no outcome yet, which only the last decision of a log can lack."""
    account: Account | None = None
    """The positions after it, for the table; None: nobody has asked for them."""

    @property
    def reverted(self) -> bool:
        """True if an empty commit has taken its place in the table."""
        return isinstance(self.outcome, CutReverted)

    @property
    def undetermined(self) -> bool:
        """True if an order to revert is open: the coordinator chooses between the commit and the revert."""
        return self.outcome is None and self.decision.revert is not None

    @property
    def digests(self) -> tuple[str, ...]:
        """Return the digests that the table may have under its id, the expected one first."""
        if self.outcome is not None:
            return (self.outcome.digest,)
        revert = revert_digest(self.decision)
        return (self.decision.digest, revert) if revert is not None else (self.decision.digest,)

    def includes(self, region: str, incarnation: str | None, checkpoint: int) -> bool:
        """True if the decision includes a checkpoint; `incarnation` None: of any incarnation."""
        to = self.decision.moves.get(region)
        if to is None or incarnation not in (None, to.incarnation):
            return False
        return checkpoint in self.included.get(region, ())


class Step(NamedTuple):
    """One record of the stream, and its effect."""

    record: LogRecord
    applied: Applied
    fresh: bool
    """False: the state before the first record includes it already."""
    settled: LoggedDecision | None
    """The decision that got its outcome."""
