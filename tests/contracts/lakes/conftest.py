"""Every table format that has a committer: in memory with and without gaps, Paimon with fixed buckets too."""

import random
from pathlib import Path

import pytest

from tests.contracts.lakes.harness import Lake
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.memory_lake import MemoryLake
from tests.contracts.lakes.paimon_lake import PaimonLake


@pytest.fixture(params=["memory", "memory-with-gaps", "paimon", "paimon-fixed-buckets", "iceberg", "iceberg-v3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    if request.param == "memory":
        return MemoryLake()
    if request.param == "memory-with-gaps":
        dice = random.Random(request.node.nodeid)
        return MemoryLake(lambda: dice.randint(1, 9))
    if request.param == "iceberg":
        return IcebergLake(tmp_path)
    if request.param == "iceberg-v3":
        return IcebergLake(tmp_path, 3, forgets_parents=True)
    fixed = {"bucket": "3", "bucket-key": "id"} if request.param != "paimon" else {}
    return PaimonLake(tmp_path, options=fixed)
