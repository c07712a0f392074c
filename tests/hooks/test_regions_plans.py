"""Divisions, offsets, reactions and plans of the region runner, as pure data."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Never, cast

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Assignment, Position, RegionRegistered, StreamCommand
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import Code, Problem
from sluicegate.writer_hooks.errors import (
    BadCheckpointLocation,
    BadOption,
    LocationUnavailable,
    PublishFailed,
    RegionReplaced,
    RegistrationRefused,
    RegistrationUnanswered,
)
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation
from sluicegate.writer_hooks.spark.location import Location
from sluicegate.writer_hooks.spark.regions import change as change_module
from sluicegate.writer_hooks.spark.regions import query as query_module
from sluicegate.writer_hooks.spark.regions import query as settings_module
from sluicegate.writer_hooks.spark.regions import runner as runner_module
from sluicegate.writer_hooks.spark.regions.change import Change, require_change, require_same_source
from sluicegate.writer_hooks.spark.regions.division import (
    BaseInUse,
    DivisionRefused,
    Source,
    assigned,
    by_column,
    by_partition,
    by_path,
    require_divisible,
)
from sluicegate.writer_hooks.spark.regions.offsets import EARLIEST, parse_offsets, starts, to_text, union
from sluicegate.writer_hooks.spark.regions.plans import (
    Plan,
    Plans,
    files_of,
    history,
    only_runner,
    require_all_ages,
    seed,
)
from sluicegate.writer_hooks.spark.regions.query import Backoff, RegionQuery, chosen_sink, require_options
from sluicegate.writer_hooks.spark.regions.runner import RegionRunner
from sluicegate.writer_hooks.spark.regions.supervision import (
    UNPLANNABLE,
    Reaction,
    RegionSupervisor,
    State,
    reaction,
)
from sluicegate.writer_hooks.spark.reset import ResetOrder, reset_region
from tests.hooks.region_queries import ACCEPTED, OPTIONS, Answered, query_of
from tests.hooks.replica import Judges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HOOKS = "sluicegate.writer_hooks.errors"


def test_a_row_that_two_regions_would_have_is_refused() -> None:
    with pytest.raises(BadOption, match="keep it in one region"):
        by_column("n", {"a": [1], "b": ["1"]}, rest="other")
    with pytest.raises(BadOption, match="remove it, or give it one"):
        by_column("n", {"a": []}, rest="other")
    with pytest.raises(BadOption, match="choose another name for the rest"):
        by_column("n", {"a": [1]}, rest="a")
    with pytest.raises(BadOption, match="give folders that do not contain each other"):
        by_path({"all": "/in", "a": "/in/a/"})
    with pytest.raises(BadOption, match="name a folder"):
        by_path({"a": "/in/*"})
    for odd in ("/in/a%20b", "/in/../a", "/in/a#b"):
        with pytest.raises(BadOption, match="give a folder without them"):
            by_path({"a": odd})
    for relative in ("in/a", "file:/in/a"):
        with pytest.raises(BadOption, match="give a path from the root, or a URI"):
            by_path({"a": relative})
    for other in ("/in//a", "/in/./a/", "file:///in/a"):
        with pytest.raises(BadOption, match="give folders that do not contain each other"):
            by_path({"a": "/in/a", "b": other})
    with pytest.raises(BadOption, match="give folders that do not contain each other"):
        by_path({"a": "s3://lake/a", "b": "s3a://lake//a/b"})
    assert by_path({"a": "/in//a/", "b": "s3://lake/./b"}).paths == {"a": "/in/a", "b": "s3://lake/b"}
    assert by_path({"a": "/in/a", "ab": "/in/ab/"}).paths == {"a": "/in/a", "ab": "/in/ab"}


def test_each_partition_belongs_to_one_region_also_after_the_topic_has_grown() -> None:
    division = by_partition(3)
    for count in (3, 7):
        found = [each for name in division.regions for each in assigned(division, name, {"t": count})["t"]]
        assert sorted(found) == list(range(count))
    assert assigned(division, "p2", {"t": 2}) == {}


def test_offsets_of_all_regions_are_united_and_new_partitions_are_read_whole() -> None:
    known = union([("p0", {"t": {0: 5, 2: 7}}), ("p1", {"t": {1: EARLIEST}})])
    assert starts(known, {"t": [0, 3]}) == {"t": {0: 5, 3: EARLIEST}}
    assert parse_offsets(to_text(known)) == known
    with pytest.raises(DivisionRefused, match="repeat the change"):
        union([("p0", {"t": {0: 5}}), ("p1", {"t": {0: 6}})])
    with pytest.raises(BadOption, match="or earliest or latest"):
        parse_offsets("17")


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        ("java.io.IOException: a node was lost", Reaction.RESTART),
        (f"{HOOKS}.PublishFailed: Kafka", Reaction.RESTART),
        (f"{HOOKS}.LocationUnavailable: commits cannot be listed", Reaction.RESTART),
        (f"{HOOKS}.BadOption: the option table is missing", Reaction.FAIL),
        (f"{HOOKS}.TopicMissing: t", Reaction.FAIL),
        (f"{HOOKS}.RegionReplaced: its incarnation has ended", Reaction.RESET),
        (f"{HOOKS}.RegionReplaced: another process runs its checkpoint location", Reaction.FAIL),
        (f"{HOOKS}.RegistrationRefused: (incarnation ab12, incarnation-ended). x", Reaction.RESET),
        (f"{HOOKS}.RegistrationRefused: (incarnation ab12, assignment-open). x", Reaction.RESTART),
        (f"{HOOKS}.RegistrationRefused: (incarnation ab12, location-older). x", Reaction.FAIL),
        (f"{HOOKS}.RegistrationRefused: (incarnation ab12, base-differs). x", Reaction.FAIL),
        (
            f"{HOOKS}.RegistrationRefused: the reset of the region r was refused (no-policy): x",
            Reaction.RESTART,
        ),
        (f"{HOOKS}.RegistrationRefused: the reset of r was refused (base-differs): x", Reaction.RESTART),
        (f"{HOOKS}.RegistrationRefused: the reset of r was refused (region-removed): x", Reaction.FAIL),
    ],
)
def test_the_class_of_an_error_decides_what_follows(error: str, wanted: Reaction) -> None:
    assert reaction(f"Traceback ...\n{error}\n at java.base") is wanted


def test_pauses_grow_up_to_the_limit_with_full_jitter() -> None:
    backoff = Backoff(first=1.0, longest=10.0, max_failures=3)
    random = Random(7)
    for failures, longest in ((1, 1.0), (2, 2.0), (4, 8.0), (5, 10.0), (5000, 10.0)):
        drawn = [backoff.pause(failures, random) for _ in range(200)]
        assert max(drawn) <= longest
        assert min(drawn) < longest / 10
        assert max(drawn) > longest * 0.9
    assert [backoff.is_exhausted(each) for each in (2, 3)] == [False, True]
    with pytest.raises(BadOption, match="use 0 <= first <= longest"):
        Backoff(first=2.0, longest=1.0)


def test_the_newest_valid_plan_counts(tmp_path: Path) -> None:
    plans = Plans(str(tmp_path))
    assert (plans.newest(), plans.next_number(5)) == (None, 5)
    first = Plan(number=1, division=by_partition(2), offsets={"t": {0: 3, 1: EARLIEST}})
    second = Plan(number=2, after=9, division=by_partition(3), former=1)
    plans.write(first)
    plans.write(second)
    assert plans.newest() == second
    plans.give_up(2)
    assert (plans.newest(), plans.next_number(1)) == (first, 3)
    for damaged in ('{"number": 3, "divis', second.model_dump_json(), '{"later": 1}'):
        (tmp_path / "plans" / "3.json").write_text(damaged)
        with pytest.raises(
            BadCheckpointLocation, match="Run the release that has written it, or restore the file"
        ):
            plans.newest()
    names = sorted(path.name for path in (tmp_path / "plans").iterdir())
    assert names == ["1.json", "2.given-up", "3.json"]


def test_a_second_runner_is_refused(tmp_path: Path) -> None:
    with (
        only_runner(str(tmp_path)),
        pytest.raises(BaseInUse, match="stop it, or give this one another base"),
        only_runner(str(tmp_path)),
    ):
        pass
    with only_runner(f"file://{tmp_path}"):
        pass


def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(BadOption, match="can be divided by a column alone"):
        require_divisible(lambda spark: spark.readStream.load(), by_partition(2))
    with pytest.raises(BadOption, match="has no paths"):
        require_divisible(Source("rate"), by_path({"a": "/a"}))
    with pytest.raises(BadOption, match="has no partitions of Kafka"):
        require_divisible(Source("rate"), by_partition(2))
    with pytest.raises(BadOption, match="needs the option subscribe"):
        require_divisible(Source("kafka", {"subscribePattern": "t.*"}), by_partition(2))
    timed = Source("kafka", {"subscribe": "t", "startingTimestamp": "1"})
    with pytest.raises(BadOption, match="use startingOffsets"):
        require_divisible(timed, by_partition(2))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "up to different offsets .*availableNow"),
        ({"state/0/0/1.delta": ""}, "keeps state.*start a new stream"),
        ({"sources/1/0": "v1"}, "reads several sources.*Give each region"),
        (
            {"offsets/1": 'v1\n{}\n{"t":{"0":1}}\n{"u":{"0":1}}'},
            "reads 2 sources.*Give each region one source",
        ),
    ],
)
def test_a_change_that_cannot_be_finished_is_refused_before_a_batch_is(
    tmp_path: Path, more: dict[str, str], message: str
) -> None:
    """Both regions read the partition 0; the batch 1 of one of them is planned, and not completed."""
    plans = Plans(str(tmp_path))
    plan = Plan(number=1, division=by_column("origin", {"EWR": ["EWR"]}, rest="other"), offsets={"t": {0: 0}})
    for name, ends in (("EWR", (5, 9)), ("other", (5,))):
        for batch, end in enumerate(ends):
            write_files(Path(plans.location_of(plan, name)), {f"offsets/{batch}": offsets_of(end)})
    write_files(Path(plans.location_of(plan, "EWR")), more)
    old = [query_of(plans, plan, name) for name in plan.division.regions]
    finished: list[str] = []

    def finish(queries: Sequence[RegionQuery], stopped: Event) -> None:
        finished.extend(query.name for query in queries)

    with pytest.raises(DivisionRefused, match=message):
        Change(old[0].settings, plans, old, Event(), finish).run(by_partition(1))
    assert finished == []


def test_old_regions_without_a_place_or_a_commit_refuse_the_change(tmp_path: Path) -> None:
    plans = Plans(str(tmp_path))
    plan = Plan(number=1, division=by_column("origin", {}, rest="r"))
    query = query_of(plans, plan, "r")
    change = Change(query.settings, plans, [query], Event(), lambda _, __: None)
    with pytest.raises(BadCheckpointLocation, match="until it has rows, and repeat the change"):
        change.run(by_partition(1))
    seed(plans.location_of(plan, "r"), [], "s", "r", 1, Position(incarnation="a", checkpoint=3, digest="d"))
    with pytest.raises(BadCheckpointLocation, match="Run the division of plan 1 again, and repeat"):
        change._require_committed(query)


def withdrawn_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judges: Judges, **more: Any
) -> RegionRunner:
    """Return a runner at a base whose plans the replica of a stream judges."""
    session = cast("SparkSession", SimpleNamespace(_jsparkSession=None))
    source = Source("json")
    made = RegionRunner(session, OPTIONS, source, regions=by_path({"a": "/in/a"}), base=str(tmp_path), **more)

    def answered(plan: Plan, name: str) -> RegionQuery:
        query = query_of(made._plans, plan, name)
        event = query.region.registration("probe", None, probe=True)
        body = event.body
        assert isinstance(body, RegionRegistered)
        body = body.model_copy(update={"table": None})
        answer = judges.apply(event.envelope, body)
        assert answer is not None
        return query_of(made._plans, plan, name, answer)

    monkeypatch.setattr(made, "_query", answered)
    return made


def register(judges: Judges, plan: Plan, incarnation: str) -> RegistrationAnswered:
    assignment = Assignment(number=plan.number, regions=plan.division.regions, after=plan.after)
    body = RegionRegistered(assignment=assignment)
    envelope = Envelope(f"e-{incarnation}", EventType.REGION_REGISTERED, "s", "a", incarnation)
    answer = judges.apply(envelope, body)
    assert answer is not None
    return answer


def test_a_first_plan_that_was_withdrawn_is_begun_again_as_the_text_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its queries find nothing new to read, end well, and none of their rows is ever committed."""
    judges = Judges()
    first = withdrawn_runner(tmp_path, monkeypatch, judges)._current_plan()
    assert register(judges, first, "i1").accepted
    assert withdrawn_runner(tmp_path, monkeypatch, judges)._current_plan() == first
    judges.order("s", StreamCommand(command="withdraw", number=1))
    assert not register(judges, first, "i2").accepted
    again = withdrawn_runner(tmp_path, monkeypatch, judges)
    with pytest.raises(
        DivisionRefused, match=r"withdrew assignment 1, .*first_assignment=\(2, 0\): "
    ) as told:
        again._current_plan()
    named = re.search(r"first_assignment=\((\d+), (\d+)\)", str(told.value))
    assert named is not None
    pair = int(named[1]), int(named[2])
    plan = withdrawn_runner(tmp_path, monkeypatch, judges, first_assignment=pair)._current_plan()
    assert (plan.number, plan.after, plan.former, plan.division) == (2, 0, None, first.division)
    assert register(judges, plan, "i3").accepted
    # The next runs need no other argument than this one, nor even that.
    for more in ({"first_assignment": pair}, {}):
        assert withdrawn_runner(tmp_path, monkeypatch, judges, **more)._current_plan() == plan


def test_a_first_plan_continues_where_nobody_says_if_it_was_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runner = withdrawn_runner(tmp_path, monkeypatch, Judges())
    first = runner._current_plan()

    def unanswered(self: RegionQuery, stopped: object, patience: float) -> RegistrationAnswered:
        assert patience == 10.0
        raise RegistrationUnanswered("nobody")

    monkeypatch.setattr(Answered, "probe", unanswered)
    assert runner._current_plan() == first
    assert "nobody says if the assignment of plan 1 was withdrawn" in caplog.text


def test_a_region_that_another_query_has_is_not_reset(tmp_path: Path) -> None:
    plans = Plans(str(tmp_path))
    plan = Plan(number=1, division=by_column("origin", {}, rest="r"))
    with pytest.raises(RegionReplaced, match="Stop that query, and start the runner again"):
        query_of(plans, plan, "r", ACCEPTED.model_copy(update={"live": "another"})).reset("the test")


def test_a_topic_that_grows_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counts = iter([2, 3])
    monkeypatch.setattr(runner_module, "partitions_of", lambda *_: {"t": next(counts)})
    session = cast("SparkSession", SimpleNamespace(_jsparkSession=None))
    source = Source("kafka", {"subscribe": "t"})
    division = by_partition(2)
    runner = RegionRunner(session, OPTIONS, source, regions=division, base=str(tmp_path))
    runner._require_partitions(division)
    runner._compare_topics()
    assert "has 3 partitions, and had 2 at the start: stop the runner and start it" in caplog.text
    with pytest.raises(BadOption, match="use a classic session"):
        RegionRunner(cast("SparkSession", None), OPTIONS, source, regions=division, base=str(tmp_path))


def write_files(root: Path, content: dict[str, str]) -> None:
    for name, text in content.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def offsets_of(end: int) -> str:
    """Return an entry of Spark's offset log, for one partition of a Kafka source."""
    return f'v1\n{{"batchWatermarkMs":0}}\n{{"t":{{"0":{end}}}}}'


def test_a_source_that_has_no_place_in_another_division_is_refused() -> None:
    columns = by_column("origin", {"EWR": ["EWR"]}, rest="other")
    old = Plan(number=1, division=columns)
    for source, message in (
        (lambda spark: spark.readStream.load(), "the source is a function"),
        (Source("rate"), "the source rate cannot be continued"),
        (Source("json"), "from paths to other paths alone"),
        (Source("kafka", {"subscribePattern": "t.*"}), "only with the option subscribe"),
    ):
        with pytest.raises(DivisionRefused, match=rf"{message}.*Keep the division"):
            require_change(source, old, by_column("origin", {"JFK": ["JFK"]}, rest="other"))


def test_a_reset_of_a_seeded_location_keeps_the_seed(tmp_path: Path) -> None:
    """Its region has no position yet. Without the seed, its committed files would be read again."""
    seed(str(tmp_path), [("file:///in/a/1.json", 7)], "s", "moved", 2, None)

    def answer(incarnation: str, body: RegionRegistered) -> RegistrationAnswered:
        return RegistrationAnswered(registration="1", accepted=True, live=incarnation)

    order = ResetOrder("s", "moved", str(tmp_path), Assignment(number=2, regions=("moved",), after=1))
    done = reset_region(order, answer)
    assert (done.moved, done.position) == (0, None)
    assert files_of(str(tmp_path)) == [("file:///in/a/1.json", 7)]
    assert CheckpointLocation(str(tmp_path)).newest_completed() == 0


def test_options_that_the_runner_sets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadOption, match="leave it out of the options of the RegionRunner"):
        require_options({"checkpointLocation": "/c"})
    with pytest.raises(BadOption, match="the option stream is missing"):
        require_options({"table": "/t"})
    with pytest.raises(BadOption, match="sink must be data-source or foreach-batch"):
        chosen_sink("kafka")
    monkeypatch.setattr(settings_module, "has_data_source", lambda: False)
    assert chosen_sink(None) == "foreach-batch"
    with pytest.raises(BadOption, match="use sink='foreach-batch'"):
        chosen_sink("data-source")


def test_the_order_of_a_division_matters_for_partitions_alone() -> None:
    one = by_column("n", {"a": ["1", "2"], "b": ["3"]}, rest="r")
    assert one.is_same_as(by_column("n", {"b": ["3"], "a": ["2", "1"]}, rest="r"))
    assert not one.is_same_as(by_column("n", {"a": ["1"], "b": ["2", "3"]}, rest="r"))
    assert by_path({"a": "/a", "b": "/b"}).is_same_as(by_path({"b": "/b", "a": "/a"}))
    assert not by_path({"a": "/a", "b": "/b"}).is_same_as(by_path({"a": "/b", "b": "/a"}))
    assert not by_partition(2).is_same_as(by_partition(2, prefix="q"))


def test_a_folder_that_comes_back_is_not_read_again(tmp_path: Path) -> None:
    plans = Plans(str(tmp_path))
    both, one = by_path({"a": "/in/a", "b": "/in/b"}), by_path({"a": "/in/a"})
    first, second = Plan(number=1, division=both), Plan(number=2, division=one, files=True, former=1)
    plans.write(first)
    plans.write(second)
    for name in "ab":
        seed(plans.location_of(first, name), [(f"file:///in/{name}/1.json", 7)], "s", name, 1, None)
    seed(plans.location_of(second, "a"), [("file:///in/a/1.json", 7)], "s", "a", 2, None)
    assert history(plans, second) == [("file:///in/a/1.json", 7), ("file:///in/b/1.json", 7)]
    metadata = Path(plans.location_of(first, "b")) / "metadata"
    metadata.unlink()
    with pytest.raises(DivisionRefused, match="Put it back, or keep the division"):
        history(plans, second)
    (tmp_path / "plans" / "1.json").unlink()
    with pytest.raises(BadCheckpointLocation, match=r"Put .*/plans/1.json back"):
        history(plans, second)


def test_another_source_or_one_that_confuses_files_is_refused() -> None:
    flights, others = Source("kafka", {"subscribe": "flights"}), Source("kafka", {"subscribe": "other"})
    plan = Plan(number=1, division=by_partition(2), source=flights.identity)
    require_same_source(flights, plan)
    for source in (others, Source("json"), lambda spark: spark.readStream.load()):
        with pytest.raises(DivisionRefused, match="Give it the same source, or another base and stream"):
            require_same_source(source, plan)
    with pytest.raises(BadOption, match="rows would be lost; leave it out"):
        require_divisible(Source("json", {"fileNameOnly": "true"}), by_path({"a": "/in/a"}))


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


@pytest.mark.parametrize(
    ("errors", "starts"),
    [
        ([no_column(batch) for batch in range(30)], UNPLANNABLE),
        ([ended_by(no_column(batch)) for batch in range(30)], UNPLANNABLE),
        # These may end, and are repeated up to the limit of the query itself.
        ([AnalysisException("[PATH_NOT_FOUND] Path does not exist: /in/a")] * 30, 20),
        ([LocationUnavailable("commits cannot be listed")] * 30, 20),
        ([StreamingQueryException("the brokers do not answer")] * 30, 20),
        ([no_column(1), OSError("a node was lost")] * 15, 20),
    ],
)
def test_a_query_that_cannot_be_planned_fails_after_some_starts(
    tmp_path: Path, errors: list[Exception], starts: int
) -> None:
    life, tried = life_with(tmp_path, *errors)
    assert (life.status().state, len(tried)) == (State.FAILED, starts)


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
