"""Query of a region whose coordinator is the test."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.writer_hooks.registration import Stopped, running
from sluicegate.writer_hooks.spark.regions.division import Source
from sluicegate.writer_hooks.spark.regions.plans import Plan, Plans
from sluicegate.writer_hooks.spark.regions.query import RegionQuery, RunnerSettings, require_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {"stream": "s", "table": "/t", "kafka.bootstrap.servers": "nowhere:1"}
ACCEPTED = RegistrationAnswered(registration="1", accepted=True)


@dataclass(frozen=True)
class Answered(RegionQuery):
    """A query whose probe is answered here."""

    answer: RegistrationAnswered = ACCEPTED

    def probe(self, stopped: Stopped = running, patience: float = math.inf) -> RegistrationAnswered:
        return self.answer


def query_of(plans: Plans, plan: Plan, name: str, answer: RegistrationAnswered = ACCEPTED) -> Answered:
    """Return the query of a region. By default, the region has no position and no live incarnation."""
    settings = RunnerSettings(require_options(OPTIONS), "foreach-batch", {})
    source = Source("kafka", {"subscribe": "t"})
    session = cast("SparkSession", None)
    return Answered(session, settings, source, plans, plan, name, lambda: {"t": 1}, answer)
