"""Hooks that run inside the writing job: they write files to the table's folder and events to Kafka.

This package imports nothing of the coordinator.
"""

from sluicegate.lakes.registry import install_line

try:
    from sluicegate.writer_hooks.attach import attach
    from sluicegate.writer_hooks.errors import (
        BadCheckpointLocation,
        BadListenerState,
        BadOption,
        BatchUnfinished,
        EventTooLarge,
        HookError,
        NotOurs,
        PreflightFailed,
        PublishFailed,
        RegionReplaced,
        RegistrationRefused,
        RegistrationUnanswered,
        TopicMissing,
    )
    from sluicegate.writer_hooks.outcomes import RegionOutcome
    from sluicegate.writer_hooks.spark.incarnation import close_region, start_incarnation
    from sluicegate.writer_hooks.spark.preflight import preflight
except ModuleNotFoundError as error:
    if (error.name or "sluicegate").partition(".")[0] == "sluicegate":
        raise
    raise ModuleNotFoundError(
        f"sluicegate.writer_hooks needs the package {error.name}, which is not installed in this "
        f"environment; install what a writing job needs with: {install_line('spark')}",
        name=error.name,
    ) from None

__all__ = [
    "BadCheckpointLocation",
    "BadListenerState",
    "BadOption",
    "BatchUnfinished",
    "EventTooLarge",
    "HookError",
    "NotOurs",
    "PreflightFailed",
    "PublishFailed",
    "RegionOutcome",
    "RegionReplaced",
    "RegistrationRefused",
    "RegistrationUnanswered",
    "TopicMissing",
    "attach",
    "close_region",
    "preflight",
    "start_incarnation",
]
