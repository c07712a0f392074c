"""Steps of tests that lose the topics of a deployment, move it, or rename its stream."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient

from sluicegate.cli.local.process import free_port
from sluicegate.kafka.clients import started
from tests.faults.lives import COMMAND, Deployment, Life
from tests.integration.orders import Spoken
from tests.integration.waiting import until

ADOPT: Final = ("stream", "adopt", "--stream", "flights")
_KILLED: Final = """
import os, signal
from sluicegate.cli.main import main
from sluicegate.kafka.producer import SessionProducer
send, sent = SessionProducer.send_and_wait, []
async def dying(self, *how, **more):
    if len(sent) == {turn}:
        os.kill(os.getpid(), signal.SIGKILL)
    sent.append(await send(self, *how, **more))
SessionProducer.send_and_wait = dying
main()
"""
"""The command line, killed before it has written another record."""


async def lose_topics(where: Deployment) -> None:
    """Delete all topics of a deployment, and make them again as an operator does."""
    names = [where.topics.events, where.topics.commits, where.topics.state, where.topics.dead_letters]
    async with started(AIOKafkaAdminClient(bootstrap_servers=where.bootstrap)) as admin:
        await admin.delete_topics(names)
        await until(admin.list_topics, lambda there: not {*names} & {*there}, what="the end of the topics")
    made = await command(where, "topics", "create")
    assert made.exit_code == 0, made.output


async def command(where: Deployment, *arguments: str, port: int | None = None) -> Spoken:
    """Run a command on a deployment, in a process of its own; `port` is that of a coordinator to ask."""
    return await _run([*COMMAND, *arguments], settings_of(where, port))


async def killed_command(where: Deployment, turn: int, *arguments: str) -> Spoken:
    """Run a command that is killed instead of writing its record of this number, from 0 on."""
    return await _run([sys.executable, "-c", _KILLED.format(turn=turn), *arguments], settings_of(where))


def settings_of(where: Deployment, port: int | None = None) -> Path:
    """Write the settings file of commands."""
    return where.write_settings(0, port or free_port())


async def _run(line: list[str], config: Path) -> Spoken:
    process = await asyncio.create_subprocess_exec(
        *line,
        env={**os.environ, "SLUICEGATE_CONFIG": str(config)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    return Spoken(process.returncode or 0, stdout.decode(), stderr.decode())


async def conditions(life: Life, stream: str = "flights") -> list[dict[str, Any]]:
    """Return the conditions of a stream, as its coordinator says."""
    status = await life.get("/status")
    streams = {} if status is None else status["streams"]
    found: list[dict[str, Any]] = streams.get(stream, {}).get("conditions", [])
    return found


async def stalled(life: Life, code: str, stream: str = "flights") -> dict[str, Any]:
    """Wait until a stream stalls with a code; return the condition."""

    async def found() -> dict[str, Any] | None:
        there = await conditions(life, stream)
        return next((each for each in there if code in str(each)), None)

    seen = await until(found, lambda each: each is not None, by=life, log=life.log_file, what=code)
    return dict(seen or {})
