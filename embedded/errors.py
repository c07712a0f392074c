"""Errors of the embedded servers. Each message is a sentence with the remedy, and possibly part of a log."""


class EmbeddedError(Exception):
    """Base of the errors that the embedded servers raise deliberately."""


class JavaError(EmbeddedError):
    """No usable Java was found. Install one, or set JAVA_HOME; a retry does not help."""


class FetchError(EmbeddedError):
    """The jars of a server could not be fetched. A retry may help after the package registry is reachable."""


class StartError(EmbeddedError):
    """A server did not start, or a property was read that only a running server has."""
