"""Errors of the writer hooks. The class determines the reaction of the caller.

A caller in another process sees an error only as text: "sluicegate.writer_hooks.errors.RegionReplaced: ...".
The heartbeats and the runner of regions read the class there, so a new place of a class is a change of both.
"""

from typing import Final

ACKNOWLEDGED: Final = (
    "What Kafka has acknowledged is committed later, unless the topics were deleted: then, after a new "
    "start, everything that is not committed is read again"
)
"""The fate of completed checkpoints when Kafka is away. Log lines add what to do."""


class Failures:
    """Consecutive failures of a work that is repeated. Of many failures, only some are logged."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> bool:
        """Count a failure. Return True if it is to be logged: the first, second, fourth, eighth ..."""
        self.count += 1
        return not self.count & (self.count - 1)

    def clear(self) -> int:
        """Return the number of failures before a success, and begin again with 0."""
        count, self.count = self.count, 0
        return count


class HookError(Exception):
    """Base of the errors that the writer hooks raise."""


class BadOption(HookError, ValueError):
    """An option is missing or has an invalid value; the text names it."""


class BadCheckpointLocation(HookError):
    """The checkpoint location cannot be read, or has unexpected content; the text contains the remedy."""


class LocationUnavailable(BadCheckpointLocation):
    """The storage of the checkpoint location has failed a read or a write; a retry is safe, and may help."""


class PreflightFailed(HookError):
    """A query with these options would fail at present; the text has a line for each reason."""


class PublishFailed(HookError):
    """Kafka did not acknowledge events. They may be in the log, and nothing was deleted; a retry is safe."""


class TopicMissing(HookError):
    """A topic does not exist, or access to it is denied; a retry does not help."""


class EventTooLarge(HookError):
    """An event exceeds the broker's limit and cannot be split; the text names the setting to raise."""


class RegistrationUnanswered(HookError):
    """No coordinator answered in time. An answer may still follow, and a restart is safe."""


class RegistrationRefused(HookError):
    """The coordinator refused the registration; the text contains the reason and the remedy."""


class RegionReplaced(HookError):
    """Another driver or an operator has replaced this driver. The output of the current batch is not used."""


class RegionStalled(RegionReplaced):
    """The region is stalled until a new incarnation. Only another driver, or a reset, continues it."""


class NotOurs(HookError):
    """Spark passed input that this sink cannot process, such as the parts of a continuous query."""


class BadListenerState(HookError, ValueError):
    """The `listener_state` function given to attach returned a value that cannot be part of a checkpoint."""


class BatchUnfinished(HookError):
    """The query has planned a batch that it has not completed. Start it again to finish the batch."""


class TooManyUncommitted(HookError):
    """A limit of completed checkpoints without a commit is exceeded. Nothing is lost; try again later."""


class SourceOffsetsUnknown(HookError):
    """The region has a position without source offsets, or with those of another kind of driver."""


class SpoolUnusable(HookError):
    """The spool of asynchronous uploads cannot be used; the text contains the remedy."""


class UploadGivenUp(HookError):
    """The uploader has given files up that this region waits for. The region stalls until it is set back."""
