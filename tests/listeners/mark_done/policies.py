"""Partitions by day, and commits, for tests of the policy."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from sluicegate.listeners.mark_done.policy import (
    Commit,
    Decided,
    Period,
    Progress,
    Terms,
    commit,
    drain,
    elapse,
)

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


def at(text: str) -> int:
    """Return a time in UTC, such as `2024-02-01` or `2024-02-01 12:00`, in milliseconds."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


def by_day(values: Mapping[str, str | None]) -> Period:
    """Return the period of a partition `dt`. Raises ValueError."""
    text = values["dt"]
    if text is None:
        raise ValueError("the partition value dt is null")
    start = datetime.fromisoformat(text).replace(tzinfo=UTC)
    end = start + timedelta(days=1)
    return Period(int(start.timestamp() * 1_000), int(end.timestamp() * 1_000))


def without_time(_: Mapping[str, str | None]) -> None:
    """Return the period of a partition that has no time."""
    return


class Run:
    """A policy with its state. The state goes through JSON after each step, as after a restart."""

    def __init__(self, terms: Terms, resolve=by_day) -> None:  # type: ignore[no-untyped-def]
        self.terms = terms
        self.resolve = resolve
        self.progress = Progress()
        self.decision = 0

    def commit(
        self,
        days: Iterable[str | None] | None,
        *,
        now: str,
        watermark: str | None = None,
        partial: bool = False,
    ) -> list[str]:
        """Fold one commit; return the partitions that are marked."""
        self.decision += 1
        partitions = None if days is None else tuple({"dt": day} for day in days)
        seen = Commit(
            decision=self.decision,
            time=at(now),
            watermark=None if watermark is None else at(watermark),
            partial=partial,
            snapshot=self.decision,
            partitions=partitions,
        )
        return self.keep(commit(self.progress, seen, self.resolve, self.terms))

    def clock(self, now: str, more: int = 0) -> list[str]:
        """Let time pass, with some milliseconds more; return the partitions that are marked."""
        return self.keep(elapse(self.progress, at(now) + more, self.terms))

    def drain(self, now: str) -> list[str]:
        return self.keep(drain(self.progress, at(now), self.terms))

    def keep(self, decided: Decided) -> list[str]:
        self.decided = decided
        self.progress = Progress.model_validate_json(decided.progress.model_dump_json())
        assert self.progress == decided.progress
        return [mark.partition.removeprefix("dt=") for mark in decided.marks]

    @property
    def open(self) -> list[str]:
        return [name.removeprefix("dt=") for name in self.progress.open]
