"""What one check found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `sluicegate check`."""

    check: str
    ok: bool
    detail: str
    """What was found; for a problem also what to do."""
    warning: bool = False
    """It works as it is, and a guarantee is given up for it."""

    @property
    def verdict(self) -> str:
        """The word at the start of the line."""
        return "WARNING" if self.warning else "OK" if self.ok else "PROBLEM"


def fine(check: str, detail: str) -> Finding:
    """Make a finding that is no problem."""
    return Finding(check, True, detail)


def warning(check: str, detail: str) -> Finding:
    """Make a finding that the settings want, and that somebody should know of."""
    return Finding(check, True, detail, warning=True)


def problem(check: str, detail: str) -> Finding:
    """Make a finding that somebody has to do something about."""
    return Finding(check, False, detail)
