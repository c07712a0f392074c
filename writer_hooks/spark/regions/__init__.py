"""Runner of all regions of a stream in one Spark driver."""

from sluicegate.writer_hooks.spark.regions.division import Division, by_column, by_partition, by_path
from sluicegate.writer_hooks.spark.regions.errors import (
    BaseInUse,
    DivisionRefused,
    RegionsFailed,
    RunnerStopped,
)
from sluicegate.writer_hooks.spark.regions.life import RegionStatus, State
from sluicegate.writer_hooks.spark.regions.restarts import Backoff
from sluicegate.writer_hooks.spark.regions.runner import RegionRunner
from sluicegate.writer_hooks.spark.regions.source import Source

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
