"""Every table format that has a committer, and Paimon with fixed buckets too."""

from pathlib import Path

import pytest

from tests.contracts.lakes.harness import Lake
from tests.contracts.lakes.memory_lake import MemoryLake
from tests.contracts.lakes.paimon_lake import PaimonLake


@pytest.fixture(params=["memory", "paimon", "paimon-fixed-buckets"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    if request.param == "memory":
        return MemoryLake()
    fixed = {"bucket": "3", "bucket-key": "id"} if request.param != "paimon" else {}
    return PaimonLake(tmp_path, options=fixed)
