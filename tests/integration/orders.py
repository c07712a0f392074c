"""The command line on a test's deployment."""

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Final

from tests.integration.conftest import Place

_COMMAND: Final = (sys.executable, "-c", "from sluicegate.coordinator.cli import main; main()")


@dataclass(frozen=True)
class Spoken:
    """What a command left behind."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


async def sluicegate(place: Place, *arguments: str) -> str:
    """Run a command; returns what it printed. Fails if the command does."""
    result = await invoke(place, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


async def invoke(place: Place, *arguments: str) -> Spoken:
    """Run a command in a process of its own, whatever becomes of it: the service logs in this one."""
    config = place.root / "sluicegate.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{place.bootstrap}"\ntopic_prefix = "{place.prefix}"\n'
        f'group_id = "{place.prefix}"\n[streams.flights]\ntable = "{place.table}"\n'
    )
    process = await asyncio.create_subprocess_exec(
        *_COMMAND,
        *arguments,
        env={**os.environ, "SLUICEGATE_CONFIG": str(config)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    return Spoken(process.returncode or 0, stdout.decode(), stderr.decode())
