"""The collector's work is done while few records come."""

import gc
import time
import weakref
from collections.abc import Iterator

import pytest

from sluicegate.coordinator.service.process import FEW, SETTLED, YOUNG, Collector, calm_collector


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
    assert gc.get_freeze_count() == 0
