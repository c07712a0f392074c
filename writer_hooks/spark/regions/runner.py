"""Runner of all regions of a stream: one query for each, in one driver."""

import logging
import math
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sluicegate.events.notifications import Committed, Notification, RegistrationAnswered, Stalled
from sluicegate.events.problems import Code
from sluicegate.writer_hooks.commit_feed import CommitFeed
from sluicegate.writer_hooks.errors import BadOption, HookError, PublishFailed, RegistrationUnanswered
from sluicegate.writer_hooks.region import Region
from sluicegate.writer_hooks.spark.foreach import Split
from sluicegate.writer_hooks.spark.regions.change import Change, require_change, require_same_source
from sluicegate.writer_hooks.spark.regions.division import (
    KAFKA,
    Division,
    DivisionRefused,
    RegionsFailed,
    Rows,
    RunnerStopped,
    Source,
    identity_of,
    require_divisible,
)
from sluicegate.writer_hooks.spark.regions.offsets import connection_of, first_offsets, partitions_of
from sluicegate.writer_hooks.spark.regions.plans import (
    Plan,
    Plans,
    history,
    is_below,
    only_runner,
    require_all_ages,
    seed,
)
from sluicegate.writer_hooks.spark.regions.query import (
    Backoff,
    RegionQuery,
    RunnerSettings,
    chosen_sink,
    require_options,
)
from sluicegate.writer_hooks.spark.regions.supervision import (
    RegionStatus,
    RegionSupervisor,
    State,
    finish_planned,
)
from sluicegate.writer_hooks.spark.session import attach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_log = logging.getLogger(__name__)

_POLL: Final = 0.2  # seconds
_PATIENCE: Final = 10.0
"""Seconds for the coordinator to say if the first plan was withdrawn."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class RegionRunner:
    """Queries of all regions of a stream. Call `run`, or `start` and later `stop`.

    Arguments:
    - `options`: options of the sink that all regions share: those of one query, without `region`,
      `regions`, `assignment`, `assignment.after` and `checkpointLocation`.
    - `source`: a Source, or a function of the session that returns the streaming rows.
    - `regions`: the division, by `by_column`, `by_path` or `by_partition`.
    - `base`: location of the plans and of all checkpoint locations, an absolute path or a URI.
    - `trigger`: arguments of `trigger` of each query. Default: Spark's.
    - `sink`: `data-source` or `foreach-batch`. Default: the data source, if Spark has it.
    - `split`: a function that returns the rows of each table, as that of `ForeachBatch`, which then writes.
    - `status_interval`: seconds between lines of the log with the state of each region.
    - `first_assignment`: number and `assignment.after` of the first plan, for a stream that had
      assignments before.
    """

    def __init__(
        self,
        spark: "SparkSession",
        options: Mapping[str, str],
        source: Source | Rows,
        *,
        regions: Division,
        base: str,
        trigger: Mapping[str, Any] | None = None,
        sink: str | None = None,
        split: Split | None = None,
        backoff: Backoff | None = None,
        status_interval: float = 60.0,
        first_assignment: tuple[int, int] = (1, 0),
    ) -> None:
        """Make a runner; nothing is started.

        Raises BadOption for what cannot be run, and BadCheckpointLocation.
        """
        _require_classic(spark)
        require_divisible(source, regions)
        self._spark = spark
        self._source = source
        self._division = regions
        self._first = first_assignment
        self._plans = Plans(base)
        self._settings = RunnerSettings(
            require_options(options),
            chosen_sink(sink, split),
            dict(trigger or {}),
            backoff or Backoff(),
            status_interval,
            split,
        )
        self._supervisors: dict[str, RegionSupervisor] = {}
        self._held = ExitStack()
        self._feed: CommitFeed | None = None
        self._stopping = threading.Event()
        self._topics_seen: dict[str, int] = {}
        self._plan: Plan | None = None

    # --- start and stop ---------------------------------------------------------------------------

    def run(self) -> None:
        """Start all regions, and return when they have ended, or after SIGTERM or SIGINT.

        A signal drains: each query finishes its batch. A second one stops at once. Call it in the main
        thread. Raises RegionsFailed if a region has failed for good, and the errors of `start`.
        """
        with self._signals():
            try:
                self.start()
            except RunnerStopped as error:
                _log.warning("%s", error)
                return
            try:
                self._follow()
            finally:
                self.stop(drain=False)
        self.require_ended_well()

    def start(self) -> None:
        """Start all regions, after a change of the division if there is one, and return.

        A runner is started once. Raises BaseInUse, DivisionRefused, RegionsFailed, RunnerStopped, and the
        errors of a registration.
        """
        self._held.enter_context(only_runner(self._plans.base))
        try:
            attach(self._spark)
            plan = self._plan = self._current_plan()
            self._prepare(plan)
            self._require_running()
            supervisors = {name: RegionSupervisor(self._query(plan, name)) for name in plan.division.regions}
            feed = _feed_of(self._query(plan, plan.division.regions[0]).region, supervisors)
            feed.start()
            self._feed, self._supervisors = feed, supervisors
            for supervisor in supervisors.values():
                if self._stopping.is_set():  # The signal came before it could stop the supervisors.
                    supervisor.stop(drain=True)
                supervisor.start()
        except (RegistrationUnanswered, PublishFailed) as error:
            self._release()
            self._require_running(error)
            raise
        except BaseException:
            self._release()
            raise

    def _require_running(self, cause: Exception | None = None) -> None:
        if self._stopping.is_set():
            raise RunnerStopped("the runner was stopped during its start; no query was started") from cause

    def stop(self, *, drain: bool = True) -> None:
        """Stop all regions, and return when they have stopped.

        With `drain`, each query finishes its batch. Repeated calls are allowed.
        """
        self._stopping.set()
        for supervisor in self._supervisors.values():
            supervisor.stop(drain=drain)
        for supervisor in self._supervisors.values():
            supervisor.join()
        self._release()

    def status(self) -> dict[str, RegionStatus]:
        """Return the state of each region."""
        return {name: supervisor.status() for name, supervisor in self._supervisors.items()}

    def require_ended_well(self) -> None:
        """Raise RegionsFailed if a region has failed for good."""
        failed = [each for each in self.status().values() if each.state is State.FAILED]
        if failed:
            raise RegionsFailed(
                "; ".join(f"region {each.region} has failed: {each.last_error}" for each in failed)
            )

    def _release(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.stop()
        self._held.close()

    def _follow(self) -> None:
        """Wait until all regions have ended; log the state of each at intervals."""
        waited = 0.0
        for supervisor in self._supervisors.values():
            while not supervisor.join(_POLL):
                waited += _POLL
                if waited >= self._settings.status_interval:
                    waited = 0.0
                    self._report()
        self._report()

    def _report(self) -> None:
        for each in self.status().values():
            at = each.committed
            _log.info(
                "region %s: %s, batch %s with %s rows, committed %s, %d restarts%s",
                *(
                    each.region,
                    each.state,
                    each.batch,
                    each.rows,
                    at.checkpoint if at else None,
                    each.restarts,
                ),
                f", last error: {each.last_error.splitlines()[0]}" if each.last_error else "",
            )
        self._compare_topics()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Drain after the first signal, stop at once after the second."""

        def handle(number: int, _: object) -> None:
            again = self._stopping.is_set()
            _log.warning(
                "signal %s: %s", signal.Signals(number).name, "stopping at once" if again else "draining"
            )
            self._stopping.set()
            for supervisor in self._supervisors.values():
                supervisor.stop(drain=not again)

        before = {each: signal.signal(each, handle) for each in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # --- plans ------------------------------------------------------------------------------------

    def _current_plan(self) -> Plan:
        """Return the plan of the division: the newest one, or a new one after a change."""
        if self._division.kind == "partition":
            self._require_partitions(self._division)
        newest = self._plans.newest()
        while newest is not None and (answer := self._withdrawal(newest)) is not None:
            if newest.former is None:
                return self._first_plan_again(newest, answer)
            _log.warning("plan %d is given up: its assignment was withdrawn", newest.number)
            self._plans.give_up(newest.number)
            newest = self._plans.newest()
        if newest is None:
            return self._first_plan()
        require_same_source(self._source, newest)
        if newest.division.is_same_as(self._division):
            require_all_ages(self._source, self._plans, self._plans.former(newest), newest.division)
            return newest
        require_change(self._source, newest, self._division)
        require_all_ages(self._source, self._plans, newest, self._division)
        self._prepare(newest)
        old = [self._query(newest, name) for name in newest.division.regions]
        return Change(self._settings, self._plans, old, self._stopping, finish_planned).run(self._division)

    def _first_plan(self) -> Plan:
        number, after = self._first
        offsets = None
        if self._has_topics:
            kafka = connection_of(self._kafka_source, self._settings.options)
            offsets = first_offsets(kafka, self._kafka_source, self._topics())
        plan = Plan(
            number=self._plans.next_number(number),
            after=after,
            division=self._division,
            offsets=offsets,
            source=identity_of(self._source),
        )
        self._plans.write(plan)
        return plan

    def _withdrawal(self, plan: Plan) -> RegistrationAnswered | None:
        """Return the coordinator's answer if the assignment of a plan was withdrawn, else None.

        The first plan needs no answer: without a coordinator its queries continue, and ask themselves.
        """
        query = self._query(plan, plan.division.regions[0])
        try:
            answer = query.probe(self._stopping.is_set, math.inf if plan.former is not None else _PATIENCE)
        except (RegistrationUnanswered, PublishFailed) as error:
            if plan.former is not None:
                raise
            _log.warning("nobody says if the assignment of plan %d was withdrawn: %s", plan.number, error)
            return None
        withdrawn = answer.problem is not None and answer.problem.code is Code.ASSIGNMENT_WITHDRAWN
        return answer if withdrawn else None

    def _first_plan_again(self, old: Plan, answer: RegistrationAnswered) -> Plan:
        """Begin the first plan again, under another number. Nothing of the withdrawn one is committed.

        The caller has to state the number: an operator has withdrawn the plan for a reason. Raises
        DivisionRefused.
        """
        number, after = self._first
        burned = max(old.number, (answer.problem.other if answer.problem is not None else None) or 0)
        if number <= burned:
            place, ending, stream = "0", "", self._settings.options["stream"]
            if answer.decision:
                place = "DECISION"
                ending = (
                    f". DECISION is the number that `sluicegate assignment close --stream {stream} --wait` "
                    "shows, which ends the assignment that is in force again"
                )
            raise DivisionRefused(
                f"an operator withdrew assignment {old.number}, the one of the first plan. Nothing of it is "
                "committed, and nothing will be. To read its rows again, start the runner with "
                f"first_assignment=({burned + 1}, {place}): it begins where that plan began{ending}"
            )
        require_same_source(self._source, old)
        _log.warning("plan %d is given up: its assignment was withdrawn", old.number)
        plan = Plan(
            number=max(number, self._plans.next_number(number)),
            after=after,
            division=self._division,
            offsets=old.offsets,
            source=old.source,
        )
        self._plans.write(plan)
        self._plans.give_up(old.number)
        return plan

    def _prepare(self, plan: Plan) -> None:
        """Seed the locations of a plan that follows another one of files."""
        former = self._plans.former(plan) if plan.files else None
        if former is not None:
            files = history(self._plans, former)
            for name, folder in plan.division.paths.items():
                # Spark reads no file of another folder, not even to pass it over.
                own = [file for file in files if is_below(file[0], folder)]
                place = (self._settings.options["stream"], name, plan.number)
                seed(self._plans.location_of(plan, name), own, *place, plan.bases.get(name))

    def _require_partitions(self, division: Division) -> None:
        topics = self._topics_seen = self._topics()
        if max(topics.values()) < len(division.regions):
            most = max(topics.values())
            raise DivisionRefused(
                f"the topics of the source have at most {most} partitions, so that some of the "
                f"{len(division.regions)} regions would have none; use by_partition({most})"
            )

    def _query(self, plan: Plan, name: str) -> RegionQuery:
        return RegionQuery(self._spark, self._settings, self._source, self._plans, plan, name, self._topics)

    # --- partitions of a Kafka source -------------------------------------------------------------

    @property
    def _has_topics(self) -> bool:
        source = self._source
        is_kafka = isinstance(source, Source) and source.format.lower() == KAFKA
        return is_kafka and self._kafka_source.option("subscribe") is not None

    @cached_property
    def _kafka_source(self) -> Source:
        if not isinstance(self._source, Source):
            raise TypeError("only a Source has topics")
        return self._source

    def _topics(self) -> dict[str, int]:
        source = self._kafka_source
        connection = connection_of(source, self._settings.options)
        return partitions_of(connection, source.topics(), self._stopping.is_set)

    def _compare_topics(self) -> None:
        """Log a topic that has grown since the start: its new partitions are read after the next start."""
        if not self._topics_seen:
            return
        try:
            now = self._topics()
        except HookError as error:
            _log.warning("the partitions of the source cannot be listed: %s", error)
            return
        for topic, count in now.items():
            if count > self._topics_seen[topic]:
                _log.warning(
                    "the topic %s has %d partitions, and had %d at the start: stop the runner and start it "
                    "again, so that its regions read the new ones",
                    *(topic, count, self._topics_seen[topic]),
                )
        self._topics_seen = now


def _require_classic(spark: "SparkSession") -> None:
    if not hasattr(spark, "_jsparkSession"):
        raise BadOption(
            "the RegionRunner does not work under Spark Connect, whose threads share no session; use a "
            "classic session"
        )


def _feed_of(region: Region, supervisors: "Mapping[str, RegionSupervisor]") -> CommitFeed:
    """Return a feed that notes committed positions, and has a region reset whose files are lost."""

    def read(found: Notification) -> None:
        body = found.body
        if isinstance(body, Committed):
            for name, position in body.cut.items():
                if name in supervisors:
                    supervisors[name].set_committed(position)
        elif isinstance(body, Stalled) and not body.ended and body.problem.code is Code.FILES_LOST:
            supervisor = supervisors.get(body.problem.region or "")
            if supervisor is not None:
                supervisor.request_reset(body.reason or "its files were lost")

    return CommitFeed(region, read, lambda: None)
