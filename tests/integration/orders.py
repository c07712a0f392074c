"""The command line on a test's deployment."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from sluicegate.cli.main import main
from tests.integration.conftest import Place
from tests.integration.coordinator import coordinator_process
from tests.integration.waiting import exit_status

ADOPTION: Final = re.compile(r"`sluicegate (stream adopt [^`]*)`")
"""The command with which a text lets a stream continue from its table."""
_COMMAND: Final = (sys.executable, "-c", "from sluicegate.cli.main import main; main()")


@dataclass(frozen=True)
class Spoken:
    """What a command left behind."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


async def sluicegate(place: Place, *arguments: str, **settings: str) -> str:
    """Run a command; returns what it printed. Fails if the command does. Settings such as `HTTP__PORT`."""
    result = await invoke(place, *arguments, **settings)
    assert result.exit_code == 0, result.output
    return result.stdout


async def invoke_here(place: Place, *arguments: str) -> Spoken:
    """Run a command in a thread, which is quicker; only while no service logs in this process."""
    environment = {"SLUICEGATE_CONFIG": str(config_of(place))}
    result = await asyncio.to_thread(CliRunner().invoke, main, arguments, env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Spoken(result.exit_code, result.stdout, result.stderr)


async def invoke(place: Place, *arguments: str, **settings: str) -> Spoken:
    """Run a command in a process of its own, whatever becomes of it: the service logs in this one."""
    environment = {
        **os.environ,
        "SLUICEGATE_CONFIG": str(config_of(place)),
        **{f"SLUICEGATE_{name}": value for name, value in settings.items()},
    }
    return await spoken((*_COMMAND, *arguments), environment)


async def die_at(place: Place, failpoint: str, **settings: str) -> None:
    """Run a coordinator until a failpoint kills it."""
    log = place.root / "killed.log"
    with coordinator_process(config_of(place), log, FAILPOINTS=f"{failpoint}=kill", **settings) as process:
        assert await asyncio.to_thread(exit_status, process, log) == -signal.SIGKILL


async def follow(place: Place, text: str) -> dict[str, Any]:
    """Run the one adoption that a text names, and return its values."""
    (line,) = ADOPTION.findall(text)
    result = await invoke_here(place, *line.split(), "--json")
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


async def spoken(command: Sequence[str], environment: Mapping[str, str]) -> Spoken:
    """Run a program to its end, whatever becomes of it."""
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, stderr = await process.communicate()
    return Spoken(process.returncode or 0, stdout.decode(), stderr.decode())


def config_of(place: Place) -> Path:
    """Write the settings of the stream `flights`; returns their file."""
    config, options = place.root / "sluicegate.toml", place.lake_options.items()
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{place.bootstrap}"\ntopic_prefix = "{place.prefix}"\n'
        f'group_id = "{place.prefix}"\n[streams.flights]\ntable = "{place.table}"\nformat = "{place.lake}"\n'
        f"options = {{ {', '.join(f'{name} = {json.dumps(value)}' for name, value in options)} }}\n"
    )
    return config
