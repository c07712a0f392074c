"""What the dumb reading of the log knows at an offset."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from sluicegate.events.models import Assignment, Position, StreamPolicy
from sluicegate.simulator.accounts import Account, Target, Verdict


class Rejection(NamedTuple):
    """Why a decision is void, and the invariant that it would break if it were executed."""

    invariant: str
    reason: str


@dataclass
class Standing:
    """The stream as of an offset of its log."""

    coverage: Counter[str] = field(default_factory=Counter)
    regions: dict[str, Account] = field(default_factory=dict)
    policy: StreamPolicy | None = None
    assignment: Assignment | None = None
    next: Assignment | None = None
    shared: dict[int, frozenset[str]] = field(default_factory=dict)
    """The regions of the assignments of which something is undecided, by number."""
    savepoint: Target | None = None
    decided: int = 0
    attempt: int = 0
    watermark: int | None = None
    blocked: bool = False
    """Paused, or stalled by way of the log: nothing is decided."""
    valid: dict[int, Verdict] = field(default_factory=dict)
    rejected: dict[str, list[Rejection]] = field(default_factory=dict)
    """By digest, why decisions are void."""
    abandoned: set[tuple[int, int]] = field(default_factory=set)
    ordered: set[int] = field(default_factory=set)
    """The decisions that somebody ordered to be given up."""
    saved: dict[str, int] = field(default_factory=dict)
    """The savepoints that are taken, with the decision after whose commit they are."""
    drains: set[str] = field(default_factory=set)
    openings: dict[int, str | None] = field(default_factory=dict)
    """Of each opening, by offset: why it is refused; None if it is not."""
    accepted: dict[str, Position | None] = field(default_factory=dict)
    """Of each opening that is not refused, by id: the checkpoint of its region that it goes on from."""
    faults: set[tuple[str, int, str]] = field(default_factory=set)
    """Why regions ever stalled: region, checkpoint, and what must be said of it."""
    starts: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    """Of each opening that named no parent where there was one, by offset: where its lineage starts."""

    def saw(self, what: str) -> None:
        """Count a transition."""
        self.coverage[what] += 1

    def account(self, name: str) -> Account:
        """A region of the stream."""
        return self.regions.setdefault(name, Account())

    def leave(self, account: Account) -> None:
        """Let a closed region go whose final checkpoint is in the cut."""
        if not account.closed or account.left or not account.chain:
            return
        *earlier, live = [account.lives[name] for name in account.chain]
        stands = live.floor if live.decided is not None or live.start is None else live.start
        drained = all(life.floor >= (life.limit or 0) for life in earlier)
        account.left = drained and (account.final is None or account.final <= stands)
        if account.left:
            self.saw("region: left")
