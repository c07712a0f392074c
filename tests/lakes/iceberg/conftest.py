"""A table of Iceberg on local files, or one that a test names indirectly; versions of the format."""

from pathlib import Path

import pytest

from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.iceberg_rest_lake import iceberg_of


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> IcebergLake:
    return iceberg_of(getattr(request, "param", "iceberg"), request, tmp_path)


@pytest.fixture(params=[pytest.param(2, marks=pytest.mark.matrix), 3])
def version(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number
