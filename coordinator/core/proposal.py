"""The next cut on its way into the log: chosen, its files checked, proposed, read back."""

from collections.abc import Container, Mapping
from typing import Final

from sluicegate.coordinator.core import cuts, owing
from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.clock import Alignment, LogClock
from sluicegate.coordinator.core.decisions import included
from sluicegate.coordinator.core.effects import AppendAbandoned, AppendDecision, CheckFiles, PartsOf
from sluicegate.coordinator.core.state import Decision
from sluicegate.events.models import CutAbandoned, CutDecided, Position

_FIRST_PAUSE: Final = 50
_LONGEST_PAUSE: Final = 10_000


class Proposal:
    """What one coordinator would decide next; only what is read back from the log is decided."""

    def __init__(self, book: Book, alignment_timeout: int, recheck_pause: int) -> None:
        self.clock = LogClock()
        self.alignment = Alignment(alignment_timeout, self.clock, book.state.abandoned_at)
        self.barred: dict[str, str] = {}
        """Regions whose files the table would not take, with the reason."""
        self.logged_at: int | None = None
        """Where the last entry of ours stands in the log, until it has been read back."""
        self._book = book
        self._recheck_pause = recheck_pause
        self._candidate: cuts.Choice | None = None
        self._late: set[str] = set()
        """Who would fall back with the candidate, or was waited for in vain."""
        self._stale = True
        """Whether something has changed since a candidate was looked for."""
        self._unseen = True
        """Whether something was read since the alignment last looked."""
        self._expired = False
        """Whether the alignment has expired and the log has been read to an end fetched after it."""
        self._checked: set[int] = set()
        self._recheck_at = 0
        self._voids = 0
        """How many decisions of ours in a row were void."""
        self._resume_at = 0

    @property
    def has_work(self) -> bool:
        """Whether there is a candidate, or one may be found."""
        return self._candidate is not None or self._stale

    def arrived(self, time: int) -> None:
        """Take note of a record that was read; `time` is its append time."""
        self.clock.read(time)
        self._stale = self._unseen = True

    def reconsider(self) -> None:
        """Something has changed that may make a cut possible."""
        self._stale = True

    def drop(self) -> None:
        """Forget the candidate: a decision was read, or it is not known whether it was logged."""
        self._candidate = None

    def logged(self, offset: int, *, candidate: bool) -> None:
        """An entry of ours was appended there; nothing more is, before it has been read."""
        self.logged_at = offset
        if candidate:
            self._candidate = None

    def judged(self, offset: int, now: int, *, void: bool) -> None:
        """A decision was read; ours that were void are repeated ever more slowly."""
        if offset == self.logged_at:
            # One may have been overtaken; the next was made in the light of what overtook it.
            self._voids = self._voids + 1 if void else 0
            pause = _FIRST_PAUSE * 2 ** min(self._voids, 16) if self._voids > 1 else 0
            self._resume_at = now + min(pause, _LONGEST_PAUSE)

    def read(self, position: int) -> None:
        """The log has been read up to there."""
        if self.logged_at is not None and position > self.logged_at:
            self.logged_at = None

    def recheck(self, region: str | None = None) -> None:
        """Let a region's files (all regions': at once) be checked again."""
        if region is None:
            self._recheck_at = 0
        else:
            self.barred.pop(region, None)

    def align(self, now: int, *, acting: bool) -> bool:
        """See whether something sealed has waited long enough for those that owe.

        Returns whether the log must be read to an end fetched from now on: what arrived before the expiry
        counts.
        """
        self.clock.tick(now)
        if acting and self._unseen:
            self._unseen = False
            self.alignment.look(owing.first_sealed(self._book), now)
        if not acting or self._book.state.pending or not owing.may_be_partial(self._book):
            self._expired = False
            return False
        since = self.alignment.since(cuts.waiting(self._book, self.barred))
        expired = self.alignment.expired(since, now)
        self._stale = self._stale or expired != self._expired
        self._expired = expired
        return expired and self.alignment.fence(since)

    def next_check(self, now: int) -> CheckFiles | None:
        """Choose a candidate, and have checked what of it was not checked yet."""
        state = self._book.state
        if self.logged_at is not None:
            return None
        again = now >= self._recheck_at
        if self._candidate is None and (self._stale or (again and self.barred)):
            self._stale = False
            self._choose(() if again else self.barred)
        elif self._late:
            # What takes its place has to be checked now: nothing else may happen that would ask again.
            self._choose(self.barred)
        if state.policy is None or state.blocked is not None:
            return None
        parts: tuple[PartsOf, ...] = ()
        if isinstance(self._candidate, CutDecided):
            parts = self._unchecked(self._candidate.cut)
        elif self._candidate is None and again:
            # No cut may be possible for long, and what is wrong may be mended meanwhile.
            parts = self._unchecked(self._barred_moves())
        names_checked = state.policy.file_names == "checked"
        where = (state.policy.allowed_locations, state.table or "")
        return CheckFiles(parts, *where, names_checked) if parts else None

    def next_entry(self, now: int) -> AppendDecision | AppendAbandoned | None:
        """The candidate, once all of it is checked."""
        state = self._book.state
        if self._candidate is None or state.pending or state.blocked is not None or now < self._resume_at:
            return None
        if self._late:
            self._choose(self.barred)
        if self._candidate is not None and not cuts.left_behind(self._book, self._candidate) <= self._late:
            # Somebody has begun to work since it was chosen, and is waited for.
            self._candidate = None
            self._choose(self.barred)
        if self._candidate is None:
            return None
        if isinstance(self._candidate, CutAbandoned):
            return AppendAbandoned(self._candidate)
        return AppendDecision(self._candidate) if not self._unchecked(self._candidate.cut) else None

    def checked(self, effect: CheckFiles, problems: dict[str, str], now: int) -> None:
        """Take note of what was found: a region with a problem stays where it is for a while."""
        for part in effect.parts:
            self.barred.pop(part.region, None)
            if part.region not in problems:
                self._checked.update(part.offsets)
        if problems:
            self.barred |= problems
            self._candidate = None
            self._recheck_at = now + self._recheck_pause

    def committed(self, decision: Decision) -> None:
        """What was checked for a decision that is in the table need not be known any more."""
        self._checked.difference_update(decision.parts)

    def _choose(self, barred: Container[str]) -> None:
        """Look for a candidate; one for which fewer are left behind takes the place of the one there is."""
        fresh = cuts.choose(self._book, barred, expired=self._expired)
        late = cuts.left_behind(self._book, fresh) if fresh is not None else set()
        if self._candidate is None or (fresh is not None and late < self._late):
            self._candidate, self._late = fresh, late

    def _barred_moves(self) -> dict[str, Position]:
        """How far the barred regions could go; those that could not go anywhere are barred no more."""
        regions, found = self._book.state.regions, dict[str, Position]()
        for name in list(self.barred):
            at = self._book.frontier(name) if regions[name].fault is None else None
            if at is None:
                del self.barred[name]
            else:
                found[name] = at
        return found

    def _unchecked(self, cut: Mapping[str, Position]) -> tuple[PartsOf, ...]:
        regions = self._book.state.regions
        moves = {name: at for name, at in cut.items() if at != regions[name].ref}
        found: dict[str, list[int]] = {}
        for name, _, _, entry in included(self._book, moves):
            fresh = [part.offset for part in entry.named() if part.offset not in self._checked]
            if fresh:
                found.setdefault(name, []).extend(fresh)
        return tuple(PartsOf(name, tuple(offsets)) for name, offsets in found.items())
