"""The process of the coordinator: its collector, memory, event loop, exporter of spans and tasks."""

import asyncio
import gc
import json
import platform
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from structlog.testing import capture_logs

from sluicegate.coordinator.service.connections import exported_spans
from sluicegate.coordinator.service.process import FEW, SETTLED, YOUNG, Collector, calm_collector
from sluicegate.coordinator.service.service import watch_loop
from sluicegate.coordinator.tasks import ended_with
from sluicegate.installation import install_command


class _Cycle:
    """An object that only the collector frees."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def calm() -> Iterator[None]:
    """The thresholds of the service's process, and no new objects."""
    before = gc.get_threshold()
    calm_collector()
    gc.collect()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.slow
@pytest.mark.usefixtures("calm")
@pytest.mark.parametrize(
    ("records", "objects", "freed"), [(FEW, YOUNG, True), (FEW + 1, YOUNG, False), (0, YOUNG // 2, False)]
)
def test_many_new_objects_are_looked_at_when_few_records_come(
    records: int, objects: int, *, freed: bool
) -> None:
    lost = weakref.ref(_Cycle())
    kept: list[list[int]] = [[] for _ in range(objects)]
    Collector().collect_if_calm(records)
    assert (lost() is None) is freed
    assert len(kept) == objects
    assert gc.get_count()[0] < YOUNG or not freed


@pytest.mark.slow
@pytest.mark.usefixtures("calm")
def test_what_lasts_is_put_aside_until_streams_come_or_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full collection looks at everything that is not put aside, and stops the event loop for that long."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    collector = Collector()
    collector.streams_changed()
    collector.collect_if_calm(0)
    assert gc.get_freeze_count() == 0
    now = SETTLED
    collector.collect_if_calm(1)
    assert gc.get_freeze_count() == 0, "a record waits"
    lost = weakref.ref(_Cycle())
    collector.collect_if_calm(0)
    assert lost() is None, "garbage is not put aside"
    assert gc.get_freeze_count() > YOUNG
    left = _Cycle()
    leaving = weakref.ref(left)
    collector.streams_changed()
    del left
    gc.collect()
    assert leaving() is None
    # From Python 3.12 on, a collection puts the few objects aside that live as long as the interpreter.
    assert gc.get_freeze_count() < YOUNG


PROGRAM: Final = """\
import json, resource
from sluicegate.coordinator.service.process import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        buffers = [bytearray(8 << 20) for _ in range(3)]
        del buffers
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
keep_freed_memory()
faults()
print(json.dumps([first, faults()]))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the setting")
def test_large_buffers_that_are_freed_are_used_again(tmp_path: Path) -> None:
    """Their pages are not asked of the system again and again."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    before, after = json.loads(done.stdout)
    assert after < before / 4


class Loop(asyncio.SelectorEventLoop):
    """A loop with a clock that the test sets."""

    now = 0.0

    def time(self) -> float:
        return self.now


def delays_at(*times: float) -> list[Sequence[float]]:
    """Let a loop get to these times one after the other; return the delays that were reported."""
    loop, delays = Loop(), list[Sequence[float]]()

    async def play() -> None:
        lag = asyncio.create_task(watch_loop(delays.append, interval=0.1))
        await asyncio.sleep(0)
        for now in (*times, None):
            if now is None:
                lag.cancel()
            loop.now = now or times[-1] + 9.0
            for _ in range(3):
                await asyncio.sleep(0)

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()
    return delays


def test_a_long_turn_delays_every_timer_that_became_due_in_it() -> None:
    rounded = [[round(each, 4) for each in some] for some in delays_at(0.1, 0.2005, 0.35, 1.32, 1.3, 1.4)]
    late = [0.92, 0.82, 0.72, 0.62, 0.52, 0.42, 0.32, 0.22, 0.12, 0.02]
    assert rounded == [[0.0], [0.0005], [0.05], late, [0.0]]


def test_a_frozen_process_reports_a_limited_number_of_delays() -> None:
    first, second, *_ = delays_at(100_000.0, 100_000.1)
    assert len(first) == 600
    assert first[0] > 99_000
    assert len(second) == 1


@pytest.mark.slow
async def test_a_blocked_loop_is_seen() -> None:
    delays, seen = list[float](), asyncio.Event()

    def late(found: Sequence[float]) -> None:
        delays.extend(found)
        if max(found) >= 0.2:
            seen.set()

    async with ended_with(watch_loop(late)):
        await asyncio.sleep(0)  # time: the watch starts
        until = time.monotonic() + 0.35  # time: the loop is blocked for so long; no limit
        while time.monotonic() < until:  # time: as above
            pass
        await seen.wait()
    assert max(delays) >= 0.2


ASKED = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


async def test_nobody_asks_for_spans() -> None:
    async with exported_spans({}) as spans:
        assert spans is None


async def test_without_the_extra_the_log_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with capture_logs() as told:
        async with exported_spans(ASKED) as spans:
            assert spans is None
    assert [line["way_out"] for line in told] == [install_command("otel")]


async def test_spans_are_made_and_the_end_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = list[int]()
    monkeypatch.setattr(
        BatchSpanProcessor, "force_flush", lambda self, timeout_millis: flushed.append(timeout_millis)
    )
    async with exported_spans(ASKED) as spans:
        assert spans is not None
    assert flushed == [5_000]
