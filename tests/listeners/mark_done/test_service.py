"""Twelve months, three regions, a real broker, killed coordinators: each month has its mark in time."""

import random
from pathlib import Path

import pytest

from tests.faults import tables
from tests.integration.conftest import place_of
from tests.listeners.mark_done.year import live_through

pytestmark = pytest.mark.kafka

KILLS = 4
"""Of coordinators; `tools.bench.mark_done` has more."""


@pytest.mark.parametrize("lake", list(tables.FORMATS))
async def test_each_month_is_marked_when_all_regions_have_passed_it(
    lake: str, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    done = await live_through(place, KILLS, random.Random(lake))
    assert done["partial"] >= 12
