"""A job's own check, against a coordinator that runs."""

import asyncio

import pytest

from sluicegate.events.problems import Code
from sluicegate.writer_hooks import PreflightFailed, preflight
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.waiting import BACKSTOP, until

pytestmark = pytest.mark.kafka


def options(place: Place) -> dict[str, str]:
    return {
        "stream": "flights",
        "region": "r1",
        "table": place.table,
        "kafka.bootstrap.servers": place.bootstrap,
        "topic.prefix": place.prefix,
        "checkpointLocation": str(place.root / "checkpoint"),
    }


async def is_accepted(options: dict[str, str]) -> bool:
    """True once the first coordinator of the stream has logged its settings."""
    try:
        await asyncio.to_thread(preflight, options, timeout=BACKSTOP)
    except PreflightFailed as error:
        if f", {Code.NO_POLICY})" not in str(error):
            raise
        return False
    return True


async def test_it_tells_what_a_coordinator_would_refuse(place: Place) -> None:
    async with running(place.settings()):
        await until(lambda: is_accepted(options(place)))
        for change, code in (
            ({"stream": "flihgts"}, Code.UNKNOWN_STREAM),
            ({"table": str(place.root / "elsewhere")}, Code.OTHER_TABLE),
        ):
            with pytest.raises(PreflightFailed, match=code):
                await asyncio.to_thread(preflight, options(place) | change, timeout=BACKSTOP)
    assert not (place.root / "checkpoint").exists()
