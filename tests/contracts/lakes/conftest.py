"""Every table format that has a committer."""

from pathlib import Path

import pytest

from tests.contracts.lakes.harness import Lake
from tests.contracts.lakes.memory_lake import MemoryLake
from tests.contracts.lakes.paimon_lake import PaimonLake


@pytest.fixture(params=["memory", "paimon"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    if request.param == "memory":
        return MemoryLake()
    return PaimonLake(tmp_path)
