"""A Spark job whose executors are processes."""

import pytest

from tests.faults.scenes import Maker
from tests.faults.sparks import executor_lost

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.spark]


async def test_files_of_a_lost_executor_are_written_again_and_count_once(make: Maker) -> None:
    """Its files stay, and no completion names them."""
    assert await executor_lost(make) >= 1
