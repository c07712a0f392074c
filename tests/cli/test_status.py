"""`sluicegate status` shows the newest record of each stream, and how far the group is behind."""

import re
import time
from typing import Any

import pytest

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.orders import obey
from sluicegate.coordinator.core.state import Decision, LightState, LineageState, RegionState, StateRecord
from sluicegate.events.models import Assignment, Position, StreamCommand
from sluicegate.events.partitioning import partition_of
from sluicegate.lakes.port import SnapshotRef
from tests.cli.deployment import PARTITIONS, Deployment, as_json

pytestmark = pytest.mark.kafka
AT_NOON = 1_356_998_400_000


def _record(committed: int = 41, **more: Any) -> StateRecord:
    lived = {"q1": LineageState(opened_at=0)}
    regions = {
        "EWR": RegionState(
            lineages=lived, chain=["q1"], ref=Position(lineage="q1", checkpoint=17), watermark=5
        ),
        "JFK": RegionState(lineages=lived, chain=["q1"], idle=True),
        "LGA": RegionState(lineages=lived, chain=["q1"], fault="other content; open a new lineage"),
        "OLD": RegionState(lineages=lived, chain=["q1"], closed=True, left=True),
    }
    state = LightState(
        partition=partition_of("flights", PARTITIONS),
        table="uuid",
        recorded=SnapshotRef(57, "x"),
        assignment=Assignment(number=2, regions=("EWR", "JFK", "LGA", "NEW")),
        regions=regions,
        decided=committed,
        committed=committed,
        watermark=AT_NOON,
    )
    return StateRecord(stream="flights", applied=90, low_water=80, state=state, **more)


def _bytes(record: StateRecord) -> bytes:
    return record.model_dump_json().encode()


def _stream(deployment: Deployment, name: str = "flights") -> dict[str, Any]:
    result = deployment.run("status", "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = next(each for each in as_json(result)["streams"] if each["stream"] == name)
    return found


def test_stream_that_nobody_opened(deployment: Deployment) -> None:
    deployment.create_topics()
    shown = _stream(deployment)
    assert (shown["opened"], shown["read_by_restart"], "regions" in shown) == (False, 0, False)
    assert "flights  not opened yet" in deployment.run("status").stdout


def test_newest_record_wins_and_foreign_keys_are_ignored(deployment: Deployment) -> None:
    deployment.create_topics()
    deployment.write_state(
        (b"flights", _bytes(_record(40))),
        (b"other", None),
        (b"flights", _bytes(_record(41))),
        (b"flights/mark-done", b"{}"),
    )
    shown = _stream(deployment)
    assert (shown["committed"], shown["snapshot"], shown["watermark"]) == (41, 57, AT_NOON)
    assert (shown["assignment"], shown["low_water"], shown["stalled"]) == (2, 80, None)
    assert {name: region["state"] for name, region in shown["regions"].items()} == {
        "EWR": "active",
        "JFK": "idle",
        "LGA": "stalled",
        "NEW": "not opened",
        "OLD": "closed",
    }
    assert shown["regions"]["EWR"]["cut"] == {"lineage": "q1", "checkpoint": 17}
    assert shown["regions"]["LGA"]["reason"] == "other content; open a new lineage"
    assert [each["stream"] for each in as_json(deployment.run("status", "--json"))["streams"]] == ["flights"]


def test_lines_for_people(deployment: Deployment) -> None:
    deployment.create_topics()
    record = _record(stalled="the table was replaced", heard={"EWR": AT_NOON})
    record.state.pending = [
        Decision(
            id=42,
            digest="d",
            offset=9,
            cut={},
            final=False,
            watermark=None,
            parts=[],
            files=0,
            first_offset=8,
        )
    ]
    deployment.write_state((b"flights", _bytes(record)))
    lines = deployment.run("status", "--stream", "flights").stdout.splitlines()
    assert lines[0].startswith(
        "flights  commit 41 (snapshot 57), 1 decided and not confirmed (0 files)  watermark 2013-01-01T"
    )
    assert re.fullmatch(r"  as of \d+ s ago, by its state record", lines[1])
    assert lines[2] == "  STALLED: the table was replaced"
    assert re.fullmatch(r"  EWR +active +checkpoint 17 of lineage q1; heard of \d+ days ago", lines[3])
    assert lines[4].split() == ["JFK", "idle", "nothing", "committed"]
    assert len(lines) == 9


def test_a_paused_stream_is_no_stalled_one(deployment: Deployment) -> None:
    deployment.create_topics()
    record = _record()
    obey(Book("flights", record.state, record.applied), "flights", StreamCommand(command="pause"))
    deployment.write_state((b"flights", _bytes(record)))
    shown = _stream(deployment)
    assert (shown["stalled"], "sluicegate resume --stream flights" in shown["paused"]) == (None, True)
    assert time.time() - shown["recorded_at"] / 1000 < 60
    lines = deployment.run("status").stdout.splitlines()
    assert lines[2].startswith("  PAUSED: an operator paused the stream; go on with: sluicegate resume")
    assert "STALLED" not in "".join(lines)
    # As an earlier release wrote it.
    deployment.write_state((b"flights", _bytes(record.model_copy(update={"stalled": shown["paused"]}))))
    assert _stream(deployment)["stalled"] is None


def test_a_stream_that_an_event_on_another_partition_stalls_is_no_paused_one(deployment: Deployment) -> None:
    deployment.create_topics()
    record = _record()
    record.state.blocked = "an event stands elsewhere"
    deployment.write_state((b"flights", _bytes(record)))
    shown = _stream(deployment)
    assert (shown["stalled"], shown["paused"]) == ("an event stands elsewhere", None)


def test_what_the_next_commit_waits_for_and_refused_openings(deployment: Deployment) -> None:
    deployment.create_topics()
    waits = ["region NEW has never been opened", "region EWR has completed nothing since its last commit"]
    refused = {"JFK": "lineage q2 names no parent", "SFO": "region SFO is not in its own assignment 2"}
    deployment.write_state((b"flights", _bytes(_record(waits=waits, refused=refused))))
    shown = _stream(deployment)
    assert shown["waits_for"] == waits
    assert {name: region["refused"] for name, region in shown["regions"].items() if region["refused"]} == {
        "JFK": refused["JFK"]
    }
    assert shown["strangers"] == {"SFO": refused["SFO"]}
    assert {name: region["state"] for name, region in shown["regions"].items()} == {
        "EWR": "active",
        "JFK": "refused",
        "LGA": "stalled",
        "NEW": "not opened",
        "OLD": "closed",
    }
    lines = deployment.run("status").stdout.splitlines()
    assert lines[2:4] == [f"  WAITS: {each}" for each in waits]
    at = next(number for number, line in enumerate(lines) if line.split()[0] == "JFK")
    assert lines[at + 1] == "    LAST OPENING REFUSED: lineage q2 names no parent"
    assert lines[-2].startswith("  REFUSED: a query of region SFO, which is not in the stream: region SFO")


def test_that_no_coordinator_is_running_is_said(deployment: Deployment) -> None:
    deployment.create_topics()
    group = deployment.settings.kafka.group_id
    said = f"no coordinator is running (group {group} has no members)"
    assert deployment.run("status").stdout.splitlines()[-1] == said
    # A group that is known by its offsets, and has lost its members.
    deployment.set_group_offset(0, 0)
    assert deployment.run("status").stdout.splitlines()[-1] == said
    assert as_json(deployment.run("status", "--json"))["coordinators"] == 0


def test_what_a_restart_reads_counts_from_the_groups_offset(deployment: Deployment) -> None:
    deployment.create_topics()
    deployment.write_state((b"flights", _bytes(_record())))
    for _ in range(3):
        assert deployment.run("resume", "--stream", "flights").exit_code == 0
    assert (_stream(deployment)["end_offset"], _stream(deployment)["read_by_restart"]) == (3, 3)
    deployment.set_group_offset(partition_of("flights", PARTITIONS), 2)
    shown = _stream(deployment)
    assert (shown["group_offset"], shown["read_by_restart"]) == (2, 1)
    said = deployment.run("status").stdout
    assert f"partition {shown['partition']} (a restart reads 1 records)" in said
    assert "lag" not in said, "the metric of that name counts what is not read yet"


def test_records_written_in_transactions_are_read_to_the_end(deployment: Deployment, unique: str) -> None:
    deployment.create_topics()
    deployment.write_state((b"flights", _bytes(_record(40))))
    deployment.write_state((b"flights", _bytes(_record(41))), transaction=unique)
    assert _stream(deployment)["committed"] == 41


def test_records_of_streams_that_are_not_configured_here(deployment: Deployment) -> None:
    deployment.create_topics()
    deployment.write_state((b"trains", _bytes(_record())))
    assert _stream(deployment, "trains")["configured"] is False
    assert "NOT CONFIGURED HERE" in deployment.run("status").stdout


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b'{"stream": "flights"}', "applied: Field required"),
        (_bytes(_record(version=2)), "version 2, this release reads 1; upgrade"),
    ],
    ids=["malformed", "newer"],
)
def test_record_that_cannot_be_read_is_shown_as_that(deployment: Deployment, value: bytes, says: str) -> None:
    deployment.create_topics()
    deployment.write_state((b"flights", value))
    shown = _stream(deployment)
    assert says in shown["problem"]
    assert says in deployment.run("status").stdout


def test_missing_topics_are_a_clear_error(deployment: Deployment) -> None:
    result = deployment.run("status")
    assert result.exit_code == 2
    assert "sluicegate topics create" in result.stderr
