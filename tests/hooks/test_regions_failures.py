"""Failures of the region runner's queries, and changes that cannot be made, without Spark and Kafka."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any, Never

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from sluicegate.events.models import Position, RegionRegistered
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import Code, Problem
from sluicegate.writer_hooks.errors import (
    BadCheckpointLocation,
    LocationUnavailable,
    PublishFailed,
    RegistrationRefused,
)
from sluicegate.writer_hooks.spark.location import Location
from sluicegate.writer_hooks.spark.regions import change as change_module
from sluicegate.writer_hooks.spark.regions import query as query_module
from sluicegate.writer_hooks.spark.regions.change import Change
from sluicegate.writer_hooks.spark.regions.division import (
    DivisionRefused,
    Source,
    by_column,
    by_partition,
    by_path,
)
from sluicegate.writer_hooks.spark.regions.plans import Plan, Plans, require_all_ages, seed
from sluicegate.writer_hooks.spark.regions.query import Backoff
from sluicegate.writer_hooks.spark.regions.supervision import UNPLANNABLE, RegionSupervisor, State
from tests.hooks.region_queries import ACCEPTED, Answered, query_of

PLAN = Plan(number=1, division=by_column("origin", {}, rest="r"))
AT = Position(incarnation="a", checkpoint=3, digest="d")


def refused(code: Code, **more: Any) -> RegistrationAnswered:
    problem = Problem(code=code, region="r")
    return ACCEPTED.model_copy(update={"accepted": False, "problem": problem, "reason": f"{code}.", **more})


def seeded(root: Path) -> Plans:
    """Return plans whose only location has one batch, of an incarnation that begins after it."""
    plans = Plans(str(root))
    seed(plans.location_of(PLAN, "r"), [], "s", "r", 1, None)
    return plans


def test_a_reset_that_was_interrupted_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its registration was not sent, so the former incarnation is still live."""
    plans = seeded(tmp_path)
    query = query_of(plans, PLAN, "r")
    first = query.checkpoint.marker()
    assert first is not None
    live = ACCEPTED.model_copy(update={"live": first.incarnation})
    query = replace(query, answer=live)

    def fail(*args: Any) -> RegistrationAnswered:
        if not args[1].body.probe:
            raise PublishFailed("Kafka is away")
        return live

    monkeypatch.setattr(query_module, "ask", fail)
    with pytest.raises(PublishFailed):
        query.reset("the test")
    marked = query.checkpoint.marker()
    assert (marked is not None and marked.resetting, query.is_resetting()) == (True, True)
    sent: list[RegionRegistered] = []

    def accept(*args: Any) -> RegistrationAnswered:
        sent.append(args[1].body)
        return live

    monkeypatch.setattr(query_module, "ask", accept)
    done = query.reset("the test")
    assert (query.is_resetting(), done.incarnation != first.incarnation) == (False, True)
    assert sent[-1].replaces == first.incarnation


def test_a_store_that_fails_differs_from_a_wrong_location(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    with pytest.raises(LocationUnavailable, match="metadata cannot be read"):
        Location(str(tmp_path)).read("metadata")
    with pytest.raises(BadCheckpointLocation, match="cannot be reached from Python") as caught:
        Location("unheard://of/it")
    assert not isinstance(caught.value, LocationUnavailable)


@dataclass(frozen=True)
class Failing(Answered):
    """A query whose starts fail with these errors, one after the other."""

    errors: Iterator[Exception] = field(default_factory=lambda: iter(()))
    starts: list[None] = field(default_factory=list)

    def start(self, trigger: dict[str, Any] | None = None) -> Never:
        self.starts.append(None)
        raise next(self.errors)


def life_with(root: Path, *errors: Exception) -> tuple[RegionSupervisor, list[None]]:
    """Return a life that has ended, and the starts that it has tried."""
    made = query_of(Plans(str(root)), PLAN, "r")
    settings = replace(made.settings, backoff=Backoff(first=0, longest=0, max_failures=20))
    query = Failing(
        made.spark, settings, made.source, made.plans, PLAN, "r", made.topics, errors=iter(errors)
    )
    life = RegionSupervisor(query)
    life.start()
    life.join()
    return life, query.starts


def no_column(batch: int) -> AnalysisException:
    return AnalysisException(f"[UNRESOLVED_COLUMN] orgin#{batch} cannot be resolved")


def ended_by(cause: Exception) -> StreamingQueryException:
    """Return the error of a query that has started."""
    error = StreamingQueryException("[STREAM_FAILED] the query was terminated")
    error._cause = cause
    return error


@pytest.mark.parametrize("error", [no_column, lambda batch: ended_by(no_column(batch))])
def test_a_query_that_cannot_be_planned_fails_after_some_starts(tmp_path: Path, error: Any) -> None:
    life, starts = life_with(tmp_path, *map(error, range(30)))
    assert (life.status().state, len(starts)) == (State.FAILED, UNPLANNABLE)


@pytest.mark.parametrize(
    "error",
    [
        AnalysisException("[PATH_NOT_FOUND] Path does not exist: /in/a"),
        LocationUnavailable("commits cannot be listed"),
        StreamingQueryException("the brokers do not answer"),
    ],
)
def test_an_error_that_may_end_is_repeated(tmp_path: Path, error: Exception) -> None:
    life, starts = life_with(tmp_path, *[error] * 30)
    assert (life.status().state, len(starts)) == (State.FAILED, 20)  # its own limit


def test_other_errors_between_do_not_make_a_query_unplannable(tmp_path: Path) -> None:
    mixed = [no_column(1), OSError("a node was lost")] * 15
    _, starts = life_with(tmp_path, *mixed)
    assert len(starts) == 20


def test_a_change_after_the_end_by_an_operator_needs_a_committed_end(tmp_path: Path) -> None:
    """The seeded location ends at no position; the coordinator has one, and then none."""
    plans = seeded(tmp_path)
    behind = query_of(plans, PLAN, "r", refused(Code.REGION_REMOVED, committed=AT))
    finished: list[str] = []

    def change(query: Answered) -> Change:
        return Change(
            query.settings, plans, [query], Event(), lambda found, _: finished.append(found[0].name)
        )

    with pytest.raises(DivisionRefused, match=r"first_assignment=\(2, DECISION\), and with a source"):
        change(behind)._require_whole(behind)
    whole = replace(behind, answer=refused(Code.REGION_REMOVED))
    change(whole)._require_whole(whole)
    change(whole)._close(whole)  # without a registration, which would be refused


def test_a_change_waits_for_the_outcome_of_a_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The region is at its end in a decision, and the committed position is still the one before."""
    plans = seeded(tmp_path)
    query = query_of(plans, PLAN, "r")
    change = Change(query.settings, plans, [query], Event(), lambda _, __: None)
    open_decision = refused(Code.REGION_REMOVED, committed=AT).model_copy(update={"unresolved": 3})
    answers = [open_decision, open_decision, refused(Code.REGION_REMOVED)]
    monkeypatch.setattr(change_module, "_PAUSE", 0.0)
    monkeypatch.setattr(Answered, "probe", lambda *_: answers.pop(0))
    change._require_whole(query)
    assert answers == []


def test_the_next_assignment_begins_by_an_answer_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = query_of(Plans(str(tmp_path)), PLAN, "r")
    change = Change(query.settings, query.plans, [query], Event(), lambda _, __: None)
    answers = iter([refused(Code.BASE_DIFFERS, committed=AT), ACCEPTED, refused(Code.ASSIGNMENT_OLDER)])
    monkeypatch.setattr(change_module, "ask", lambda *_: next(answers))
    assert change._begin("p0", by_partition(1), 2, 7) == AT
    assert change._begin("p0", by_partition(1), 2, 7) is None
    with pytest.raises(RegistrationRefused, match="assignment-older"):
        change._begin("p0", by_partition(1), 2, 7)


def test_old_files_of_folders_that_are_merged_are_read(tmp_path: Path) -> None:
    plans = Plans(str(tmp_path))
    first = Plan(number=1, division=by_path({"a": "/in/a", "b": "/in/b"}))
    second = Plan(number=2, division=by_path({"all": "/in"}), files=True, former=1)
    third = Plan(number=3, division=by_path({"all": "/in", "c": "/c"}), files=True, former=2)
    for plan in (first, second, third):
        plans.write(plan)
    query = query_of(plans, third, "all")
    assert query._file_options("/in") == {"maxFileAge": "36500d"}
    assert query._file_options("/c") == {}
    assert query_of(plans, first, "a")._file_options("/in/a") == {}
    own = Source("json", {"MaxFileAge": "1d"})
    require_all_ages(own, plans, first, first.division)
    with pytest.raises(DivisionRefused, match="Leave the option out: the runner sets it"):
        require_all_ages(own, plans, first, second.division)
