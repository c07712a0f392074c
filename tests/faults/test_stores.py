"""A sample of the fault campaign with tables in a real S3 server, whose files the readers look at."""

import pytest

from sluicegate.failpoints.names import Failpoint
from tests.faults.rolling import Plan, roll
from tests.faults.scenes import Maker
from tests.s3proxy import S3Proxy

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.s3]


@pytest.mark.parametrize("lake", ["paimon", "delta"])
async def test_killed_around_the_put_the_table_is_exact(
    lake: str, make: Maker, s3proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in s3proxy.environment().items():
        monkeypatch.setenv(variable, value)
    where = await make(lake=lake, store=s3proxy.bucket)
    plans = [Plan(Failpoint.LAKE_PUT_BEFORE), Plan(Failpoint.LAKE_PUT_AFTER), Plan(Failpoint.PUBLISH_AFTER)]
    assert await roll(where, plans) == []
