"""Errors of the demo; each message is one sentence that says what to do."""


class DemoError(Exception):
    """Base of everything that the demo raises on purpose."""


class Unavailable(DemoError):
    """Something that the demo needs is not installed."""


class TableDamaged(DemoError):
    """The table cannot be read as its own metadata describe it."""


class RunFailed(DemoError):
    """A part of the demo ended, or did not come to its end, while the demo ran."""
