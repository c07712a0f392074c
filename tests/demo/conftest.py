"""The data set, read once."""

import pyarrow as pa
import pytest

from sluicegate.cli.local.flights import load_flights


@pytest.fixture(scope="session")
def flights() -> pa.Table:
    return load_flights()


@pytest.fixture(scope="session")
def few(flights: pa.Table) -> pa.Table:
    """Three hundred flights that are spread over the year."""
    return load_flights(300)
