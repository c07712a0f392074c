"""The contract of drafts: a name shows what a dead coordinator left, and what is published stays."""

import os
from pathlib import Path
from typing import Final, cast

import pytest

from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.drafts import COORDINATOR, draft_owner, stated_draft
from tests.contracts.lakes.conftest import lake_of
from tests.contracts.lakes.harness import USER, EvolvingLake, Killed, Lake, with_commits
from tests.contracts.lakes.iceberg_rest_lake import ALL_ICEBERG
from tests.contracts.lakes.paimon_objects import PAIMON

WITH_DRAFTS: Final = (*PAIMON, "delta", *ALL_ICEBERG)
"""In an object store, a version of Delta is put in one request."""


@pytest.fixture(params=WITH_DRAFTS)
def evolving(request: pytest.FixtureRequest, tmp_path: Path) -> EvolvingLake:
    return cast(EvolvingLake, lake_of(request.param, request, tmp_path))


def drafts(lake: Lake) -> dict[str, FileStatus]:
    """Return the status of all drafts, by path."""
    maintenance = lake.maintenance()
    found = [path for path in maintenance.stated_files() if stated_draft(path.rpartition("/")[2]) is not None]
    return maintenance.file_status(found)


def kill() -> None:
    raise Killed


def strand(lake: EvolvingLake, decision: int) -> set[str]:
    """Let a coordinator die right before the step that makes its commit visible; return its drafts."""
    before = {*drafts(lake)}
    with pytest.MonkeyPatch.context() as patched:
        # A process that is killed removes nothing.
        patched.setattr(os, "unlink", lambda path: None)
        lake.strand(decision, lake.event([decision]), kill)
    return {*drafts(lake)} - before


def test_a_draft_that_metadata_names_stays(lake: Lake) -> None:
    with_commits(lake, 3)
    found = drafts(lake)
    assert bool(found) is (lake.adapter.name in ("paimon", "iceberg"))
    assert {*found.values()} <= {FileStatus.REFERENCED}
    maintenance = lake.maintenance()
    assert {maintenance.delete_unreferenced(path) for path in found} <= {FileStatus.REFERENCED}
    assert lake.ids() == [1, 2, 3]


def test_drafts_of_a_dead_coordinator_are_found_and_deleted(evolving: EvolvingLake) -> None:
    """Another one publishes the decision."""
    stream = with_commits(evolving, 1)
    dead = strand(evolving, 2)
    assert dead
    stated = [stated_draft(path.rpartition("/")[2]) for path in dead]
    owner = draft_owner(evolving.committer().identity(), evolving.maintenance().branch, USER)
    for each in stated:
        assert each is not None
        assert (each.decision, owner[: len(each.owner)]) == (2, each.owner)
        assert COORDINATOR.startswith(each.coordinator)
    assert {drafts(evolving)[path] for path in dead} <= {FileStatus.UNREFERENCED}
    stream.commit(2, [2])
    found = drafts(evolving)
    assert {path for path, status in found.items() if status is FileStatus.UNREFERENCED} == dead
    maintenance = evolving.maintenance()
    assert {maintenance.delete_unreferenced(path) for path in dead} <= {FileStatus.DELETED}
    assert dead.isdisjoint(drafts(evolving))
    stream.commit(3, [3])
    assert evolving.ids() == [1, 2, 3]
