"""Query of one region of a plan: its settings, its rows, its start, and its reset."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal

from sluicegate.events.models import RegionRegistered
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.writer_hooks.errors import BadOption, RegionReplaced
from sluicegate.writer_hooks.options import SinkOptions, wrong_values
from sluicegate.writer_hooks.region import Region
from sluicegate.writer_hooks.registration import Stopped, ask, running
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, new_incarnation
from sluicegate.writer_hooks.spark.foreach import ForeachBatch, Split
from sluicegate.writer_hooks.spark.incarnation import rest_region
from sluicegate.writer_hooks.spark.preflight import has_data_source
from sluicegate.writer_hooks.spark.regions.division import Rows, Source, assigned, divided
from sluicegate.writer_hooks.spark.regions.offsets import Offsets, starts, to_text
from sluicegate.writer_hooks.spark.regions.plans import ALL_AGES, MAX_AGE, Plan, Plans, is_mixed
from sluicegate.writer_hooks.spark.reset import ResetDone, ResetOrder, reset_region
from sluicegate.writer_hooks.spark.session import active_in_thread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


@dataclass(frozen=True, slots=True)
class Backoff:
    """Limits of restarts. The pauses grow by two, with full jitter."""

    first: float = 1.0
    """Seconds: the longest pause before the first restart."""
    longest: float = 300.0
    """Seconds: no pause is longer."""
    max_failures: int | None = None
    """Failures in a row, without a batch in between, after which the region has failed; None: no limit."""

    def __post_init__(self) -> None:
        """Raise BadOption for limits that contradict each other."""
        if not 0 <= self.first <= self.longest or (self.max_failures is not None and self.max_failures < 1):
            raise BadOption(
                f"the limits of restarts are invalid: {self}; use 0 <= first <= longest, and max_failures "
                "above 0 or None"
            )

    def pause(self, failures: int, random: Random) -> float:
        """Return the seconds before the next start, after this many failures in a row."""
        limit = min(self.longest, self.first * 2.0 ** min(failures - 1, 60))
        return random.uniform(0.0, limit)

    def is_exhausted(self, failures: int) -> bool:
        """Return True if no restart follows this many failures in a row."""
        return self.max_failures is not None and failures >= self.max_failures


# --- settings of a runner, for all of its regions -----------------------------------------------------

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
    split: Split | None = None
    """Function of the rows of each table, as that of ForeachBatch; None: the rows are those of one table."""

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


def chosen_sink(sink: str | None, split: Split | None = None) -> Sink:
    """Return the way of writing: the data source where Spark has it, unless a setting overrides."""
    if split is not None and sink == "data-source":
        raise BadOption("the data source writes one table. With split, use sink='foreach-batch'")
    match sink if split is None else "foreach-batch":
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


ONCE: Final = {"once": True}
"""Trigger that runs one batch: a planned one if there is one."""


# --- the query ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RegionQuery:
    """One region of a plan."""

    spark: "SparkSession"
    settings: RunnerSettings
    source: Source | Rows
    plans: Plans
    plan: Plan
    name: str
    topics: Callable[[], dict[str, int]]
    """Function that lists the partitions of a Kafka source."""

    @property
    def options(self) -> dict[str, str]:
        """Options of the sink."""
        return self.settings.sink_options(self.plans, self.plan, self.name)

    @property
    def region(self) -> Region:
        """The region as its registrations name it."""
        return self.settings.parsed(self.plans, self.plan, self.name).region

    @property
    def checkpoint(self) -> CheckpointLocation:
        """The checkpoint location."""
        return CheckpointLocation(self.plans.location_of(self.plan, self.name))

    def start(self, trigger: dict[str, Any] | None = None) -> "StreamingQuery":
        """Start the query from where its location is. Raises the errors of Spark."""
        with active_in_thread(self.spark):
            return self._writer(trigger or dict(self.settings.trigger)).start()

    def _writer(self, trigger: dict[str, Any]) -> "DataStreamWriter":
        options = self.options
        writer = self.rows().writeStream.queryName(f"{options['stream']}-{self.name}")
        if self.settings.sink == "data-source":
            writer = writer.format("sluicegate").options(**options)
        else:
            location = options["checkpointLocation"]
            writer = writer.foreachBatch(ForeachBatch(options, self.settings.split)).option(
                "checkpointLocation", location
            )
        return writer.trigger(**trigger) if trigger else writer

    def rows(self) -> "DataFrame":
        """Return the rows of the region."""
        division, source = self.plan.division, self.source
        if not isinstance(source, Source):
            return divided(source(self.spark), division, self.name)
        match division.kind:
            case "path":
                folder = division.paths[self.name]
                return source.read(self.spark, self._file_options(folder), folder)
            case "partition":
                return source.read(self.spark, self._kafka_options())
            case _:
                return divided(source.read(self.spark, self._kafka_options()), division, self.name)

    def own_offsets(self) -> Offsets | None:
        """Return where a Kafka source of this region begins; None if the plan does not have it."""
        if self.plan.offsets is None:
            return None
        topics = self.topics()
        if self.plan.division.kind == "partition":
            return starts(self.plan.offsets, assigned(self.plan.division, self.name, topics))
        return starts(self.plan.offsets, {topic: range(count) for topic, count in topics.items()})

    def _kafka_options(self) -> dict[str, str]:
        offsets = self.own_offsets()
        if offsets is None:
            return {}
        begins = {"startingOffsets": to_text(offsets)}
        if self.plan.division.kind != "partition":
            return begins
        return {"assign": json.dumps({topic: sorted(own) for topic, own in offsets.items()}), **begins}

    def _file_options(self, folder: str) -> dict[str, str]:
        """Return the options of a source of files: where folders were mixed, files of all ages are read.

        Spark compares the age of an unread file with the newest file of the log, also of another folder.
        """
        mixed = self.plan.files and is_mixed(self.plans, self.plans.former(self.plan), folder)
        return {MAX_AGE: ALL_AGES} if mixed else {}

    def is_unfinished(self) -> bool:
        """Return True if a batch is planned and not completed, or the query was never started."""
        return self.has_planned_batch() or self.checkpoint.query_id() is None

    def has_planned_batch(self) -> bool:
        """Return True if a batch is planned and not completed."""
        checkpoint = self.checkpoint
        return checkpoint.newest_planned() != checkpoint.newest_completed()

    def announce(self, stopped: Stopped = running) -> None:
        """Register a region whose location begins after batches of another one, and publish that it is idle.

        Spark plans no batch while the source has no new rows, and the first cut of an assignment needs each
        region. The wait ends when `stopped` returns True. Raises the errors of a registration.
        """
        marker, planned = self.checkpoint.marker(), self.checkpoint.newest_planned()
        if marker is not None and planned is not None and planned < marker.first:
            options = SinkOptions.parse(self.options)
            rest_region(options, None, options.region.publish_timeout, stopped=stopped)

    def is_resetting(self) -> bool:
        """Return True if a reset of the location has begun and is not finished."""
        marker = self.checkpoint.marker()
        return marker is not None and marker.resetting

    def probe(self, stopped: Stopped = running, patience: float = math.inf) -> RegistrationAnswered:
        """Ask for the region's position and its live incarnation; nothing is changed.

        `patience`: seconds for the answer, at most the registration timeout.
        """
        region = self.region
        registration = region.registration(new_incarnation(), None, probe=True)
        return ask(region, registration, stopped, patience=patience)

    def reset(self, reason: str, stopped: Stopped = running) -> ResetDone:
        """Set the location back to the committed position. The query must not run.

        A reset that was interrupted is continued. Raises RegionReplaced if another query has the region: it
        would lose its checkpoints.
        """
        region = self.region
        live = self.probe(stopped).live
        if live is not None and live not in self._own_incarnations():
            raise RegionReplaced(
                f"another query has the region {region.name} of the stream {region.stream} (incarnation "
                f"{live}), so the runner does not reset the region. Stop that query, and start the runner "
                "again"
            )

        def answer(incarnation: str, body: RegionRegistered) -> RegistrationAnswered:
            event = region.registration(
                incarnation, body.base, planned=body.planned, replaces=body.replaces, probe=body.probe
            )
            return ask(region, event, stopped)

        order = ResetOrder(
            stream=region.stream,
            region=region.name,
            location=self.plans.location_of(self.plan, self.name),
            assignment=region.assignment,
            reason=reason,
        )
        return reset_region(order, answer)

    def _own_incarnations(self) -> set[str]:
        """Return the incarnations of the location. During a reset, the former one may still be live."""
        marker = self.checkpoint.marker()
        markers = (marker, marker.former if marker is not None and marker.resetting else None)
        return {each.incarnation for each in markers if each is not None}
