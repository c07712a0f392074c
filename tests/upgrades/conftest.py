"""Fixtures of the tests of upgrades and moves."""

from pathlib import Path
from typing import Any

import pytest

from tests.faults.lives import Deployment
from tests.faults.scenes import Maker


@pytest.fixture
def make(kafka_bootstrap: str, redis_url: str, tmp_path: Path) -> Maker:
    """Deployments with topics and tables of their own."""

    async def made(**differing: Any) -> Deployment:
        where = Deployment(kafka_bootstrap, tmp_path, redis=redis_url, **differing)
        await where.prepare()
        return where

    return made
