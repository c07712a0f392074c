"""Fixtures of the tests of the built distributions."""

import pytest

from tests.packaging.environments import Distributions, build


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Give the sdist and the wheel of this checkout."""
    return build(tmp_path_factory.mktemp("packaging"))
