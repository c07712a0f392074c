"""What runs inside the writing job: files to the table's folder, events to Kafka. No coordinator in here."""

from sluicegate.writer_hooks.attach import attach
from sluicegate.writer_hooks.errors import (
    BadCheckpointLocation,
    BadListenerState,
    BadOption,
    BatchUnfinished,
    EventTooLarge,
    HookError,
    NotOurs,
    OpeningRefused,
    OpeningUnanswered,
    PublishFailed,
    TopicMissing,
)
from sluicegate.writer_hooks.outcomes import RegionOutcome
from sluicegate.writer_hooks.spark.closing import close_region, start_lineage

__all__ = [
    "BadCheckpointLocation",
    "BadListenerState",
    "BadOption",
    "BatchUnfinished",
    "EventTooLarge",
    "HookError",
    "NotOurs",
    "OpeningRefused",
    "OpeningUnanswered",
    "PublishFailed",
    "RegionOutcome",
    "TopicMissing",
    "attach",
    "close_region",
    "start_lineage",
]
