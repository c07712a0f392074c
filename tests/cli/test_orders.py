"""Orders go into the log, for the right stream, and only those that make sense."""

import pytest

from sluicegate.cli import refusals
from sluicegate.coordinator.core.state import LightState, LineageState, RegionState, StateRecord
from sluicegate.events.envelope import EventType
from sluicegate.events.models import Parent, Position, StreamCommand
from tests.cli.deployment import Deployment, as_json

pytestmark = pytest.mark.kafka


@pytest.fixture
def opened(deployment: Deployment) -> Deployment:
    """Give a deployment where region EWR of the stream lives in lineage q1."""
    deployment.create_topics()
    region = RegionState(lineages={"q1": LineageState(opened_at=0)}, chain=["q1"])
    state = LightState(regions={"EWR": region}, decided=2, committed=2)
    record = StateRecord(stream="flights", applied=-1, low_water=0, state=state)
    deployment.write_state((b"flights", record.model_dump_json().encode()))
    return deployment


def test_accept_is_appended_to_the_streams_partition(opened: Deployment) -> None:
    opened.refuse("flights", "EWR", "q2")
    result = opened.run("accept", "--stream", "flights", "--region", "EWR", "--lineage", "q2")
    assert result.exit_code == 0, result.output
    (event,) = opened.events("flights")
    assert (event.envelope.type, event.envelope.stream) == (EventType.STREAM_COMMAND, "flights")
    assert event.body == StreamCommand(command="accept", region="EWR", lineage="q2")
    assert "offset 0" in result.stdout
    assert "start the query again" in result.stdout
    assert "no completed checkpoint waits" in result.stdout
    assert "no row can come twice" in result.stdout


def test_a_lineage_that_nobody_was_refused_is_accepted_only_by_force(
    opened: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "_FIRST_WINDOW", 1)
    order = ("accept", "--stream", "flights", "--region", "EWR", "--lineage", "q9")
    result = opened.run(*order)
    assert (result.exit_code, "none was refused" in result.stderr) == (2, True), result.output
    opened.refuse("flights", "JFK", "q9")
    opened.refuse("flights", "EWR", "q2", "q3", "q2")
    result = opened.run(*order)
    assert result.exit_code == 2
    assert "no opening of lineage q9 of region EWR was refused; refused were: q2, q3." in result.stderr
    assert "--force" in result.stderr
    assert opened.events("flights") == []
    assert opened.run(*order, "--force").exit_code == 0
    assert opened.run(*order[:-1], "q3").exit_code == 0
    assert len(opened.events("flights")) == 2


def test_accept_says_what_is_dropped_and_what_may_come_twice(deployment: Deployment) -> None:
    deployment.create_topics()
    lived = {"q0": LineageState(opened_at=0, limit=7, decided=7), "q1": LineageState(opened_at=1, decided=9)}
    region = RegionState(lineages=lived, chain=["q1"], ref=Position(lineage="q1", checkpoint=9))
    record = StateRecord(
        stream="flights", applied=0, low_water=0, state=LightState(regions={"EWR": region, "JFK": region})
    )
    deployment.write_state((b"flights", record.model_dump_json().encode()))
    for name, lineage, numbers in (
        ("EWR", "q0", (7, 8)),
        ("EWR", "q1", (8, 9, 10, 11, 12)),
        ("JFK", "q1", (13,)),
    ):
        deployment.complete("flights", name, lineage, *numbers)
    deployment.refuse("flights", "EWR", "q2")
    result = deployment.run("accept", "--stream", "flights", "--region", "EWR", "--lineage", "q2")
    assert result.exit_code == 0, result.output
    (event,) = (each for each in deployment.events("flights") if isinstance(each.body, StreamCommand))
    assert event.body == StreamCommand(command="accept", region="EWR", lineage="q2", behind=region.ref)
    _, dropped, doubled = result.stdout.splitlines()
    assert "not committed by then of the completed checkpoints 10..12 of lineage q1;" in dropped
    assert "committed up to: checkpoint 9 of lineage q1" in doubled
    assert "written twice" in doubled


def test_accept_names_what_a_region_took_over(deployment: Deployment) -> None:
    """Nothing of it is committed, but what it goes on from is: that would come twice."""
    deployment.create_topics()
    parent = Parent(region="LGA", lineage="q0", checkpoint=4)
    region = RegionState(lineages={"q1": LineageState(opened_at=1, parents=[parent])}, chain=["q1"])
    state = LightState(regions={"EWR": region})
    record = StateRecord(stream="flights", applied=0, low_water=0, state=state)
    deployment.write_state((b"flights", record.model_dump_json().encode()))
    deployment.refuse("flights", "EWR", "q2")
    result = deployment.run("accept", "--stream", "flights", "--region", "EWR", "--lineage", "q2")
    assert result.exit_code == 0, result.output
    assert "region EWR goes on from checkpoint 4 of q0 of LGA" in result.stdout
    assert "written twice" in result.stdout
    assert "no row can come twice" not in result.stdout


@pytest.mark.parametrize(
    ("blocked", "stalled", "says"),
    [
        ("an event on another partition", "an event on another partition", None),
        (None, "no Paimon table", "goes on by itself once the cause is gone: no Paimon table"),
        (None, None, "was not stalled, so this changes nothing"),
    ],
)
def test_resume_says_when_it_is_not_needed(
    deployment: Deployment, blocked: str | None, stalled: str | None, says: str | None
) -> None:
    deployment.create_topics()
    state = LightState(blocked=blocked)
    record = StateRecord(stream="flights", applied=0, low_water=0, state=state, stalled=stalled)
    deployment.write_state((b"flights", record.model_dump_json().encode()))
    result = deployment.run("resume", "--stream", "flights")
    assert result.exit_code == 0, result.output
    first, *more = result.stdout.splitlines()
    assert "is told to resume" in first
    assert [line for line in more if says and says in line] == more
    assert len(more) == (says is not None)


def test_resume_is_appended_each_time_with_an_id_of_its_own(opened: Deployment) -> None:
    for _ in range(2):
        assert opened.run("resume", "--stream", "flights").exit_code == 0
    first, second = opened.events("flights")
    assert first.body == second.body == StreamCommand(command="resume")
    assert first.envelope.id != second.envelope.id


def test_pause_and_remove_are_appended(opened: Deployment) -> None:
    assert "sluicegate resume --stream flights" in opened.run("pause", "--stream", "flights").stdout
    assert opened.run("remove", "--stream", "flights", "--region", "EWR").exit_code == 0
    bodies = [event.body for event in opened.events("flights")]
    assert bodies == [StreamCommand(command="pause"), StreamCommand(command="remove", region="EWR")]


def test_a_region_that_was_only_ever_refused_can_be_removed(deployment: Deployment) -> None:
    deployment.create_topics()
    record = StateRecord(
        stream="flights", applied=0, low_water=0, state=LightState(), refused={"EWX": "no such region"}
    )
    deployment.write_state((b"flights", record.model_dump_json().encode()))
    result = deployment.run("remove", "--stream", "flights", "--region", "EWX")
    assert result.exit_code == 0, result.output
    assert [event.body for event in deployment.events("flights")] == [
        StreamCommand(command="remove", region="EWX")
    ]


def test_a_savepoint_without_a_coordinator_is_ordered_and_says_what_it_waits_for(opened: Deployment) -> None:
    result = opened.run("savepoint", "--stream", "flights", "--name", "s1", "--timeout", "300ms")
    assert result.exit_code == 1
    assert "no outcome after 0.3 s; the order stands" in result.stderr
    assert "written before the order was read" in result.stderr
    (event,) = opened.events("flights")
    assert event.body == StreamCommand(command="savepoint", name="s1")


def test_a_drain_is_named_by_the_time_and_shown_as_json(opened: Deployment) -> None:
    result = opened.run("drain", "--stream", "flights", "--timeout", "0.3", "--json")
    assert result.exit_code == 1
    shown = as_json(result)
    assert (shown["outcome"], shown["order"]["command"], shown["offset"]) == ("waiting", "drain", 0)
    assert shown["order"]["name"].startswith("drain-20")


def test_a_drain_names_the_regions_whose_queries_seem_to_run(opened: Deployment) -> None:
    order = ("drain", "--stream", "flights", "--timeout", "0.3")
    assert "WARNING" not in opened.run(*order).output
    opened.complete("flights", "EWR", "q1", 7)
    opened.complete("flights", "JFK", "q1", 7)
    opened.close("flights", "JFK", "q1", 7)
    warned = [line for line in opened.run(*order).stderr.splitlines() if line.startswith("WARNING")]
    assert ["region EWR gave a sign of life" in line for line in warned] == [True]
    assert "stop it, and repeat: sluicegate drain --stream flights" in warned[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("pause", "--stream", "flihgts"), "configured are: flights"),
        (("remove", "--stream", "flights", "--region", "EWX"), "no region EWX; it has: EWR"),
        (("savepoint", "--stream", "flights", "--name", "a/b"), "the name 'a/b'"),
        (("drain", "--stream", "flights", "--timeout", "soon"), "must be a duration"),
        (
            ("void", "--stream", "flights", "--decision", "2", "--region", "EWR", "--checkpoint", "0"),
            "has its outcome already",
        ),
        (
            ("void", "--stream", "flights", "--decision", "9", "--region", "EWR", "--checkpoint", "0"),
            "has no decision 9 yet",
        ),
        (
            ("void", "--stream", "flights", "--decision", "0", "--region", "EWR", "--checkpoint", "0"),
            "decisions count from 1",
        ),
        (("accept", "--stream", "flihgts", "--region", "EWR", "--lineage", "q2"), "configured are: flights"),
        (("accept", "--stream", "flights", "--region", "EWX", "--lineage", "q2"), "no region EWX"),
        (("accept", "--stream", "flights", "--region", "EWR", "--lineage", "q1"), "was opened before"),
        (("accept", "--stream", "flights", "--region", "EWR", "--lineage", "q/2"), "cannot be a lineage"),
        (("accept", "--stream", "flights", "--region", "EWR"), "'--lineage'"),
        (("resume", "--stream", "flihgts"), "configured are: flights"),
    ],
)
def test_orders_that_make_no_sense_are_not_appended(
    opened: Deployment, arguments: tuple[str, ...], says: str
) -> None:
    result = opened.run(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert opened.events("flights") == []


def test_nothing_can_be_ordered_of_a_stream_that_nobody_opened(deployment: Deployment) -> None:
    deployment.create_topics()
    result = deployment.run("resume", "--stream", "flights")
    assert result.exit_code == 2
    assert "no job has opened it yet" in result.stderr
    assert deployment.events("flights") == []


def test_topics_are_created_once(deployment: Deployment) -> None:
    first, second = deployment.run("topics", "create"), deployment.run("topics", "create")
    names = [spec.name for spec in deployment.settings.kafka.topic_specs()]
    assert [line.split() for line in first.stdout.splitlines()] == [["created", name] for name in names]
    assert [line.split() for line in second.stdout.splitlines()] == [["exists", name] for name in names]
    assert (first.exit_code, second.exit_code) == (0, 0)
