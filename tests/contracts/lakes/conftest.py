"""Every table format that has a committer: in memory with and without gaps, Paimon on files and on S3."""

import random
from pathlib import Path

import pytest

from tests.contracts.lakes.harness import Lake
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.memory_lake import MemoryLake
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.contracts.lakes.paimon_objects import PaimonOnS3
from tests.s3proxy import BUCKET, S3Proxy


@pytest.fixture(
    params=[
        "memory",
        "memory-with-gaps",
        "paimon",
        "paimon-fixed-buckets",
        "iceberg",
        "iceberg-v3",
        pytest.param("paimon-on-s3", marks=pytest.mark.s3),
    ]
)
def lake(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch
) -> Lake:
    if request.param == "memory":
        return MemoryLake()
    if request.param == "memory-with-gaps":
        dice = random.Random(request.node.nodeid)
        return MemoryLake(lambda: dice.randint(1, 9))
    if request.param == "iceberg":
        return IcebergLake(tmp_path)
    if request.param == "iceberg-v3":
        return IcebergLake(tmp_path, 3, forgets_parents=True)
    if request.param == "paimon-on-s3":
        server: S3Proxy = request.getfixturevalue("s3proxy")
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        return PaimonOnS3(f"s3://{BUCKET}/{unique}", server.environment())
    fixed = {"bucket": "3", "bucket-key": "id"} if request.param != "paimon" else {}
    return PaimonLake(tmp_path, options=fixed)
