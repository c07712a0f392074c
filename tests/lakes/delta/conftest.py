"""A table of Delta with one column."""

from pathlib import Path

import pytest

from tests.contracts.lakes.delta_lake import DeltaLake


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(tmp_path)
