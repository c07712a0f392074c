"""A sample of the campaign without Spark (tools/bench/ways_in.py): each kind of fault, once."""

from random import Random

import pytest

from tests.faults.plainjobs import JOB_FAULTS, jobs_hurt
from tests.faults.pythons import DRIVER_FAULTS, drivers_hurt
from tests.faults.scenes import Maker
from tests.faults.spools import OF_SPOOLS, spools_hurt

pytestmark = [pytest.mark.kafka, pytest.mark.redis]


async def test_drivers_and_writers_that_die_or_freeze_leave_an_exact_table(make: Maker) -> None:
    assert await drivers_hurt(make, 1, Random(1)) == dict.fromkeys(DRIVER_FAULTS, 1)


async def test_jobs_that_die_or_freeze_leave_an_exact_table(make: Maker) -> None:
    assert await jobs_hurt(make, 1, Random(2)) == dict.fromkeys(JOB_FAULTS, 1)


async def test_an_uploader_that_dies_and_a_lost_spool_leave_an_exact_table(make: Maker) -> None:
    assert await spools_hurt(make, 1, Random(3), OF_SPOOLS) == dict.fromkeys(OF_SPOOLS, 1)
