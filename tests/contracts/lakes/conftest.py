"""Every table format that has a committer: in memory with and without gaps, Paimon with fixed buckets too."""

import random
from pathlib import Path

import pytest

from tests.contracts.lakes.harness import Lake
from tests.contracts.lakes.memory_lake import MemoryLake
from tests.contracts.lakes.paimon_lake import PaimonLake


@pytest.fixture(params=["memory", "memory-with-gaps", "paimon", "paimon-fixed-buckets"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    if request.param == "memory":
        return MemoryLake()
    if request.param == "memory-with-gaps":
        dice = random.Random(request.node.nodeid)
        return MemoryLake(lambda: dice.randint(1, 9))
    fixed = {"bucket": "3", "bucket-key": "id"} if request.param != "paimon" else {}
    return PaimonLake(tmp_path, options=fixed)
