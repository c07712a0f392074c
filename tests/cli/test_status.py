"""`sluicegate status` shows the newest record of each stream, and how far the group is behind."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from sluicegate import state_store
from sluicegate.coordinator.core.state import AssignmentState, Incarnation, LogState, RegionPhase, RegionState
from sluicegate.coordinator.core.state_record import Condition, StateRecord
from sluicegate.coordinator.stream.state_records import encode_record
from sluicegate.events.envelope import partition_of
from sluicegate.events.models import Position, SnapshotRef
from sluicegate.events.problems import Code, Problem
from sluicegate.state_store import StreamView
from tests.cli.deployment import PARTITIONS, Deployment, as_json
from tests.cli.test_servers import PROGRAM
from tests.integration.waiting import BACKSTOP

pytestmark = pytest.mark.seam

AT_NOON = 1_356_998_400_000
LOST = Problem(code=Code.FILES_LOST, region="LGA", incarnation="i3", checkpoint=4)


def _region(incarnation: str, **more: Any) -> RegionState:
    life = Incarnation(id=incarnation, from_offset=0, base=None)
    return RegionState(**{"phase": RegionPhase.LIVE, "incarnation": life, **more})


def _record(decided: int = 41, **more: Any) -> StateRecord:
    regions = {
        "EWR": _region("i1", position=Position(incarnation="i1", checkpoint=17, digest="d17"), watermark=5),
        "JFK": _region("i2", idle=True),
        "LGA": _region("i3", fault=LOST),
        "OLD": _region("i4", phase=RegionPhase.LEFT),
    }
    state = LogState(
        partition=partition_of("flights", PARTITIONS),
        table="uuid",
        snapshot=SnapshotRef(id=57, identity="x"),
        assignment=AssignmentState(number=2, regions=["EWR", "JFK", "LGA", "NEW"], after=30),
        regions=regions,
        decided=decided,
        watermark=AT_NOON,
    )
    values = {"conditions": [Condition(kind="stall", problem=LOST)], **more}
    return StateRecord(stream="flights", applied=90, low_water=80, state=state, **values)


def _bytes(record: StateRecord) -> bytes:
    return encode_record(record)


def _stream(deployment: Deployment, name: str = "flights") -> dict[str, Any]:
    result = deployment.run("status", "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = next(each for each in as_json(result)["streams"] if each["stream"] == name)
    return found


@pytest.mark.kafka
def test_newest_record_wins_and_other_keys_are_ignored(deployment: Deployment) -> None:
    deployment.create_topics()
    deployment.write_state(
        (b"flights", _bytes(_record(40))),
        (b"other", None),
        (b"flights", _bytes(_record(41))),
        (b"flights/mark-done", b"{}"),
        (b"flights/80", _bytes(_record(12))),
    )
    shown = _stream(deployment)
    assert (shown["committed"], shown["snapshot"], shown["watermark"]) == (
        41,
        {"id": 57, "identity": "x"},
        AT_NOON,
    )
    assert (shown["assignment"]["number"], shown["assignment"]["after"], shown["low_water"]) == (2, 30, 80)
    assert {name: region["phase"] for name, region in shown["regions"].items()} == {
        "EWR": "live",
        "JFK": "live",
        "LGA": "live",
        "NEW": "waiting",
        "OLD": "left",
    }
    assert shown["cut"]["EWR"] == {"incarnation": "i1", "checkpoint": 17, "digest": "d17"}
    assert shown["regions"]["LGA"]["stalled"]["code"] == "files-lost"
    assert [each["stream"] for each in as_json(deployment.run("status", "--json"))["streams"]] == ["flights"]


@pytest.mark.kafka
def test_no_coordinator_is_running(deployment: Deployment) -> None:
    deployment.create_topics()
    group = deployment.settings.kafka.group_id
    said = f"no coordinator is running (group {group} has no members). Start one: sluicegate run"
    assert deployment.run("status").stdout.splitlines()[0] == said
    # A group that is known by its offsets, and has lost its members.
    deployment.set_group_offset(0, 0)
    assert deployment.run("status").stdout.splitlines()[0] == said
    assert as_json(deployment.run("status", "--json"))["coordinators"] == 0


@pytest.mark.kafka
def test_what_a_restart_reads_counts_from_the_groups_offset(deployment: Deployment) -> None:
    deployment.create_topics()
    unread = _record().model_copy(update={"applied": -1, "low_water": 0})
    deployment.write_state((b"flights", _bytes(unread)))
    for _ in range(3):
        assert deployment.run("stream", "resume", "--stream", "flights").exit_code == 0
    assert (_stream(deployment)["end_offset"], _stream(deployment)["read_by_restart"]) == (3, 3)
    deployment.set_group_offset(partition_of("flights", PARTITIONS), 2)
    shown = _stream(deployment)
    assert (shown["group_offset"], shown["read_by_restart"]) == (2, 1)
    said = deployment.run("status").stdout
    assert f"partition {shown['partition']} (a restart reads 1 record)" in said
    assert "lag" not in said, "the metric of that name counts what is not read yet"


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b'{"stream": "flights", "version": 1}', "its state record cannot be read at applied"),
        (b"no JSON", "its state record cannot be read"),
        (_bytes(_record(version=9)), "a newer release wrote its state record (version 9). Upgrade"),
    ],
    ids=["malformed", "no-json", "newer"],
)
def test_a_record_that_cannot_be_read_is_shown_as_that(
    deployment: Deployment, value: bytes, says: str
) -> None:
    deployment.create_topics()
    deployment.write_state((b"flights", value))
    shown = _stream(deployment)
    assert says in shown["problem"]
    assert says in deployment.run("status").stdout


@pytest.mark.kafka
def test_missing_topics_are_a_clear_error(deployment: Deployment) -> None:
    result = deployment.run("status")
    assert result.exit_code == 2
    assert "sluicegate topics create" in result.stderr


NOON = 1_356_998_400_000
NOON_TEXT = "2013-01-01T00:00:00Z"
LATER = "2013-01-01T00:00:00.001Z"


def _write(deployment: Deployment, watermark: int | None) -> None:
    """Write a state record with the watermark of a commit."""
    state = LogState(partition=partition_of("flights", PARTITIONS), decided=1, watermark=watermark)
    record = StateRecord(stream="flights", applied=9, low_water=9, state=state)
    deployment.write_state((b"flights", encode_record(record)))


@pytest.mark.kafka
def test_a_watermark_that_was_reached_is_told(deployment: Deployment) -> None:
    deployment.create_topics()
    _write(deployment, NOON)
    for time in (NOON_TEXT, "2013-01-01", "2013-01-01T01:00:00+01:00"):
        result = deployment.run("wait", "--stream", "flights", "--watermark", time)
        said = "the watermark of stream flights is 2013-01-01T00:00:00Z\n"
        assert (result.exit_code, result.stdout) == (0, said), result.output
    result = deployment.run("wait", "--stream", "flights", "--watermark", NOON_TEXT, "--json")
    assert as_json(result) == {"stream": "flights", "watermark": NOON, "reached": True}


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("watermark", "shown"),
    [(NOON, NOON_TEXT), pytest.param(None, "not known yet", marks=pytest.mark.matrix)],
)
def test_after_the_timeout_the_reason_is_told(
    deployment: Deployment, watermark: int | None, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.cli.wait._LOOK", 0.01)
    deployment.create_topics()
    _write(deployment, watermark)
    command = ("wait", "--stream", "flights", "--watermark", LATER, "--timeout", "0.01")
    result = deployment.run(*command)
    assert result.exit_code == 1
    assert f"the watermark of stream flights is {shown}, and has not reached" in result.stderr
    assert "Start one: sluicegate run" in result.stderr
    found = as_json(deployment.run(*command, "--json"))
    assert (found["watermark"], found["reached"]) == (watermark, False)
    assert "sluicegate run" in found["waits_for"]


@pytest.mark.kafka
def test_it_waits_and_says_why(deployment: Deployment) -> None:
    deployment.create_topics()
    soon = f"from sluicegate.cli import orders; orders._TELL = 0.1; {PROGRAM}"
    command = [sys.executable, "-c", soon, "wait", "--config", str(deployment.config)]
    command += ["--stream", "flights", "--watermark", NOON_TEXT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "no coordinator runs" in process.stderr.readline()
            _write(deployment, NOON)
            said, _ = process.communicate(timeout=BACKSTOP)
        finally:
            process.kill()
    assert (process.returncode, said) == (0, "the watermark of stream flights is 2013-01-01T00:00:00Z\n")


@pytest.mark.redis
def test_redis_alone_is_enough(nobody: Deployment, redis_url: str, unique: str) -> None:
    async def fill() -> None:
        async with state_store.open(redis_url, prefix=unique) as store:
            view = StreamView(stream="flights", revision=1, updated_at=1, commit_user="u", watermark=NOON)
            assert await store.write(view)

    asyncio.run(fill())
    redis = {"SLUICEGATE_REDIS__URL": redis_url, "SLUICEGATE_REDIS__KEY_PREFIX": unique}
    result = nobody.run("wait", "--stream", "flights", "--watermark", NOON_TEXT, **redis)
    assert result.exit_code == 0, result.output
    result = nobody.run("wait", "--stream", "flights", "--watermark", LATER, "--timeout", "0.01", **redis)
    assert (result.exit_code, "does not answer" in result.stderr) == (1, True), result.output
