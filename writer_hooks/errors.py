"""Errors of the writer hooks; the class says what the caller can do."""


class HookError(Exception):
    """The base of the errors that the writer hooks raise."""


class BadOption(HookError, ValueError):
    """An option is missing or has a value that cannot be used; the text names it."""


class BadCheckpointLocation(HookError):
    """The checkpoint location cannot be read, or does not say what it should; the text says what to do."""


class PreflightFailed(HookError):
    """A query with these options would fail as things stand; the text has a line for each reason."""


class PublishFailed(HookError):
    """Events were not acknowledged by Kafka. They may be in the log; nothing was deleted; try again."""


class TopicMissing(HookError):
    """A topic does not exist, or may not be used; waiting does not change it."""


class EventTooLarge(HookError):
    """An event exceeds what the broker takes, and cannot be split; the text says what to raise."""


class OpeningUnanswered(HookError):
    """No coordinator answered in time; it may still do so; starting again is safe."""


class OpeningRefused(HookError):
    """The coordinator refused the opening; the text is its reason and the command that goes on."""


class NotOurs(HookError):
    """Spark handed over what this sink cannot take, such as the parts of a continuous query."""


class BadListenerState(HookError, ValueError):
    """The function given to attach as `listener_state` gave what cannot be frozen with a checkpoint."""


class BatchUnfinished(HookError):
    """The query has planned a batch that it has not completed; start it again to finish it."""
