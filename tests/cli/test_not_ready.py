"""Commands wait for a broker that is not ready yet, as after its start."""

from collections import Counter
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from aiokafka.client import AIOKafkaClient

from tests.cli.deployment import Deployment
from tests.cli.history import History
from tests.cli.test_audit import commands

pytestmark = pytest.mark.kafka

REFUSALS = 2
"""Connections to the broker that fail before each client gets one."""
STREAM = ("--stream", "flights")
COMMANDS = {
    "assignment close": (*STREAM, "--timeout", "0.01"),
    "assignment withdraw": STREAM,
    "audit": STREAM,
    "check": (),
    "commit revert": (*STREAM, "--decision", "1", "--region", "EWR", "--timeout", "0.01"),
    "conformance": (*STREAM, "--region", "EWR"),
    "dead-letters drop": ("--offset", "0"),
    "dead-letters list": (),
    "dead-letters retry": ("--offset", "0"),
    "dead-letters show": ("--offset", "0"),
    "history": STREAM,
    "orphans delete": STREAM,
    "orphans list": STREAM,
    "region remove": (*STREAM, "--region", "EWR"),
    "region reset": (*STREAM, "--region", "EWR", "--checkpoint-location", "location"),
    "replay rebuild": (*STREAM, "--into", "rebuilt"),
    "replay repair": STREAM,
    "replay verify": STREAM,
    "status": (),
    "stream adopt": STREAM,
    "stream cancel": (*STREAM, "--name", "n"),
    "stream drain": (*STREAM, "--timeout", "0.01"),
    "stream forget": ("--stream", "trains"),
    "stream pause": STREAM,
    "stream recover": STREAM,
    "stream resume": STREAM,
    "stream savepoint": (*STREAM, "--timeout", "0.01"),
    "stream skip": (*STREAM, "--offset", "0"),
    "topics create": (),
    "wait": (*STREAM, "--watermark", "2013-01-01", "--timeout", "0.01"),
}
OF_A_MACHINE = {"uploads discard", "uploads drain", "uploads list"}
"""Commands for files that wait on a machine; they have their own tests."""
WITHOUT_KAFKA = {"demo", "init", "run", "servers", "up", *OF_A_MACHINE}


def refuse(monkeypatch: pytest.MonkeyPatch) -> "Counter[str]":
    """Refuse the first connections of each client, and count that."""
    connect, refused = AIOKafkaClient._get_conn, Counter[str]()
    seen: WeakKeyDictionary[AIOKafkaClient, int] = WeakKeyDictionary()

    async def late(client: AIOKafkaClient, *node: Any, **how: Any) -> Any:
        seen[client] = seen.get(client, 0) + 1
        if seen[client] > REFUSALS:
            return await connect(client, *node, **how)
        refused["connections"] += 1
        return None

    monkeypatch.setattr(AIOKafkaClient, "_get_conn", late)
    return refused


def test_every_command_with_kafka_is_tested() -> None:
    assert {*COMMANDS} == {*commands()} - WITHOUT_KAFKA


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_waits_for_a_broker_that_is_not_ready(
    command: str, deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(deployment).begin()
    history.register("EWR", "EWR-1")
    history.complete("EWR", 0)
    history.decide()
    history.send()
    refused = refuse(monkeypatch)
    paths = ("location", "rebuilt")
    options = [str(tmp_path / each) if each in paths else each for each in COMMANDS[command]]
    result = deployment.run(*command.split(), *options)
    assert refused["connections"] >= REFUSALS
    assert isinstance(result.exception, SystemExit | None), result.exception
    for text in ("does not answer", "not ready", "cannot be reached", "NotReady", "No such option"):
        assert text not in result.output, result.output
