"""What one check found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `sluicegate check`."""

    check: str
    ok: bool
    detail: str
    """What was found; for a problem also what to do."""


def fine(check: str, detail: str) -> Finding:
    """Make a finding that is no problem."""
    return Finding(check, True, detail)


def problem(check: str, detail: str) -> Finding:
    """Make a finding that somebody has to do something about."""
    return Finding(check, False, detail)
