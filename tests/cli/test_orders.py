"""Orders go into the log, for the right stream, and only those that make sense."""

import pytest

from sluicegate.coordinator.core.state import LightState, LineageState, RegionState, StateRecord
from sluicegate.events import EventType, StreamCommand
from tests.cli.deployment import Deployment

pytestmark = pytest.mark.kafka


@pytest.fixture
def opened(deployment: Deployment) -> Deployment:
    """Give a deployment where region EWR of the stream lives in lineage q1."""
    deployment.create_topics()
    region = RegionState(lineages={"q1": LineageState(opened_at=0)}, chain=["q1"])
    state = LightState(regions={"EWR": region})
    record = StateRecord(stream="flights", applied=0, low_water=0, state=state)
    deployment.write_state((b"flights", record.model_dump_json().encode()))
    return deployment


def test_accept_is_appended_to_the_streams_partition(opened: Deployment) -> None:
    result = opened.run("accept", "--stream", "flights", "--region", "EWR", "--lineage", "q2")
    assert result.exit_code == 0, result.output
    (event,) = opened.events("flights")
    assert (event.envelope.type, event.envelope.stream) == (EventType.STREAM_COMMAND, "flights")
    assert event.body == StreamCommand(command="accept", region="EWR", lineage="q2")
    assert "offset 0" in result.stdout
    assert "start the query again" in result.stdout


def test_resume_is_appended_each_time_with_an_id_of_its_own(opened: Deployment) -> None:
    for _ in range(2):
        assert opened.run("resume", "--stream", "flights").exit_code == 0
    first, second = opened.events("flights")
    assert first.body == second.body == StreamCommand(command="resume")
    assert first.envelope.id != second.envelope.id


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
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
