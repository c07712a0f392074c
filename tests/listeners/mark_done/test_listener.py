"""The listener on real tables: the policy behind the port, its actions, restarts and crashes."""

import json
import random
from pathlib import Path

import pytest

from sluicegate.coordinator.listeners.records import ListenerRecord, decode, encode
from sluicegate.events.notifications import PartitionDone
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.listeners.mark_done import listener as module
from sluicegate.listeners.mark_done.listener import Act, MarkDoneState, ReadLayout, Warn
from sluicegate.listeners.mark_done.policy import REMEMBERED, Marked, Open, Period, Progress
from sluicegate.listeners.port import Failed, Outcome
from tests.listeners.mark_done.conftest import Monthly, by_month
from tests.listeners.mark_done.driving import Crash, Host, NotDone, committed
from tests.listeners.mark_done.policies import DAY, at

pytestmark = pytest.mark.slow

JANUARY, FEBRUARY, MARCH = ({"origin": f"2013-{month:02}"} for month in (1, 2, 3))


def marked(host: Host) -> list[tuple[str, int]]:
    """Return the marks of the feed: partition, and the commit that they include."""
    return [
        (each.body.partition.removeprefix("origin="), each.body.decision)
        for each in host.published
        if isinstance(each.body, PartitionDone)
    ]


async def test_each_month_has_its_file_when_the_watermark_has_passed_it(monthly: Monthly) -> None:
    monthly.write("2013-01", "2013-02", "2013-03")
    async with Host(by_month("success-file", "mark-event"), monthly.stream) as host:
        await host.see(committed(1, JANUARY, FEBRUARY, watermark=at("2013-01-20"), time=100))
        assert monthly.success() == []
        await host.see(committed(2, FEBRUARY, watermark=at("2013-02-01"), time=200))
        assert monthly.success() == []
        await host.see(committed(3, MARCH, watermark=at("2013-02-01") + 1, time=300))
        assert monthly.success() == ["2013-01"]
        await host.see(committed(4, watermark=at("2013-03-05"), time=400))
        assert monthly.success() == ["2013-01", "2013-02"]
        assert marked(host) == [("2013-01", 1), ("2013-02", 2)]
        assert json.loads((monthly.folder("2013-02") / "_SUCCESS").read_text()) == {
            "creationTime": 400,
            "modificationTime": 400,
            "decision": 2,
            "snapshot": 40,
            "watermark": at("2013-03-05"),
        }


async def test_late_data_writes_the_file_again_and_keeps_the_time_of_the_first(monthly: Monthly) -> None:
    monthly.write("2013-01")
    async with Host(by_month("success-file", "mark-event"), monthly.stream) as host:
        await host.see(committed(1, JANUARY, watermark=at("2013-02-02"), time=100))
        await host.see(committed(2, JANUARY, watermark=at("2013-02-02"), time=200))
        found = json.loads((monthly.folder("2013-01") / "_SUCCESS").read_text())
        assert (found["creationTime"], found["modificationTime"], found["decision"]) == (100, 200, 2)
        bodies = [each.body for each in host.published]
        assert [(body.late, body.number) for body in bodies if isinstance(body, PartitionDone)] == [
            (False, 1),
            (True, 2),
        ]
        assert [path.name for path in monthly.folder("2013-01").glob(".*")] == []


async def test_a_late_process_does_not_replace_the_file_of_a_newer_mark(monthly: Monthly) -> None:
    monthly.write("2013-01")
    async with Host(by_month("success-file"), monthly.stream) as host:
        await host.see(committed(1, JANUARY, watermark=at("2013-02-02"), time=100))
        old = next(each for each in host.ran if isinstance(each, Act))
        await host.see(committed(2, JANUARY, watermark=at("2013-02-02"), time=200))
        await host.listener.run(old)
        assert json.loads((monthly.folder("2013-01") / "_SUCCESS").read_text())["decision"] == 2


async def test_a_link_in_place_of_the_folder_is_not_followed(monthly: Monthly, tmp_path: Path) -> None:
    monthly.write("2013-01")
    folder, outside = monthly.folder("2013-01"), tmp_path / "outside"
    folder.rename(outside)
    folder.symlink_to(outside)
    async with Host(by_month("success-file"), monthly.stream) as host:
        with pytest.raises(NotDone) as caught:
            await host.see(committed(1, JANUARY, watermark=at("2013-02-02"), time=100))
        assert isinstance(caught.value.result, Failed)
        assert "Remove the link" in caught.value.result.reason
    assert not (outside / "_SUCCESS").exists()


def story() -> list[Outcome]:
    """Return a year of commits: each month has files in two commits, some come late, one has no time."""
    found: list[Outcome] = []
    for month in range(1, 13):
        label = {"origin": f"2013-{month:02}"}
        for day in (5, 25):
            late = [{"origin": f"2013-{month - 2:02}"}] if month in (5, 9) and day == 25 else []
            bad: list[dict[str, str | None]] = [{"origin": None}] if month == 6 else []
            number = len(found) + 1
            watermark = at(f"2013-{month:02}-{day:02}")
            found.append(committed(number, label, *late, *bad, watermark=watermark, time=number * 1_000))
    end = committed(len(found) + 1, watermark=at("2014-01-02"), time=(len(found) + 1) * 1_000)
    return [*found, end]


EXPECTED = [
    *[(f"2013-{month:02}", 2 * month) for month in (1, 2, 3, 4)],
    ("2013-03", 10),
    *[(f"2013-{month:02}", 2 * month) for month in (5, 6, 7, 8)],
    ("2013-07", 18),
    *[(f"2013-{month:02}", 2 * month) for month in (9, 10, 11, 12)],
]


@pytest.mark.parametrize("seed", range(8))
async def test_crashes_at_every_place_lose_no_mark_and_change_none(monthly: Monthly, seed: int) -> None:
    """Each crash loses the work since the state was kept. Ids show which marks are repetitions."""
    monthly.write(*[f"2013-{month:02}" for month in range(1, 13)])
    chance = random.Random(seed)
    options = by_month("success-file", "mark-event")
    async with Host(options, monthly.stream, crash=lambda: chance.random() < 0.2) as host:
        crashes = 0
        for outcome in story():
            while True:
                try:
                    await host.see(outcome)
                except Crash:
                    crashes += 1
                    host.restart()
                else:
                    break
        assert crashes > 10
        first: dict[str, tuple[str, int]] = {}
        for each, mark in zip(host.published, marked(host), strict=True):
            assert first.setdefault(each.id, mark) == mark
        assert list(first.values()) == EXPECTED
        contents = {each.id: each for each in host.published}
        assert all(contents[each.id] == each for each in host.published)
    assert monthly.success() == [f"2013-{month:02}" for month in range(1, 13)]


async def test_a_field_that_is_not_known_has_the_table_read_again(monthly: Monthly) -> None:
    async with Host(by_month("mark-event"), monthly.stream) as host:
        await host.see(committed(1, JANUARY, watermark=at("2013-02-02")))
        host.restart()
        await host.see(committed(2, {"day": "2013-01-01"}, FEBRUARY, watermark=at("2013-03-02")))
        assert [each.key for each in host.ran if isinstance(each, ReadLayout)] == ["layout/1", "layout/2"]
        assert marked(host) == [("2013-01", 1), ("2013-02", 2)]


async def test_a_partition_without_a_time_is_reported(monthly: Monthly) -> None:
    async with Host(by_month("mark-event"), monthly.stream) as host:
        await host.see(committed(1, {"origin": None}, {"origin": "x"}, JANUARY, watermark=at("2013-02-02")))
        (warning,) = [each for each in host.ran if isinstance(each, Warn)]
        assert dict(warning.fields)["examples"] == {
            "origin": "the partition value origin is null",
            "origin=x": "'x-01' is not a date such as 2013-01-31, or a time such as 2013-01-31 05:00:00",
        }
        assert marked(host) == [("2013-01", 1)]


async def test_a_table_that_cannot_be_read_loses_nothing(
    monthly: Monthly, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: object) -> None:
        raise LakeUnavailable("the storage is away")

    async with Host(by_month("mark-event"), monthly.stream) as host:
        with monkeypatch.context() as patched:
            patched.setattr(module, "read_layout", away)
            with pytest.raises(NotDone) as caught:
                await host.see(committed(1, JANUARY, watermark=at("2013-02-02")))
        assert caught.value.result == Failed(
            "the partition fields of the table cannot be read: the storage is away"
        )
        await host.see(committed(1, JANUARY, watermark=at("2013-02-02")))
        assert marked(host) == [("2013-01", 1)]


def test_the_largest_state_fits_into_a_record() -> None:
    """Random digits compress badly. A message of Kafka has 1,048,576 bytes by default."""
    chance = random.Random(1)
    names = [f"{chance.getrandbits(140):036x}" for _ in range(15_000 + REMEMBERED)]
    moments = [1_764_000_000_000 + chance.randrange(10**9) for _ in names]
    opened = {
        f'{{"day": "{name}"}}': Open(
            values={"day": name},
            period=Period(moment, moment + DAY),
            decision=10**6,
            since=moment,
            last=moment,
        )
        for name, moment in zip(names[REMEMBERED:], moments, strict=False)
    }
    done = {
        f'{{"day": "{name}"}}': Marked(decision=10**6, time=10**12, count=9) for name in names[:REMEMBERED]
    }
    state = MarkDoneState(progress=Progress(open=opened, done=done)).model_dump(mode="json")
    record = ListenerRecord(
        stream="s", listener="l", type="mark-done", owner="o", partition=0, offset=0, state=state
    )
    value = encode(record)
    assert decode(value) == record
    assert len(value) < 1_000_000
