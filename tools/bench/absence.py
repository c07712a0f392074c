"""Delay of a commit while one region of three is dead, has declined, or is hung, beside all three at work.

    python -m tools.bench.absence [--checkpoints 40] [--json]

A checkpoint of a region is an event of two files and its completion. The regions at work complete one in
turn, and the next ones follow the announcement of the commit. The delay is from the append of the last
completion to the append of `commit.visible` or `commit.partially_visible`, in milliseconds of the broker.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from sluicegate.cli.local.process import free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.events.envelope import EventType
from sluicegate.events.models import CheckpointFailed, FilesWritten, RegionHeartbeat
from sluicegate.events.notifications import Committed
from sluicegate.kafka.topics import TopicNames
from sluicegate.lakes.registry import adapter
from tools.bench.common import (
    Region,
    create_table,
    machine,
    make_topics,
    quantiles,
    read_notifications,
    report,
    rows,
    start_coordinator,
    wait_ready,
    wait_until_registered,
    write_settings,
)

REGIONS: Final = ("r1", "r2", "r3")
SILENCE: Final = 5.0
"""Seconds, and the longest that three missed heartbeats take."""
HEARTBEAT: Final = 1_000
_SETTINGS: Final = f"""
partial = "allow"
alignment_timeout = "2s"
max_consecutive_fallbacks = 8
silence = "{SILENCE:g}s"
"""
WARM_UP: Final = 3
ORIGINS: Final = ("A00", "A01")


class _Stream:
    """A stream of three regions, and the table that they write to."""

    def __init__(self, bootstrap: str, topics: TopicNames, table: Path, regions: list[Region]) -> None:
        self._bootstrap, self._topics, self._table = bootstrap, topics, table
        self.regions = regions
        self._number = 0

    async def round(self, at_work: list[Region]) -> float:
        """Complete one checkpoint in each of the regions; return the delay of the commit in milliseconds."""
        number, self._number = self._number, self._number + 1
        event = self._write(at_work, number)
        appended = 0
        for region in at_work:
            written, acknowledged = await region.written(number, event[region.name])
            await acknowledged
            record = await (await region.complete(number, [written]))
            appended = record.timestamp
        return await self._announced(at_work[-1], number) - appended

    def _write(self, at_work: list[Region], number: int) -> dict[str, FilesWritten]:
        found = dict[str, FilesWritten]()
        for region in at_work:
            opened = adapter("paimon")
            writer = opened.open_writer(opened.parse_table(str(self._table)), "at", region.label(number))
            writer.write(rows(ORIGINS, 40 * number, 20))
            found[region.name] = FilesWritten(
                format="paimon",
                format_version=opened.format_version,
                location=writer.location,
                schema_id=writer.schema_id,
                files=tuple(writer.finish()),
            )
        return found

    async def _announced(self, region: Region, number: int) -> int:
        while True:
            async for time, told in read_notifications(self._bootstrap, self._topics):
                at = told.body.cut.get(region.name) if isinstance(told.body, Committed) else None
                if at is not None and at.checkpoint >= number:
                    return time
            await asyncio.sleep(0.02)

    async def beat(self, region: Region, run: str) -> None:
        """Send a heartbeat that announces the next one."""
        body = RegionHeartbeat(interval=HEARTBEAT, run=run)
        await (await region.send(region.envelope(EventType.REGION_HEARTBEAT), body))


@asynccontextmanager
async def _stream(folder: Path, bootstrap: str) -> AsyncIterator[_Stream]:
    create_table(folder, "ours")
    table, topics, port = folder / "db.db" / "ours", await make_topics(bootstrap), free_port()
    settings = write_settings(folder, bootstrap, topics, table, port)
    with settings.open("a") as file:
        file.write(_SETTINGS)
    process = start_coordinator(settings)
    regions = [Region(bootstrap, topics, name, regions=REGIONS, incarnation=f"q-{name}") for name in REGIONS]
    try:
        wait_ready(process, port, folder / "coordinator.log")
        for region in regions:
            await region.__aenter__()
            await region.register()
        await wait_until_registered(bootstrap, topics, *regions)
        yield _Stream(bootstrap, topics, table, regions)
    finally:
        for region in regions:
            await region.__aexit__()
        process.end(20.0)


async def _measure(folder: Path, bootstrap: str, checkpoints: int) -> dict[str, Any]:
    found = dict[str, Any]()
    for case in ("all at work", "declined", "dead", "hung"):
        made = folder / case.replace(" ", "-")
        made.mkdir()
        async with _stream(made, bootstrap) as stream:
            delays = await _case(stream, case, checkpoints)
        found[case] = {**quantiles(delays), "waits": sum(each > 1000 for each in delays)}
    usual = found["all at work"]
    for case in ("declined", "dead", "hung"):
        found[f"{case}, ratio"] = {name: round(found[case][name] / usual[name], 2) for name in ("p50", "p99")}
    return {**found, "checkpoints": checkpoints, **machine()}


async def _case(stream: _Stream, case: str, checkpoints: int) -> list[float]:
    *others, last = stream.regions
    for _ in range(WARM_UP):
        await stream.round(stream.regions)
    if case == "all at work":
        return [await stream.round(stream.regions) for _ in range(checkpoints)]
    if case == "declined":
        body = CheckpointFailed(outcome="declined", run=last.registration, code="bench")
        await (await last.send(last.envelope(EventType.CHECKPOINT_FAILED, 1 << 20), body))
    else:
        await stream.beat(last, last.registration)
    if case == "dead":
        # Longer than the silence that makes a region absent.
        await asyncio.sleep(2 * SILENCE)
    delays = list[float]()
    for _ in range(checkpoints):
        if case == "hung":
            await stream.beat(last, last.registration)
        delays.append(await stream.round(others))
    return delays


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoints", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        found = asyncio.run(_measure(Path(folder), kafka.bootstrap, arguments.checkpoints))
    report(json.loads(json.dumps(found)), as_json=arguments.json)


if __name__ == "__main__":
    main()
