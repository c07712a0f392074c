"""Every table format that has a committer, and the kinds of tables in memory."""

import random
from pathlib import Path
from typing import Final

import pytest

from sluicegate.lakes.memory_table import MarkerKind
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.delta_objects import DeltaOnS3
from tests.contracts.lakes.harness import Lake
from tests.contracts.lakes.memory_lake import MemoryLake
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.contracts.lakes.paimon_objects import PaimonOnS3
from tests.s3proxy import BUCKET, S3Proxy

MARKERS: Final[dict[str, MarkerKind]] = {"memory-with-property": "property", "memory-with-state": "state"}
"""Tables in memory with gaps between positions and with a marker, by name."""
MARKED: Final = (*MARKERS, "delta", pytest.param("delta-on-s3", marks=pytest.mark.s3))
"""Names of the tables with a marker."""
UNMARKED: Final = (
    "memory",
    "memory-with-gaps",
    "paimon",
    "paimon-fixed-buckets",
    pytest.param("paimon-on-s3", marks=pytest.mark.s3),
)


def lake_of(name: str, request: pytest.FixtureRequest, folder: Path) -> Lake:
    """Return a fresh table."""
    if name == "memory":
        return MemoryLake()
    if name.startswith("memory"):
        dice = random.Random(request.node.nodeid)
        return MemoryLake(lambda: dice.randint(1, 9), MARKERS.get(name, "none"))
    if name == "delta":
        return DeltaLake(folder)
    if name.endswith("-on-s3"):
        return on_s3(name, request)
    fixed = {"bucket": "3", "bucket-key": "id"} if name != "paimon" else {}
    return PaimonLake(folder, options=fixed)


def on_s3(name: str, request: pytest.FixtureRequest) -> Lake:
    """Return a fresh table in the bucket of the server of S3."""
    server: S3Proxy = request.getfixturevalue("s3proxy")
    unique: str = request.getfixturevalue("unique")
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for variable, value in server.environment().items():
        monkeypatch.setenv(variable, value)
    if name.startswith("delta"):
        return DeltaOnS3(server.bucket, unique, server.environment())
    return PaimonOnS3(f"s3://{BUCKET}/{unique}", server.environment())


@pytest.fixture(params=[*UNMARKED, *MARKED])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return lake_of(request.param, request, tmp_path)


@pytest.fixture(params=MARKED)
def marked(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A table with a marker."""
    return lake_of(request.param, request, tmp_path)
