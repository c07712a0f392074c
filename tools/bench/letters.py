"""Dead letters: how fast they are sent, skipped after a restart, and listed.

    python -m tools.bench.letters [--count 20000] [--json]

Messages without attributes stand in the log, behind a pending checkpoint that keeps the group's offset low.
`sent` counts from the start of the service to the last letter's acknowledgement, `again` the same of a
second service, which finds them all sent. `list` is `sluicegate dead-letters list --json` in a process.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import structlog

from sluicegate.cli.local.servers import EmbeddedKafka
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import create_table, make_topics, read_records
from tests.integration.letters import home_of
from tests.integration.orders import config_of
from tests.integration.test_letters_once import flood, settled
from tests.integration.waiting import until
from tools.bench.common import machine, report


async def measure(place: Place, count: int) -> dict[str, object]:
    """Flood, serve, serve again."""
    figures: dict[str, object] = {"letters": count}
    async with place.job() as job:
        await job.send_registration()
        await job.written(job.write_files([1]))
        offsets = await flood(job, count)
        for name in ("sent", "again"):
            begun = time.monotonic()
            async with running(place.settings()) as service:
                ready = time.monotonic() - begun
                await until(lambda: settled(service, job, offsets[-1]))
                figures[f"{name}_seconds"] = round(time.monotonic() - begun, 2)
                figures[f"{name}_ready_seconds"] = round(ready, 2)
        figures["in_topic"] = len(await read_records(job.bootstrap, job.topics.dead_letters))
        figures["partition"] = home_of(job.stream)
    return figures


def list_letters(place: Place) -> dict[str, object]:
    """Time the command, and one that does nothing."""
    figures: dict[str, object] = {}
    for command, name in ((["dead-letters", "list", "--json"], "list"), (["--version"], "start")):
        begun, spent = time.monotonic(), _processor()
        done = subprocess.run(
            [sys.executable, "-c", "from sluicegate.cli.main import main; main()", *command],
            env={**os.environ, "SLUICEGATE_CONFIG": str(config_of(place))},
            check=True,
            capture_output=True,
        )
        figures[f"{name}_seconds"] = round(time.monotonic() - begun, 2)
        figures[f"{name}_processor_seconds"] = round(_processor() - spent, 2)
        if name == "list":
            figures["listed"] = len(json.loads(done.stdout)["letters"])
    return figures


def _processor() -> float:
    """Processor time of the processes that have ended, which busy neighbours disturb less."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        topics = asyncio.run(make_topics(kafka.bootstrap, "letters"))
        root = Path(folder)
        place = Place(kafka.bootstrap, "letters", topics, root, create_table(root))
        figures = asyncio.run(measure(place, given.count)) | list_letters(place)
    report({**machine(), **figures}, as_json=given.json)


if __name__ == "__main__":
    main()
