"""Hooks that run inside the writing job: they write files to the table's folder and events to Kafka.

This package imports nothing of the coordinator. Each name is loaded when it is first used, so that a plain
Python driver loads nothing of Spark, and no pyarrow before it writes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from sluicegate.lakes.registry import install_line

if TYPE_CHECKING:
    from sluicegate.writer_hooks.commit_feed import RegionOutcome
    from sluicegate.writer_hooks.driver import AsyncRegionDriver, AsyncWriter, RegionDriver
    from sluicegate.writer_hooks.errors import (
        BadCheckpointLocation,
        BadListenerState,
        BadOption,
        BatchUnfinished,
        EventTooLarge,
        HookError,
        LocationUnavailable,
        NotOurs,
        PreflightFailed,
        PublishFailed,
        RegionReplaced,
        RegionStalled,
        RegistrationRefused,
        RegistrationUnanswered,
        SourceOffsetsUnknown,
        SpoolUnusable,
        TooManyUncommitted,
        TopicMissing,
        UploadGivenUp,
    )
    from sluicegate.writer_hooks.incarnation import CommittedCheckpoint
    from sluicegate.writer_hooks.job import Job, prepare_jobs
    from sluicegate.writer_hooks.spark.foreach import ForeachBatch
    from sluicegate.writer_hooks.spark.incarnation import close_region, start_incarnation
    from sluicegate.writer_hooks.spark.preflight import preflight
    from sluicegate.writer_hooks.spark.session import attach
    from sluicegate.writer_hooks.writer import OpenCheckpoint, Writer, WriterResult, Written

__all__ = [
    "AsyncRegionDriver",
    "AsyncWriter",
    "BadCheckpointLocation",
    "BadListenerState",
    "BadOption",
    "BatchUnfinished",
    "CommittedCheckpoint",
    "EventTooLarge",
    "ForeachBatch",
    "HookError",
    "Job",
    "LocationUnavailable",
    "NotOurs",
    "OpenCheckpoint",
    "PreflightFailed",
    "PublishFailed",
    "RegionDriver",
    "RegionOutcome",
    "RegionReplaced",
    "RegionStalled",
    "RegistrationRefused",
    "RegistrationUnanswered",
    "SourceOffsetsUnknown",
    "SpoolUnusable",
    "TooManyUncommitted",
    "TopicMissing",
    "UploadGivenUp",
    "Writer",
    "WriterResult",
    "Written",
    "attach",
    "close_region",
    "preflight",
    "prepare_jobs",
    "start_incarnation",
]

_HOMES: Final = {
    "AsyncRegionDriver": "driver",
    "AsyncWriter": "driver",
    "ForeachBatch": "spark.foreach",
    "Job": "job",
    "OpenCheckpoint": "writer",
    "CommittedCheckpoint": "incarnation",
    "RegionDriver": "driver",
    "RegionOutcome": "commit_feed",
    "Writer": "writer",
    "WriterResult": "writer",
    "Written": "writer",
    "attach": "spark.session",
    "close_region": "spark.incarnation",
    "preflight": "spark.preflight",
    "prepare_jobs": "job",
    "start_incarnation": "spark.incarnation",
}
"""Modules of the names; all others are in `errors`."""
_OF_SPARK: Final = "spark."


if not TYPE_CHECKING:  # a type checker would take any name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = _HOMES.get(name, "errors")
        try:
            found = getattr(import_module(f"{__name__}.{home}"), name)
        except ModuleNotFoundError as error:
            if (error.name or "sluicegate").partition(".")[0] == "sluicegate":
                raise
            line = install_line(*(["spark"] if home.startswith(_OF_SPARK) else []))
            raise ModuleNotFoundError(
                f"sluicegate.writer_hooks.{name} needs the package {error.name}, which is not installed in "
                f"this environment; install what a writing job needs with: {line}",
                name=error.name,
            ) from None
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
