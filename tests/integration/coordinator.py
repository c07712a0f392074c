"""The real service, in this process or in one of its own, started and stopped by tests."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.settings.model import Settings
from tests.integration.waiting import finished, until, watched


def settings_for(
    bootstrap: str, prefix: str, streams: dict[str, dict[str, Any]], redis_url: str | None = None, **more: Any
) -> Settings:
    """Settings of a test's own deployment."""
    return Settings.model_validate(
        {
            "kafka": {
                "bootstrap_servers": bootstrap,
                "topic_prefix": prefix,
                "group_id": prefix,
                "session_timeout": 6,
            },
            "redis": {"url": redis_url, "key_prefix": prefix} if redis_url else None,
            "http": {"port": 0},
            "streams": streams,
            **more,
        }
    )


def config_of_tables(
    folder: Path,
    bootstrap: str,
    prefix: str,
    stream: str,
    table: Path | str,
    tables: Mapping[str, str],
    uri: str,
) -> Path:
    """Write the settings of a coordinator of one stream with further tables in one catalog of Iceberg."""
    settings: dict[str, Mapping[str, object]] = {
        "kafka": {
            "bootstrap_servers": bootstrap,
            "topic_prefix": prefix,
            "group_id": prefix,
            "session_timeout": 6,
        },
        f"streams.{stream}": {"format": "iceberg", "table": str(table)},
        f"streams.{stream}.tables": tables,
        f"streams.{stream}.options": {"uri": uri},
    }
    lines = [
        line
        for section, values in settings.items()
        for line in (f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items()), "")
    ]
    found = folder / "sluicegate.toml"
    found.write_text("\n".join(lines), encoding="utf-8")
    return found


@asynccontextmanager
async def running(settings: Settings, *, ready: bool = True) -> AsyncIterator[Service]:
    """A service that serves until the block ends, and stops gracefully then."""
    stop = asyncio.Event()
    service = Service(settings)
    task = asyncio.create_task(service.run(stop))
    try:
        with watched(task):
            if ready:
                await until(service.unready, lambda reasons: not reasons)
            yield service
    finally:
        stop.set()
        await finished(task, "the service")


@contextmanager
def coordinator_process(
    config: Path, log: Path, *, before: str = "", **settings: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a coordinator in a process of its own, which is killed at the end if it still runs.

    `before` is a program that runs first; `settings` are variables such as FAILPOINTS.
    """
    given = {"CONFIG": str(config), "HTTP__PORT": "0", **settings}
    env = {**os.environ, **{f"SLUICEGATE_{name}": value for name, value in given.items()}}
    program = f"{before}\nfrom sluicegate.cli.main import main; main()"
    with log.open("ab") as output:
        command = [sys.executable, "-c", program, "run"]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=env)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
