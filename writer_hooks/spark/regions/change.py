"""Change of the division: end of the old assignment, and the plan of the next one.

Each step may be repeated. Until the new plan is written, the old one is in force; from then on the new one
is. The order is: finish what is planned, close the regions, wait for the final cut, read where the sources
are, write the plan.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sluicegate.events.models import Assignment, Position
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import Code
from sluicegate.writer_hooks.errors import BadCheckpointLocation
from sluicegate.writer_hooks.registration import ask, require_accepted
from sluicegate.writer_hooks.spark.checkpoint import new_incarnation, read_offsets
from sluicegate.writer_hooks.spark.incarnation import close_region
from sluicegate.writer_hooks.spark.location import Location
from sluicegate.writer_hooks.spark.regions.division import (
    FILES,
    KAFKA,
    Division,
    DivisionRefused,
    Rows,
    RunnerStopped,
    Source,
    identity_of,
)
from sluicegate.writer_hooks.spark.regions.offsets import Offsets, parse_offsets, union
from sluicegate.writer_hooks.spark.regions.plans import Plan, Plans, history, require_seedable
from sluicegate.writer_hooks.spark.regions.query import RegionQuery, RunnerSettings

_log = logging.getLogger(__name__)

Finish = Callable[[Sequence[RegionQuery], threading.Event], None]
"""Function that completes the batches that are planned, until the event is set. Raises RegionsFailed."""

_PAUSE: Final = 0.5  # seconds
_REPORT: Final = 20
"""Questions between two lines of the log while the final cut has not come."""
_WAITS: Final = frozenset({Code.ASSIGNMENT_OPEN, Code.ASSIGNMENT_UNRESOLVED, Code.NO_POLICY})
_BEGINS: Final = frozenset({Code.BASE_DIFFERS, Code.INCARNATION_LIVE})
"""Refusals that come after the assignment was judged as right."""


def require_same_source(source: Source | Rows, plan: Plan) -> None:
    """Raise DivisionRefused if a plan is of another source, whose offsets or files are other ones."""
    given = identity_of(source)
    if plan.source != given:
        raise DivisionRefused(
            f"the plan {plan.number} has the source {plan.source or 'of a function'}, and the runner was "
            f"given {given or 'a function'}. Give it the same source, or another base and stream"
        )


def require_change(source: Source | Rows, old: Plan, new: Division) -> None:
    """Raise DivisionRefused if the source cannot continue in another division. Nothing was changed yet."""
    if not isinstance(source, Source):
        raise DivisionRefused(
            f"the plan {old.number} has another division, and the source is a function, so the runner does "
            "not know where its rows continue. Keep the division, or give a Source of files or Kafka"
        )
    kind = source.format.lower()
    if kind != KAFKA and kind not in FILES:
        raise DivisionRefused(
            f"the source {source.format} cannot be continued in another division; the runner can do that for "
            f"{KAFKA} and for {', '.join(FILES)}. Keep the division of plan {old.number}"
        )
    if kind == KAFKA and source.option("subscribe") is None:
        raise DivisionRefused(
            "a Kafka source continues in another division only with the option subscribe, because the runner "
            f"states the offset of each partition. Keep the division of plan {old.number}"
        )
    if kind in FILES and (old.division.kind, new.kind) != ("path", "path"):
        raise DivisionRefused(
            "a source of files changes from paths to other paths alone: with by_column, each region reads "
            f"all files, and is at another one. Keep the division of plan {old.number}"
        )


@dataclass(frozen=True)
class Change:
    """Change from one plan to another division."""

    settings: RunnerSettings
    plans: Plans
    old: Sequence[RegionQuery]
    stopped: threading.Event
    finish: Finish

    @property
    def _plan(self) -> Plan:
        return self.old[0].plan

    def run(self, division: Division) -> Plan:
        """Return the new plan, which is written.

        Raises DivisionRefused before anything is closed, RegionsFailed, RunnerStopped, and the errors of a
        registration.
        """
        old = self._plan
        self._require_possible(planned=True)
        for query in self.old:
            self._require_whole(query)
        _log.info("the division changes: plan %d is finished first", old.number)
        self.finish(self.old, self.stopped)
        self._require_running()
        offsets = self._require_possible(planned=False)
        for query in self.old:
            self._close(query)
        number = self.plans.next_number(old.number + 1)
        after = self._final_cut(division, number)
        for query in self.old:
            self._require_committed(query)
        # A name may have a position of an earlier plan than the last one.
        begun = {name: self._begin(name, division, number, after) for name in division.regions}
        kept = {name: at for name, at in begun.items() if at is not None}
        plan = Plan(
            number=number,
            after=after,
            division=division,
            offsets=offsets,
            files=old.division.kind == "path",
            former=old.number,
            source=old.source,
            bases=kept,
        )
        self.plans.write(plan)
        _log.info("the division is changed: plan %d follows decision %d", number, after)
        return plan

    def _require_possible(self, *, planned: bool) -> Offsets | None:
        """Return the offsets at which a Kafka source continues, None for a source of files.

        `planned`: as they will be when the planned batches are finished. Raises DivisionRefused if the old
        regions have no common place.
        """
        old = self._plan
        places = {query.name: self.plans.location_of(old, query.name) for query in self.old}
        for uri in places.values():
            require_seedable(uri)
        if old.division.kind == "path":
            history(self.plans, old)
            return None
        found = ((query.name, self._offsets(query, planned=planned)) for query in self.old)
        return union((name, offsets) for name, offsets in found if offsets is not None)

    def _offsets(self, query: RegionQuery, *, planned: bool) -> Offsets | None:
        """Return where a region of a Kafka source continues, None if it still has to plan its first batch."""
        location, checkpoint = self.plans.location_of(query.plan, query.name), query.checkpoint
        newest = checkpoint.newest_planned() if planned else checkpoint.newest_completed()
        if newest is not None:
            sources = read_offsets(Location(location), newest).sources
            if len(sources) == 1:
                return parse_offsets(next(iter(sources.values())))
            raise DivisionRefused(
                f"the query in {location} reads {len(sources)} sources, so the runner cannot change its "
                "division. Give each region one source, or keep the division"
            )
        own = query.own_offsets()
        if own is None and not planned:
            raise BadCheckpointLocation(
                f"the query in {location} has completed no batch, so nothing tells where it begins; run the "
                "old division until it has rows, and repeat the change"
            )
        return None if planned else own

    def _final_cut(self, division: Division, number: int) -> int:
        """Wait until all old regions are committed up to their ends; return the decision of the final cut."""
        region = replace(
            self.old[0].region,
            name=division.regions[0],
            assignment=Assignment(number=number, regions=division.regions, after=self._plan.after),
        )
        asked, last = 0, None
        while True:
            self._require_running()
            incarnation = new_incarnation()
            answer = ask(region, region.registration(incarnation, None, probe=True), self.stopped.is_set)
            code = answer.problem.code if answer.problem is not None else None
            if answer.accepted or code in _BEGINS:
                return region.assignment.after
            if code is Code.ASSIGNMENT_AFTER_OTHER_CUT and last != answer.decision:
                last = answer.decision
                region = replace(region, assignment=region.assignment.model_copy(update={"after": last}))
                continue
            if code not in _WAITS:
                require_accepted(region, incarnation, answer)
            if asked % _REPORT == 0:
                _log.info(
                    "the change waits for the final cut of plan %d: %s", self._plan.number, answer.reason
                )
            asked += 1
            self.stopped.wait(_PAUSE)

    def _begin(self, name: str, division: Division, number: int, after: int) -> Position | None:
        """Return the position from which a region of the next assignment starts.

        Raises RegistrationRefused if the region cannot begin there.
        """
        assignment = Assignment(number=number, regions=division.regions, after=after)
        region = replace(self.old[0].region, name=name, assignment=assignment)
        incarnation = new_incarnation()
        answer = ask(region, region.registration(incarnation, None, probe=True), self.stopped.is_set)
        if answer.problem is None or answer.problem.code not in _BEGINS:
            require_accepted(region, incarnation, answer)
        return answer.committed

    # --- ends of the old regions ------------------------------------------------------------------

    def _require_whole(self, query: RegionQuery) -> None:
        """Raise DivisionRefused if an operator ended the region before the end of its location."""
        answer = self._settled(query)
        if not _is_removed(answer):
            return
        expected, stream = self._end(query), query.region.stream
        if answer.committed == expected and query.has_planned_batch():
            raise DivisionRefused(
                f"an operator ended the region {query.name} of plan {self._plan.number}. Its location has a "
                "batch that is planned and not completed, and counts nowhere. Run `sluicegate region reset "
                f"--stream {stream} --region {query.name} --checkpoint-location "
                f"{self.plans.location_of(self._plan, query.name)}`, and start the runner again"
            )
        if query.is_unfinished() or answer.committed != expected:
            number = self.plans.next_number(self._plan.number + 1)
            raise DivisionRefused(
                f"an operator ended the region {query.name} of plan {self._plan.number}. It is committed at "
                f"{answer.committed}, and its location ends at {expected}, so no other division can continue "
                f"there. Run `sluicegate assignment close --stream {stream} --wait`, and start the runner "
                "again. If that is refused too, start it with another base, with first_assignment=("
                f"{number}, DECISION), and with a source that begins after the committed rows. That command "
                "shows the decision and the source offsets"
            )

    def _settled(self, query: RegionQuery) -> RegistrationAnswered:
        """Return the answer to a probe, once no decision without an outcome moves the region."""
        while (answer := query.probe(self.stopped.is_set)).unresolved is not None:
            self._require_running()
            self.stopped.wait(_PAUSE)
        return answer

    def _close(self, query: RegionQuery) -> None:
        """Close an old region. One that an operator ended is closed, and at its end."""
        if not _is_removed(query.probe(self.stopped.is_set)):
            close_region(query.options, self.stopped.is_set)

    def _end(self, query: RegionQuery) -> Position | None:
        """Return the position of the last completed batch of a location."""
        checkpoint = query.checkpoint
        marker, newest = checkpoint.marker(), checkpoint.newest_completed()
        if marker is None or newest is None or newest < marker.first:
            return marker.base if marker is not None else None
        return checkpoint.predecessor(marker, newest + 1)

    def _require_committed(self, query: RegionQuery) -> None:
        """Raise BadCheckpointLocation unless an old region is committed up to the end of its location."""
        expected, at = self._end(query), self._settled(query).committed
        if at != expected:
            raise BadCheckpointLocation(
                f"the region {query.name} is committed at {at}, and its location ends at {expected}, so "
                f"another division would lose rows or write them twice. Run the division of plan "
                f"{self._plan.number} again, and repeat the change"
            )

    def _require_running(self) -> None:
        if self.stopped.is_set():
            raise RunnerStopped(
                "the runner was stopped during a change of the division; the next run continues it"
            )


def _is_removed(answer: RegistrationAnswered) -> bool:
    return answer.problem is not None and answer.problem.code is Code.REGION_REMOVED
