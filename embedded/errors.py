"""Errors of the embedded servers; each message is one sentence that says what to do, perhaps with a log."""


class EmbeddedError(Exception):
    """Base of everything that the embedded servers raise on purpose."""


class JavaError(EmbeddedError):
    """No usable Java: install one, or point JAVA_HOME at it; a retry does not help."""


class FetchError(EmbeddedError):
    """Kafka's jars could not be fetched; a retry may help once the package registry answers."""


class StartError(EmbeddedError):
    """A server did not come up, or was asked for something that only a running one has."""
