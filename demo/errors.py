"""Errors of the demo; each message is one sentence with the remedy."""


class DemoError(Exception):
    """Base of the errors that the demo raises on purpose."""


class Unavailable(DemoError):
    """A package or program that the demo needs is not installed."""


class TableDamaged(DemoError):
    """The table cannot be read as its own metadata describe it."""


class RunFailed(DemoError):
    """A part of the demo ended early, or did not finish."""
