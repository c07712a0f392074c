"""The listener behind the port: events and reports, crashes, outcomes that count nothing, its record."""

import os
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluicegate.coordinator.listeners.records import ListenerRecord, decode, encode
from sluicegate.coordinator.stream.summary import sizes_of, touched
from sluicegate.events.models import CommitSummary, CutReverted, FileInfo, FilesWritten, Head
from sluicegate.events.notifications import Committed, NotificationType, SavepointTaken, SmallFiles
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.listeners.actions import Warn
from sluicegate.listeners.port import Failed, Outcome, Step
from sluicegate.listeners.small_files import listener as module
from sluicegate.listeners.small_files.listener import TYPE, SmallFilesListener
from sluicegate.listeners.small_files.options import SmallFilesOptions
from sluicegate.listeners.small_files.policy import Counted, Counts
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.listeners.mark_done.driving import Crash, Host, NotDone, committed, stream_of
from tests.listeners.reporting import Server

HEAD = Head(snapshot=1, identity="i")
KIB = 1 << 10
STREAM = stream_of("paimon", "/lake/flights")


def options(**values: Any) -> SmallFilesOptions:
    return SmallFilesOptions.model_validate(
        {"smaller_than": "64KiB", "files": 3, "quiet_time": "0 s", **values}
    )


def host(made: SmallFilesOptions, **more: Any) -> Host:
    return Host(made, STREAM, TYPE, **more)


def added(decision: int, *files: tuple[Mapping[str, str | None], int], time: int = 0) -> Outcome:
    """Return the outcome of a commit of files, with their partitions and sizes, as the coordinator does."""
    infos = tuple(
        FileInfo(path=f"f{number}", size=size, rows=1, partition=dict(values))
        for number, (values, size) in enumerate(files)
    )
    event = FilesWritten(format="paimon", location="file:/t", schema_id=0, files=infos)
    parts = touched(sizes_of(event))
    found = committed(decision, watermark=None, time=time)
    summary = CommitSummary(table="file:/t", touched=parts.values, sizes=parts.sizes, visible=time)
    assert isinstance(found.body, Committed)
    return replace(found, body=found.body.model_copy(update={"files": len(files), "summary": summary}))


def given(made: Host) -> list[SmallFiles]:
    """Return the hints of the feed."""
    return [each.body for each in made.published if isinstance(each.body, SmallFiles)]


JANUARY, FEBRUARY = {"month": "2013-01"}, {"month": "2013-02"}


async def test_a_hint_names_the_partition_and_its_small_files() -> None:
    async with host(options()) as made:
        await made.see(
            added(1, (JANUARY, 10 * KIB), (FEBRUARY, 20), (JANUARY, 64 * KIB)),
            added(2, (JANUARY, 64 * KIB - 1), (FEBRUARY, 900 * KIB)),
            added(3, (JANUARY, 5)),
        )
    assert given(made) == [
        SmallFiles(
            table=STREAM.table.location,
            format="paimon",
            partition="month=2013-01",
            values=JANUARY,
            smaller_than=64 * KIB,
            files=3,
            bytes=74 * KIB - 1 + 5,
            since=1,
            decision=3,
            snapshot=30,
            reason="files",
        )
    ]
    assert (made.published[0].type, made.published[0].stream) == (NotificationType.SMALL_FILES, "flights")
    assert len(made.published[0].id) == 32


async def test_a_table_without_partitions_is_one_partition() -> None:
    async with host(options()) as made:
        await made.see(added(1, *[({}, 10)] * 3))
    assert [(each.partition, each.values, each.files) for each in given(made)] == [("", {}, 3)]


async def test_a_null_is_another_partition_than_an_empty_text() -> None:
    async with host(options(files=2)) as made:
        await made.see(added(1, *[({"dt": None}, 1)] * 2, *[({"dt": ""}, 1)] * 2))
    assert sorted(each.partition for each in given(made)) == ["dt", "dt="]


async def test_the_columns_are_in_the_order_of_the_table_also_when_it_was_away_before(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("year", pa.string()), ("month", pa.string())])
    lake = PaimonLake(tmp_path, schema, ["year", "month"])
    folder, away = Path(lake.location), tmp_path / "away"
    async with Host(options(), stream_of("paimon", lake.location), TYPE) as made:
        await made.see(added(1, *[({"month": "01", "year": "2013"}, 10)] * 3))
        os.rename(folder, away)
        await made.see(added(2, *[({"month": "02", "year": "2013"}, 10)] * 3))
        made.restart()
        await made.see(added(3, *[({"month": "03", "year": "2013"}, 10)] * 3))
    assert [each.partition for each in given(made)] == [
        "year=2013/month=01",
        "year=2013/month=02",
        "month=03/year=2013",
    ], "a table that is no more there has no order"


async def test_a_table_that_cannot_be_read_delays_the_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: object) -> None:
        raise LakeUnavailable("the store is away")

    monkeypatch.setattr(module, "read_layout", away)
    async with host(options()) as made:
        with pytest.raises(NotDone) as caught:
            await made.see(added(1, *[({"month": "01", "year": "2013"}, 10)] * 3))
    assert caught.value.result == Failed(
        "the partition fields of the table cannot be read: the store is away"
    )


async def test_a_quiet_partition_has_its_hint_by_the_clock() -> None:
    async with host(options(quiet_time="1 min")) as made:
        await made.see(added(1, (JANUARY, 10), (JANUARY, 10), (FEBRUARY, 10), time=1_000))
        assert made.wake == 61_000
        await made.clock(60_999)
        assert given(made) == []
        await made.clock(61_000)
        assert [(each.partition, each.reason) for each in given(made)] == [("month=2013-01", "quiet")]
        assert made.wake is None


async def test_a_report_has_a_key_and_the_fields_of_the_event(server: Server) -> None:
    made = options(
        actions=["hint-event", "http-report"],
        http_url=server.url,
        http_params="p",
        http_headers={"X-Key": "k"},
    )
    async with host(made) as found:
        await found.see(added(1, *[(JANUARY, 10)] * 3))
    ((body, headers),) = server.got
    (event,) = given(found)
    assert body == {
        **event.model_dump(),
        "table": STREAM.table.name,
        "path": STREAM.table.location,
        "params": "p",
    }
    assert (headers["X-Key"], len(headers["Idempotency-Key"])) == ("k", 32)
    assert headers["Idempotency-Key"] != found.published[0].id


async def test_reverted_decisions_savepoints_and_repetitions_count_nothing() -> None:
    async with host(options()) as made:
        await made.see(added(1, *[(JANUARY, 10)] * 2))
        before = made.state
        body = CutReverted(decision=2, digest="d", table="i", snapshot=HEAD)
        await made.see(Outcome("r2", NotificationType.REVERTED, "flights", 0, body))
        named = SavepointTaken(name="s", drained=True, decision=2, cut={}, snapshot=HEAD, watermark=None)
        await made.see(Outcome("s2", NotificationType.SAVEPOINT_TAKEN, "flights", 0, named))
        await made.see(added(1, *[(JANUARY, 10)] * 2))
        assert made.state == before
        assert given(made) == []


async def test_an_outcome_without_sizes_is_in_the_log_and_a_commit_without_files_is_not() -> None:
    async with host(options()) as made:
        await made.see(committed(1, JANUARY, watermark=None), committed(2, watermark=None))
    assert [(each.text, each.fields) for each in made.ran if isinstance(each, Warn)] == [
        ("the sizes of the files of a commit are unknown, so hints lack them", (("decisions", (1,)),))
    ]


def story(chance: random.Random) -> list[Outcome]:
    months: list[dict[str, str | None]] = [{"month": f"2013-{month:02}"} for month in range(1, 7)]
    return [
        added(
            number,
            *[(chance.choice(months), chance.randint(1, 200 * KIB)) for _ in range(chance.randint(0, 4))],
            time=number * 1_000,
        )
        for number in range(1, 60)
    ]


@pytest.mark.parametrize("seed", range(6))
async def test_crashes_at_every_place_repeat_hints_under_their_ids_and_lose_none(seed: int) -> None:
    chance = random.Random(seed)
    outcomes, made = story(chance), options(quiet_time="30 s", max_partitions=4)
    async with host(made) as calm:
        await calm.see(*outcomes)
    async with host(made, crash=lambda: chance.random() < 0.2) as shaken:
        crashes = 0
        for outcome in outcomes:
            while True:
                try:
                    await shaken.see(outcome)
                except Crash:
                    crashes += 1
                    shaken.restart()
                else:
                    break
    assert crashes > 10
    assert {each.id: each.body for each in shaken.published} == {
        each.id: each.body for each in calm.published
    }
    assert len(shaken.published) > len(calm.published) == len({each.id for each in calm.published}) > 5


@pytest.mark.slow
def test_the_largest_state_fits_into_a_record() -> None:
    """Random digits compress badly. A message of Kafka has 1,048,576 bytes by default."""
    chance = random.Random(1)
    each = Counted(files=19, bytes=2**29 - 1, since=10**6, decision=10**6 + 9, last=1_764_000_000_123)
    partitions = {f'{{"day": "{chance.getrandbits(140):036x}"}}': each for _ in range(20_000)}
    state = Counts(partitions=partitions).model_dump(mode="json")
    record = ListenerRecord(
        stream="s", listener="l", type="small-files", owner="o", partition=0, offset=0, state=state
    )
    value = encode(record)
    assert decode(value) == record
    assert len(value) < 1_000_000


def test_steps_are_the_same_for_the_same_input() -> None:
    services: Any = None
    first, second = (SmallFilesListener(options(), STREAM, services) for _ in range(2))
    outcome = added(1, *[(JANUARY, 10)] * 3)
    step = first.apply(outcome, first.initial())
    assert isinstance(step, Step)
    assert step == second.apply(outcome, second.load(first.initial().model_dump(mode="json")))
