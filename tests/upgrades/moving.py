"""Steps of tests that lose the topics of a deployment, move it, or rename its stream."""

import os
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient

from sluicegate.cli.local.process import free_port
from sluicegate.kafka.clients import started
from tests.faults.lives import COMMAND, Deployment, Life
from tests.integration.orders import Spoken, spoken
from tests.integration.waiting import until

ADOPT: Final = ("stream", "adopt", "--stream", "flights")


async def lose_topics(where: Deployment) -> None:
    """Delete all topics of a deployment, and make them again as an operator does."""
    names = [where.topics.events, where.topics.commits, where.topics.state, where.topics.dead_letters]
    async with started(AIOKafkaAdminClient(bootstrap_servers=where.bootstrap)) as admin:
        await admin.delete_topics(names)
        await until(admin.list_topics, lambda there: not {*names} & {*there}, what="the end of the topics")
    made = await command(where, "topics", "create")
    assert made.exit_code == 0, made.output


async def command(where: Deployment, *arguments: str) -> Spoken:
    """Run a command on a deployment, in a process of its own."""
    config = where.write_settings(0, free_port())
    return await spoken((*COMMAND, *arguments), {**os.environ, "SLUICEGATE_CONFIG": str(config)})


async def stalled(life: Life, code: str, stream: str = "flights") -> dict[str, Any]:
    """Wait until a stream stalls with a code; return the condition."""

    async def found() -> dict[str, Any] | None:
        status = await life.get("/status")
        streams = {} if status is None else status["streams"]
        there = streams.get(stream, {}).get("conditions", [])
        return next((each for each in there if code in str(each)), None)

    seen = await until(found, lambda each: each is not None, by=life, log=life.log_file, what=code)
    return dict(seen or {})
