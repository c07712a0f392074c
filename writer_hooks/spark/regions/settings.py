"""Settings of a runner that hold for all of its regions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sluicegate.writer_hooks.errors import BadOption
from sluicegate.writer_hooks.options import SinkOptions, wrong_values
from sluicegate.writer_hooks.spark.regions.plans import Plan, Plans
from sluicegate.writer_hooks.spark.regions.restarts import Backoff
from sluicegate.writer_hooks.spark.versions import has_data_source

Sink = Literal["data-source", "foreach-batch"]

_OWN: Final = ("region", "regions", "assignment", "assignment.after", "checkpointlocation", "queryname")


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """Settings of a runner."""

    options: Mapping[str, str]
    """Options of the sink that all regions share."""
    sink: Sink
    trigger: Mapping[str, Any]
    """Arguments of `trigger` of each query; empty: Spark's default."""
    backoff: Backoff = field(default_factory=Backoff)
    status_interval: float = 60.0
    """Seconds between lines of the log with the state of each region."""

    def sink_options(self, plans: Plans, plan: Plan, region: str) -> dict[str, str]:
        """Return the options of the sink of a region's query."""
        return {
            **self.options,
            "region": region,
            "regions": ",".join(plan.division.regions),
            "assignment": str(plan.number),
            "assignment.after": str(plan.after),
            "checkpointLocation": plans.location_of(plan, region),
        }

    def parsed(self, plans: Plans, plan: Plan, region: str) -> SinkOptions:
        """Return the parsed options of a region's query. Raises BadOption."""
        return SinkOptions.parse(self.sink_options(plans, plan, region))


def require_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the shared options as texts. Raises BadOption for those that the runner sets itself."""
    found = {name: str(value) for name, value in options.items()}
    if own := sorted(name for name in found if name.lower() in _OWN):
        raise BadOption(
            f"the runner sets the option {own[0]} of each query itself; leave it out of the options of the "
            "RegionRunner"
        )
    sample = {**found, "region": "r", "checkpointLocation": "/c"}
    if wrong := wrong_values(sample):
        raise BadOption("; ".join(wrong))
    return found


def chosen_sink(sink: str | None) -> Sink:
    """Return the way of writing: the data source where Spark has it, unless a setting overrides."""
    match sink:
        case None:
            return "data-source" if has_data_source() else "foreach-batch"
        case "foreach-batch":
            return "foreach-batch"
        case "data-source" if has_data_source():
            return "data-source"
        case "data-source":
            raise BadOption("this release of Spark has no data source for sinks; use sink='foreach-batch'")
        case other:
            raise BadOption(f"sink must be data-source or foreach-batch: {other!r}")
