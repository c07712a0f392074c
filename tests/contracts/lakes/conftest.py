"""Every table format that has a committer, on files and on S3, and the kinds of tables in memory."""

import random
from pathlib import Path
from typing import Final, cast

import pytest

from sluicegate.lakes.capabilities import EvolvesSchema
from tests.contracts.lakes.delta_objects import DELTA, delta_of
from tests.contracts.lakes.harness import EvolvingLake, Lake
from tests.contracts.lakes.iceberg_rest_lake import ALL_ICEBERG, iceberg_of
from tests.contracts.lakes.memory_lake import MemoryLake
from tests.contracts.lakes.paimon_objects import PAIMON, paimon_of
from tests.doubles.memory_lake import MarkerKind

MARKERS: Final[dict[str, MarkerKind]] = {"memory-with-property": "property", "memory-with-state": "state"}
"""Tables in memory with gaps between positions and with a marker, by name."""
MARKED: Final = (*MARKERS, *DELTA, *ALL_ICEBERG)
"""Names of the tables with a marker."""
UNMARKED: Final = ("memory", "memory-with-gaps", *PAIMON)


TABLES: Final = (*UNMARKED, *MARKED)
"""Names of all tables."""
ALL_TABLES: Final = (*PAIMON, *DELTA, *ALL_ICEBERG)
"""Names of the tables that are no fakes."""

EACH_FORMAT: Final = ("memory", "memory-with-gaps", *MARKERS, "paimon", "delta", "iceberg")
"""Fakes, and one real table for each format: the tables of `make test`. The others are the matrix."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the other tables: versions, catalogs and storages of the same formats."""
    for item in items:
        call = getattr(item, "callspec", None)
        names = (
            {each for each in call.params.values() if isinstance(each, str) and each in TABLES}
            if call is not None
            else set()
        )
        if names and names.isdisjoint(EACH_FORMAT):
            item.add_marker(pytest.mark.matrix)


def lake_of(name: str, request: pytest.FixtureRequest, folder: Path) -> Lake:
    """Return a fresh table."""
    if name == "memory":
        return MemoryLake()
    if name.startswith("memory"):
        dice = random.Random(request.node.nodeid)
        return MemoryLake(lambda: dice.randint(1, 9), MARKERS.get(name, "none"))
    if name.startswith("iceberg"):
        return iceberg_of(name, request, folder)
    if name.startswith("delta"):
        return delta_of(name, request, folder)
    return paimon_of(name, request, folder)


@pytest.fixture(params=[*UNMARKED, *MARKED])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return lake_of(request.param, request, tmp_path)


@pytest.fixture
def evolving(lake: Lake) -> EvolvingLake:
    """The same table, for tests of its schema: every format has the capability."""
    assert isinstance(lake.adapter, EvolvesSchema)
    return cast(EvolvingLake, lake)


@pytest.fixture(params=MARKED)
def marked(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A table with a marker."""
    return lake_of(request.param, request, tmp_path)
