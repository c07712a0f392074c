"""A sample of the campaign of kills over several tables (tools/bench/table_kills.py): each place once."""

import runpy
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tests.faults.together import PLACES, Together, attack, killed

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.long]

_READ: Final = Path(__file__).parents[2] / "examples" / "read_tables.py"


@pytest.mark.parametrize("catalog", ["sqlite", pytest.param("postgres", marks=pytest.mark.matrix)])
async def test_killed_at_each_place_readers_see_whole_commits(
    kafka_bootstrap: str, redis_url: str, tmp_path: Path, catalog: str, request: pytest.FixtureRequest
) -> None:
    uri = request.getfixturevalue("postgres") if catalog == "postgres" else ""
    where = Together(kafka_bootstrap, tmp_path, redis=redis_url, uri=uri)
    read: Any = runpy.run_path(str(_READ))["at_one_commit"]
    found, tallies = await attack(where, read, Random(1))
    reads = found.readers.reads
    assert reads.errors == 0
    assert min(reads.vectors, reads.rounds, reads.selects) > 0
    assert all(each.exact and each.rows > 0 for each in tallies.values())
    assert {*killed(where, found.at_random)} == {*PLACES}
