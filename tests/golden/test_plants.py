"""Defects that a schedule cannot see, each with the golden case that comes out differently."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

import pytest

from sluicegate.coordinator.core import cuts, registration
from sluicegate.coordinator.core.candidate import Candidate
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.log_state import RegionState
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.outbox import Outbox
from sluicegate.events.problems import Code
from tests.golden.script import Script
from tests.golden.test_cases import CASES


@dataclass(frozen=True)
class Plant:
    """A wrong variant of one function, and the case that sees it."""

    name: str
    owner: Any
    attribute: str
    variant: Any
    """Makes the wrong function of the right one."""
    case: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        right = vars(self.owner)[self.attribute]
        with patch.object(self.owner, self.attribute, self.variant(right)):
            yield


def _reads_again(right: Any) -> Any:
    def wrong(self: StreamMachine, record: Any) -> Any:
        fresh = record.offset > self.replica.applied
        applied = right(self, record)
        if not fresh:
            self.activity.read(record, None, 0)
        return applied

    return wrong


def _of_every_region(right: Any) -> Any:
    def wrong(log: Log, excluded: Any = ()) -> Any:
        return {name: sealed[-1].position for name in log.state.regions if (sealed := log.sealed(name))}

    return wrong


def _ends_at_once(right: Any) -> Any:
    return lambda self, problems, applied, is_over: right(self, problems, applied, lambda stall: True)


def _forgets_exclusions(right: Any) -> Any:
    return lambda self, log, settings, excluded: right(self, log, settings, {})


def _newest_of_the_regions(right: Any) -> Any:
    return property(lambda self: self.incarnation.id if self.incarnation is not None else None)


def _ended_of_memory(right: Any) -> Any:
    """Only the region's own newest incarnation is known to have ended."""

    def wrong(log: Log, envelope: Any, body: Any) -> Any:
        found, region = right(log, envelope, body), log.state.regions.get(envelope.region)
        ended = found is not None and found.code is Code.INCARNATION_ENDED
        if ended and region is not None and envelope.incarnation != region.newest:
            body = body.model_copy(update={"replaces": region.newest})
            return right(log, envelope, body)
        return found

    return wrong


PLANTS: Final = (
    Plant(
        "a new incarnation need not name one that has ended",
        registration,
        "_incarnation_problem",
        _ended_of_memory,
        "registration/ended_incarnations_never_live_again",
    ),
    Plant(
        "an incarnation of a withdrawn assignment is forgotten",
        RegionState,
        "newest",
        _newest_of_the_regions,
        "registration/an_incarnation_of_a_withdrawn_assignment",
    ),
    Plant(
        "heartbeats without effect count when they are read again",
        StreamMachine,
        "step",
        _reads_again,
        "attacks/a_heartbeat_of_an_older_process_is_read_again",
    ),
    Plant(
        "files of regions that cannot move make a cut due",
        cuts,
        "next_moves",
        _of_every_region,
        "attacks/files_of_an_excluded_region_make_no_cut_due",
    ),
    Plant(
        "a successor announces the end of each stall",
        Outbox,
        "stalls",
        _ends_at_once,
        "attacks/a_refused_publication_lasts_over_a_restart",
    ),
    Plant(
        "a successor forgets which regions are excluded",
        Candidate,
        "__init__",
        _forgets_exclusions,
        "attacks/stalls_of_regions_last_over_a_restart",
    ),
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_planted_defect_is_seen(plant: Plant) -> None:
    expected = (CASES / f"{plant.case}.txt").read_text(encoding="utf-8")
    assert Script().run(expected) == expected
    with plant.planted():
        assert Script().run(expected) != expected
