"""`sluicegate conformance`: a writer without our code keeps the contract, and each violation is named."""

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from sluicegate.cli.writers import read_trial
from sluicegate.coordinator.settings.model import Settings
from tests.integration.conftest import Place
from tests.integration.coordinator import running, settings_for
from tests.integration.job import create_table, read_ids
from tests.integration.orders import invoke_here
from tests.integration.plain_writer import Manners, PlainWriter
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.seam]
REGION = "EU"
WRONG: dict[str, tuple[Manners, set[str]]] = {
    "partition": (Manners(partition=1), {"partition", "dead-letter", "no-commit"}),
    "name": (Manners(digest="0" * 32), {"file-name", "no-commit"}),
    "path": (Manners(folder="../elsewhere"), {"path", "no-commit"}),
    "header": (Manners(drops="ce_checkpoint"), {"envelope", "dead-letter"}),
    "answer": (Manners(awaits=False), {"answer"}),
    "unknown": (Manners(unknown=True), {"unknown-events", "no-commit"}),
    "silent": (Manners(beats=False), {"missing"}),
}


async def rules_of(settings: Settings, stream: str) -> set[str]:
    """Return the rules that a writer breaks, by what is in the topics now."""
    return {each.rule for each in (await read_trial(settings, stream, REGION)).finish()}


async def test_a_right_writer_and_wrong_ones(place: Place) -> None:
    tables = {stream: create_table(place.root, f"t_{stream}") for stream in ("right", *WRONG)}
    streams = {stream: {"table": table} for stream, table in tables.items()}
    settings = settings_for(place.bootstrap, place.prefix, streams)

    async def play(stream: str) -> None:
        # Any key is allowed.
        manners = WRONG[stream][0] if stream in WRONG else Manners(key=b"any")
        table = Path(tables[stream])
        async with PlainWriter(place.bootstrap, place.prefix, stream, REGION, table, manners) as writer:
            await writer.trial()

    async with running(settings):
        await asyncio.gather(*map(play, tables))
        await until(lambda: rules_of(settings, "right"), lambda rules: not rules)
        for stream, (_, expected) in WRONG.items():
            await until(partial(rules_of, settings, stream), expected.issubset)
    assert read_ids(tables["right"]) == [0, 1, 2, 3]
    right = await invoke_here(place, "conformance", "--stream", "right", "--region", REGION)
    assert right.exit_code == 0, right.output
    assert "2 checkpoint.completed" in right.stdout
    wrong = await invoke_here(place, "conformance", "--stream", "name", "--region", REGION, "--json")
    assert wrong.exit_code == 1
    rules = {each["rule"] for each in json.loads(wrong.stdout)["violations"]}
    assert WRONG["name"][1] <= rules
    nobody = await invoke_here(place, "conformance", "--stream", "nobody", "--region", REGION)
    assert nobody.exit_code != 0
    assert "Let the writer publish first" in nobody.output
