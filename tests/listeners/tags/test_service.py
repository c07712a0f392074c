"""Tags of a stream with a real broker, through coordinators that are killed between a tag and its record."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sluicegate.cli.main import main
from sluicegate.lakes.capabilities import ReadsHistory
from sluicegate.lakes.history import TableHistory
from sluicegate.listeners.port import Stream
from tests.faults import iceberg_tables
from tests.integration.conftest import Place, place_of
from tests.integration.job import Job
from tests.integration.waiting import exit_status, until
from tests.integration.webhooks import config_with
from tests.listeners.mark_done.driving import stream_of
from tests.listeners.mark_done.policies import at

pytestmark = pytest.mark.kafka

RUN = (sys.executable, "-c", "from sluicegate.cli.main import main; main()", "run")
OWN = {"type": "tags", "period": "daily", "savepoints": True}


@contextmanager
def coordinator(config: Path, log: Path, failpoints: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A coordinator in a process of its own, killed at the end."""
    env = {
        "SLUICEGATE_CONFIG": str(config),
        "SLUICEGATE_HTTP__PORT": "0",
        "SLUICEGATE_FAILPOINTS": failpoints,
    }
    with log.open("ab") as stderr:
        process = subprocess.Popen(RUN, stderr=stderr, env={**os.environ, **env})
        try:
            yield process
        finally:
            process.kill()
            process.wait()


async def commit(job: Job, number: int, watermark: str) -> None:
    event = await job.written(job.write_files([number]))
    await job.complete(event, watermark=at(watermark))


def history(stream: Stream) -> TableHistory:
    found = stream.adapter.open_maintenance(stream.table)
    assert isinstance(found, ReadsHistory)
    return found.history()


def tags(place: Place) -> dict[str, str]:
    """Return the identity of the snapshot of each tag, as the files of the table have it."""
    if place.lake == "paimon":
        files = (Path(place.table) / "tag").glob("tag-*")
        return {each.name.removeprefix("tag-"): str(json.loads(each.read_bytes())["id"]) for each in files}
    with closing(iceberg_tables.catalog_of(Path(place.table))) as catalog:
        refs = catalog.load_table(place.lake_options["identifier"]).refs()
    return {name: str(each.snapshot_id) for name, each in refs.items() if each.snapshot_ref_type == "tag"}


def expected(place: Place, names: dict[str, int]) -> dict[str, str]:
    """Return the identities of the snapshots of decisions, by the names of their tags."""
    stream = stream_of(place.lake, place.table, place.lake_options)
    by_decision = {each.decision: each.ref for each in history(stream).commits}
    refs = {name: by_decision[decision] for name, decision in names.items()}
    return {name: str(ref.id) if place.lake == "paimon" else ref.identity for name, ref in refs.items()}


@pytest.mark.parametrize("lake", ["paimon", "iceberg"])
async def test_tags_are_made_once_through_kills_between_a_tag_and_its_record(
    lake: str, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    own: dict[str, Any] = {**OWN, "start": "earliest"}
    config, log = config_with(place, own), tmp_path / "log"
    async with place.job() as job:
        # The first is that of the commit, the second that of the tag.
        with coordinator(config, log, "lake.put.after=kill@2") as process:
            await job.register()
            await commit(job, 1, "2013-01-02 00:00:01")
            assert await asyncio.to_thread(exit_status, process, log) == -signal.SIGKILL
        assert tags(place) == expected(place, {"2013-01-01": 1})
        # Killed before the tag: the commit is visible, and has no tag yet.
        with coordinator(config, log, "lake.put.before=kill@2") as process:
            await commit(job, 2, "2013-01-03 00:00:01")
            assert await asyncio.to_thread(exit_status, process, log) == -signal.SIGKILL
        assert tags(place) == expected(place, {"2013-01-01": 1})
        names = {"2013-01-01": 1, "2013-01-02": 2, "savepoint-upgrade": 2}
        with coordinator(config, log) as process:
            # An idle region needs no further checkpoint for a savepoint.
            await job.heartbeat(idle=True)
            order = ["stream", "savepoint", "--stream", "flights", "--name", "upgrade"]
            told = await asyncio.to_thread(CliRunner().invoke, main, [*order, "--config", str(config)])
            assert told.exit_code == 0, told.output
            await until(lambda: len(tags(place)), lambda count: count >= 3, by=process, log=log)
        assert tags(place) == expected(place, names)
