"""Every record of a partition reaches its stream exactly once, whoever reads it."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.coordinator.stream.rate_limit import BURST
from sluicegate.kafka.reading import NotContiguous
from tests.coordinator.stream.readers import OTHER, SOURCE, STREAM, Log, exactly_once, mixed, record_at


@pytest.fixture
async def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """A log with a partition that has read twenty records."""
    log = Log(monkeypatch)
    log.append(*mixed("fhhf.hhhfh" * 2))
    await log.partition.start()
    log.advance(1_000)
    return log


async def leave(log: Log) -> None:
    """Let the stream leave, as one does that is over its limit."""
    assert await log.partition.changes.step_out(log.partition.streams[STREAM])


async def catch_up(log: Log) -> None:
    """Read the log of the stream with a consumer of its own, with pauses, until it joins."""
    (runner,) = await log.partition.prepare([STREAM])
    assert await log.partition.changes.catch_up(runner, log.pause)


async def test_all_streams_read_from_the_smallest_offset(log: Log) -> None:
    exactly_once(log, STREAM, OTHER)
    assert log.partition.position == log.end


async def test_a_held_stream_is_delivered_what_its_consumer_read_too_early(log: Log) -> None:
    """The own consumer reads past the partition. During its pause, the partition passes the same records."""
    await leave(log)
    log.append(*mixed("hfhhfhhhfhhfhfhhhhhh"))
    log.turn = lambda: log.advance(4)
    await catch_up(log)
    exactly_once(log, STREAM, OTHER)
    log.append(*mixed("ffhf"))
    log.advance(1_000)
    exactly_once(log, STREAM, OTHER)


@pytest.mark.slow
@given(
    before=st.text("fh.", max_size=12),
    later=st.text("fh.", max_size=30),
    most=st.integers(1, 40),
    moves=st.lists(st.integers(0, 5), max_size=40),
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_interleaving_of_two_readers(before: str, later: str, most: int, moves: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        log = Log(patch)
        log.append(*mixed(before))
        await log.partition.start()
        log.advance(1_000)
        await leave(log)
        log.append(*mixed(later))
        log.most, steps = most, iter(moves)
        log.turn = lambda: log.advance(next(steps, 1))
        await catch_up(log)
        exactly_once(log, STREAM, OTHER)
        log.advance(1_000)
        exactly_once(log, STREAM, OTHER)


async def test_a_stream_that_a_reload_removes_and_adds_again(log: Log) -> None:
    log.links.settings = log.settings(OTHER)
    await log.partition.changes.apply()
    assert log.partition.streams.keys() == {OTHER}
    log.append(*mixed("fhfhff"))
    log.advance(3)
    log.links.settings = log.settings(STREAM, OTHER)
    log.most, log.turn = 2, lambda: log.advance(1)
    await log.partition.changes.apply()
    log.append(*mixed("hf"))
    log.advance(1_000)
    exactly_once(log, STREAM, OTHER)


async def test_a_flood_is_held_and_delivered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way through `Holding`: the stream goes over its limit, reads alone, and joins again."""
    log = Log(monkeypatch, limit=1)
    await log.partition.start()
    first = log.partition.streams[STREAM]
    log.append(*mixed("f" * (BURST + 1)))
    log.advance(1_000)
    log.append(*mixed("hfhh" * 10))
    log.most, log.turn = 7, lambda: log.advance(3)
    turn = asyncio.sleep

    async def sleep(seconds: float) -> None:
        log.turn()
        await turn(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    while log.partition.streams.get(STREAM) in (None, first):
        await turn(0)
    log.advance(1_000)
    exactly_once(log, STREAM, OTHER)


async def test_a_new_assignment_reads_again_from_the_start(log: Log) -> None:
    await log.partition.stop(0.0)  # time: no effect runs
    log.append(*mixed("fhf"))
    log.partition = log.assigned()
    await log.partition.start()
    log.advance(4)
    log.advance(1_000)
    exactly_once(log, STREAM, OTHER)


async def test_a_joining_stream_holds_the_low_water_mark(log: Log) -> None:
    """The group's offset waits for a stream that reads with its own consumer (I8)."""
    log.append(*mixed("hfhfhf"))
    log.advance(1_000)
    for runner in log.partition.streams.values():
        # Their newest records are at the end of the log.
        runner.recorded_low_water = log.end
    assert log.partition.first_needed() == log.end
    log.partition.streams[STREAM].recorded_low_water = 21
    await leave(log)
    assert log.partition.first_needed() == 21
    seen = list[int]()
    log.most, log.turn = 3, lambda: seen.append(log.partition.first_needed())
    await catch_up(log)
    assert set(seen) == {21}
    log.partition.streams[STREAM].recorded_low_water = log.end
    assert log.partition.first_needed() == log.end


async def test_a_stream_that_a_reload_adds_holds_the_low_water_mark(log: Log) -> None:
    log.links.settings = log.settings(OTHER)
    await log.partition.changes.apply()
    log.partition.streams[OTHER].recorded_low_water = log.end
    assert log.partition.first_needed() == log.end
    seen = list[int]()
    log.most, log.turn = 3, lambda: seen.append(log.partition.first_needed())
    log.links.settings = log.settings(STREAM, OTHER)
    await log.partition.changes.apply()
    assert set(seen) == {0}


# --- a gap or a repetition is an error, and nothing is skipped ----------------------------------------


def gap(log: Log) -> None:
    log.shared.seek(SOURCE, log.shared.at + 1)


def repetition(log: Log) -> None:
    log.shared.seek(SOURCE, log.shared.at - 1)


@pytest.mark.parametrize("fault", [gap, repetition])
async def test_the_shared_consumer_leaves_something_out_or_repeats_it(
    log: Log, fault: Callable[[Log], None]
) -> None:
    log.append(*mixed("ff"))
    before, position = list(log.delivered), log.partition.position
    fault(log)
    with pytest.raises(NotContiguous):
        log.advance(10)
    assert (log.delivered, log.partition.position) == (before, position)


def test_records_outside_of_the_read(log: Log) -> None:
    position = log.partition.position
    for records, end in [
        ([record_at(position - 1, STREAM)], position + 1),
        ([record_at(position, STREAM)], position),
        ([], position - 1),
    ]:
        with pytest.raises(NotContiguous):
            log.partition.take(records, end)
    assert log.partition.position == position


async def test_a_record_that_two_readers_deliver(log: Log) -> None:
    runner = log.partition.streams[STREAM]
    with pytest.raises(NotContiguous):
        log.partition.feed(runner, log.records[log.delivered_to(runner)[-1]])


@pytest.mark.parametrize("moved", [1, -1])
async def test_an_own_consumer_that_is_moved_joins_nowhere(log: Log, moved: int) -> None:
    await leave(log)
    log.append(*mixed("ffff"))

    async def pause(events: int) -> bool:
        log.advance(1)
        log.own[-1].at += moved
        return True

    (runner,) = await log.partition.prepare([STREAM])
    with pytest.raises(NotContiguous):
        await log.partition.changes.catch_up(runner, pause)
    assert STREAM not in log.partition.streams
    # Nothing is lost: the next attempt reads from the state record.
    log.turn = lambda: log.advance(1)
    await catch_up(log)
    exactly_once(log, STREAM, OTHER)
