"""Errors of the region runner."""

from sluicegate.writer_hooks.errors import HookError


class RegionsFailed(HookError):
    """At least one region failed for good; the text has the error of each."""


class BaseInUse(HookError):
    """Another runner has the base location."""


class DivisionRefused(HookError):
    """The runner cannot change to this division. No region was closed, and no plan was written."""


class RunnerStopped(HookError):
    """The runner was stopped before it had finished a change of the division. The next run continues it."""
