"""A table of Paimon with one column."""

from pathlib import Path

import pytest

from tests.contracts.lakes.paimon_lake import PaimonLake


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLake:
    return PaimonLake(tmp_path)
