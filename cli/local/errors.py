"""Errors of the embedded servers and of the demo. Each message is a sentence with the remedy."""


class EmbeddedError(Exception):
    """Base of the errors that the embedded servers raise deliberately."""


class JavaError(EmbeddedError):
    """No usable Java was found. Install one, or set JAVA_HOME; a retry does not help."""


class FetchError(EmbeddedError):
    """The jars of a server could not be fetched. A retry may help after the package registry is reachable."""


class StartError(EmbeddedError):
    """A server did not start, or a property was read that only a running server has."""


class DemoError(Exception):
    """Base of the errors that the demo raises on purpose."""


class Unavailable(DemoError):
    """A package or program that the demo needs is not installed."""


class TableDamaged(DemoError):
    """The table cannot be read as its own metadata describe it."""


class RunFailed(DemoError):
    """A part of the demo ended early, or did not finish."""
