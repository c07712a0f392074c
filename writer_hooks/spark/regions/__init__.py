"""Runner of all regions of a stream in one Spark driver. Each name is loaded when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sluicegate.writer_hooks.spark.regions.division import (
        BaseInUse,
        Division,
        DivisionRefused,
        RegionsFailed,
        RunnerStopped,
        Source,
        by_column,
        by_partition,
        by_path,
    )
    from sluicegate.writer_hooks.spark.regions.query import Backoff
    from sluicegate.writer_hooks.spark.regions.runner import RegionRunner
    from sluicegate.writer_hooks.spark.regions.supervision import RegionStatus, State

__all__ = [
    "Backoff",
    "BaseInUse",
    "Division",
    "DivisionRefused",
    "RegionRunner",
    "RegionStatus",
    "RegionsFailed",
    "RunnerStopped",
    "Source",
    "State",
    "by_column",
    "by_partition",
    "by_path",
]

_HOMES: Final = {
    "Backoff": "query",
    "BaseInUse": "division",
    "Division": "division",
    "DivisionRefused": "division",
    "RegionRunner": "runner",
    "RegionStatus": "supervision",
    "RegionsFailed": "division",
    "RunnerStopped": "division",
    "Source": "division",
    "State": "supervision",
    "by_column": "division",
    "by_partition": "division",
    "by_path": "division",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
