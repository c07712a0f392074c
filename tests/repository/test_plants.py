"""Defects outside the core that a fast test must see: each is planted, and its test must fail then."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from sluicegate.coordinator.core.effects import WriteRecord
from sluicegate.coordinator.listeners import worker
from sluicegate.coordinator.stream import outcomes, runner
from sluicegate.writer_hooks import driver
from sluicegate.writer_hooks.spark import begun, checkpoint, registry
from sluicegate.writer_hooks.upload import sending
from tests.coordinator.listeners import test_worker
from tests.coordinator.stream import test_low_water, test_owed_outcomes
from tests.hooks import test_changed_uploads, test_completing, test_pauses

SEAMS: Final[dict[str, tuple[Any, str]]] = {
    "the place of a listener": (worker.Worker, "_place"),
    "a whole file": (sending, "_require_whole"),
    "what follows an effect": (runner.StreamRunner, "_follow_up"),
    "the decision before an owner": (outcomes, "decision_before"),
    "a completion": (driver.RegionDriver, "_complete"),
    "a pause of a query": (checkpoint.Checkpoint, "pause"),
    "the beginning of a batch": (begun, "_state_beginning"),
    "the note of an idle heartbeat": (registry.Registry, "say_idle"),
}
"""Named places where a defect is planted. A rename of a function is made here, too."""


@dataclass(frozen=True)
class Plant:
    """A wrong variant of one function, and the tests that see it."""

    name: str
    seam: str
    variant: Callable[[Any], Any]
    """Makes the wrong function of the right one."""
    tests: tuple[Callable[..., Any], ...]

    @contextmanager
    def planted(self) -> Iterator[None]:
        owner, attribute = SEAMS[self.seam]
        with patch.object(owner, attribute, self.variant(vars(owner)[attribute])):
            yield


def _keeps_one_id(right: Any) -> Any:
    def wrong(self: Any, outcome: Any) -> dict[str, Any]:
        place: dict[str, Any] = right(self, outcome)
        return {**place, "seen": place["seen"][-1:]}

    return wrong


def _once(right: Any) -> Any:
    seen: list[object] = []

    def wrong(folder: str, file: Any) -> None:
        if file not in seen:
            seen.append(file)
            right(folder, file)

    return wrong


def _moves_before(right: Any) -> Any:
    async def wrong(self: Any, effect: Any) -> None:
        if isinstance(effect, WriteRecord):
            self.low_water = effect.record.low_water
        await right(self, effect)

    return wrong


def _completes_afterwards(right: Any) -> Any:
    def wrong(self: Any, *arguments: Any) -> None:
        noted: list[Any] = []
        with patch.object(self._state, "completing", noted.append):
            right(self, *arguments)
        for each in noted:
            self._state.completing(each)

    return wrong


PLANTS: Final = (
    Plant(
        "a listener remembers one id of a decision",
        "the place of a listener",
        _keeps_one_id,
        (test_worker.test_repeated_outcomes_of_one_decision_are_handled_once,),
    ),
    Plant(
        "a file is not compared after the user's function",
        "a whole file",
        _once,
        (test_changed_uploads.test_a_file_that_the_function_changes_is_not_uploaded,),
    ),
    Plant(
        "the low-water mark moves before its record is acknowledged",
        "what follows an effect",
        _moves_before,
        (
            test_low_water.test_the_low_water_mark_waits_for_the_acknowledgement,
            test_low_water.test_a_record_that_is_not_acknowledged_moves_nothing,
        ),
    ),
    Plant(
        "outcomes that are owed are ignored",
        "the decision before an owner",
        lambda right: lambda committed, due: max(0, committed),
        (test_owed_outcomes.test_an_owed_outcome_counts,),
    ),
    Plant(
        "a completion is noted after its publication",
        "a completion",
        _completes_afterwards,
        (test_completing.test_a_commit_during_the_publication_is_read,),
    ),
    Plant(
        "a query is idle while a batch runs",
        "a pause of a query",
        lambda right: lambda self: checkpoint.Pause(self.newest_completed()),
        (test_pauses.test_spark_reports_a_pause_while_the_next_batch_runs,),
    ),
    Plant(
        "a batch after a pause states nothing",
        "the beginning of a batch",
        lambda right: lambda *_: None,
        (test_pauses.test_a_batch_takes_back_what_a_heartbeat_may_have_said,),
    ),
    Plant(
        "an idle heartbeat is not noted",
        "the note of an idle heartbeat",
        lambda right: lambda self, query: None,
        (test_pauses.test_a_batch_takes_back_what_a_heartbeat_may_have_said,),
    ),
)


def run(test: Callable[..., Any], folder: Path) -> None:
    """Run a test with a folder of its own, if it wants one."""
    result = test(folder) if inspect.signature(test).parameters else test()
    if inspect.isawaitable(result):
        asyncio.run(_finished(result))


async def _finished(work: Any) -> None:
    await work


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_planted_defect_is_seen(plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A listener looks for losses at once.
    monkeypatch.setattr(worker, "IDLE", 0.01)
    for number, test in enumerate(plant.tests):
        for name in ("right", "wrong"):
            folder = tmp_path / f"{name}-{number}"
            folder.mkdir()
            if name == "right":
                run(test, folder)
            else:
                with plant.planted(), pytest.raises((AssertionError, pytest.fail.Exception)):
                    run(test, folder)
