"""The collector's work is done while few records come."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from sluicegate.coordinator.runtime.memory import FEW, YOUNG, calm_collector, collect_if_calm


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
    collect_if_calm(records)
    assert (lost() is None) is freed
    assert len(kept) == objects
    assert gc.get_count()[0] < YOUNG or not freed
