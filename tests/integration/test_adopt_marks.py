"""Marks of partitions after an adoption: under another name they continue, and lost ones are named."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sluicegate.events.notifications import Committed
from tests.faults import tables
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.job import Job
from tests.integration.orders import Spoken, config_of, invoke
from tests.integration.waiting import until
from tests.listeners.mark_done.conftest import Monthly
from tests.listeners.mark_done.driving import stream_of
from tests.listeners.mark_done.policies import at

pytestmark = pytest.mark.kafka

MARKS: Mapping[str, Any] = {
    "type": "mark-done",
    "actions": ["success-file"],
    "timestamp_pattern": "$origin-01",
    "interval": "1 month",
}


@pytest.fixture(params=list(tables.FORMATS))
async def monthly_place(
    request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> Place:
    return await place_of(request.param, kafka_bootstrap, unique, tmp_path)


def months(place: Place) -> Monthly:
    return Monthly(Path(place.table), stream_of(place.lake, place.table, place.lake_options))


def options(**more: Any) -> dict[str, Any]:
    return {"listeners": {"months": dict(MARKS)}, **more}


async def batch(job: Job, month: str, watermark: str, decision: int) -> None:
    """Commit a file of a month."""
    event = await job.written(job.write_files([job.batch], origin=month))
    await job.complete(event, watermark=at(watermark))

    async def announced() -> bool:
        seen = [each.body for each in await job.notifications()]
        return any(isinstance(each, Committed) and each.decision == decision for each in seen)

    await until(announced, what=f"decision {decision}")


async def adopt(place: Place, stream: str, *more: str) -> Spoken:
    """Adopt a stream with the listener of the months in its settings."""
    text = config_of(place).read_text().replace("[streams.flights]", f"[streams.{stream}]", 1)
    config = place.root / "adopting.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in MARKS.items()]
    user = 'commit_user = "sluicegate-flights"'
    config.write_text("\n".join([text, user, f"[streams.{stream}.listeners.months]", *lines, ""]))
    command = ("stream", "adopt", "--config", str(config), "--stream", stream, "--from-table", *more)
    result = await invoke(place, *command)
    assert result.exit_code == 0, result.output
    return result


async def test_marks_that_are_open_continue_under_another_name(monthly_place: Place) -> None:
    place = monthly_place
    async with place.job() as job, running(place.settings(options=options())):
        assert (await job.register()).accepted
        await batch(job, "2013-01", "2013-01-20", 1)
    told = (await adopt(place, "departures", "--from-stream", "flights")).stdout
    assert "listener months continues with its record" in told
    assert "WARNING" not in told
    assert months(place).success() == []
    settings = place.settings("departures", options=options(commit_user="sluicegate-flights"))
    new = place.job("departures", incarnation="q2", base=job.previous, previous=job.previous, batch=1)
    async with running(settings), new:
        assert (await new.register()).accepted
        await batch(new, "2013-02", "2013-02-10", 2)
        # January gets no file under the new name.
        await until(lambda: months(place).success(), lambda found: found == ["2013-01"])
