"""Findings of `sluicegate check`: one line each."""

from dataclasses import dataclass

from sluicegate.cli.terminal import Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `sluicegate check`."""

    check: str
    ok: bool
    detail: str
    """The result; for a problem also the remedy."""
    warning: bool = False
    """True if the check passes, but somebody should know of the result."""

    @property
    def verdict(self) -> str:
        """First word of the line."""
        return "WARNING" if self.warning else "OK" if self.ok else "PROBLEM"

    @property
    def severity(self) -> Severity:
        """Severity of the verdict."""
        return "warning" if self.warning else "good" if self.ok else "bad"


def fine(check: str, detail: str) -> Finding:
    """Make a finding of a passed check."""
    return Finding(check, True, detail)


def warning(check: str, detail: str) -> Finding:
    """Make a finding of a passed check that somebody should know of, such as a risky setting."""
    return Finding(check, True, detail, warning=True)


def problem(check: str, detail: str) -> Finding:
    """Make a finding that needs an action of the user."""
    return Finding(check, False, detail)
