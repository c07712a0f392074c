"""Dead letters in an operator's hands."""

import json
from typing import Any

import pytest

from sluicegate.events.problems import Code
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, Job
from tests.integration.letters import (
    headers_of,
    home_of,
    letters,
    put_raw,
    stalled,
    typed,
)
from tests.integration.orders import invoke_here
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

LETTERS = "dead-letters"


async def listed(place: Place, *more: str) -> list[dict[str, Any]]:
    """What `list` shows."""
    said = await invoke_here(place, LETTERS, "list", "--json", *more)
    assert said.exit_code == 0, said.output
    found: list[dict[str, Any]] = json.loads(said.stdout)["letters"]
    return found


async def put_aside(job: Job, count: int) -> None:
    """Wait until so many letters are there."""
    await until(lambda: letters(job), lambda found: len(found) >= count)


async def test_letters_are_listed_shown_and_dropped(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            headers = headers_of(job, typed("checkpoint.completed"), checkpoint=0, **{"x-token": "hush"})
            offset = await put_raw(job, b'{"api_key": "also hush", "x": "\x1b[2J"', headers)
            await put_raw(job, b"{}", {"ce_type": b"unheard.of"})
            await put_aside(job, 2)
        found = await listed(place)
        assert [each["stream"] for each in found] == ["flights", None]
        stood = found[0]["source"]
        assert (stood["topic"], stood["partition"], stood["offset"]) == (
            place.topics.events,
            home_of("flights"),
            offset,
        )
        assert [each["code"] for each in found] == ["malformed-body", "spec-version"]
        assert [each["stream"] for each in await listed(place, "--stream", "flights")] == ["flights"]
        number = str(found[0]["offset"])
        shown = (await invoke_here(place, LETTERS, "show", "--offset", number)).stdout
        assert "The message is not used: its body is malformed" in shown
        assert "ce_incarnation: q1" in shown
        assert "x-token: [secret]" in shown
        assert '"api_key": "[secret]"' in shown
        assert "hush" not in shown
        assert "\\x1b[2J" in shown
        assert "\x1b" not in shown
        refused = await invoke_here(place, LETTERS, "retry", "--offset", number)
        assert (refused.exit_code, "cannot read it either" in refused.stderr) == (2, True)
        assert (await invoke_here(place, LETTERS, "drop", "--offset", number)).exit_code == 0
        assert [each["offset"] for each in await listed(place)] == [found[1]["offset"]]
        assert [each["dealt_with"] for each in await listed(place, "--all")] == ["dropped", None]
        missing = await invoke_here(place, LETTERS, "drop", "--offset", "99")
        assert (missing.exit_code, "no letter at offset 99" in missing.stderr) == (2, True)


async def test_a_letter_that_is_sent_again_counts_once(place: Place) -> None:
    """It stood on the wrong partition, for which the stream stalls."""
    async with place.job() as job:
        async with running(place.settings()) as service:
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            wrong = (home_of("flights") + 1) % PARTITIONS
            event = await job.written(job.write_files([2]), partition=wrong)
            await job.complete(event)
            await put_aside(job, 1)
            await until(lambda: stalled(service), lambda code: code == Code.EVENTS_MISSING)
        (letter,) = await listed(place)
        sent = await invoke_here(place, LETTERS, "retry", "--offset", str(letter["offset"]))
        assert sent.exit_code == 0, sent.output
        assert "it has an effect, by the rules of the log" in sent.stdout
        assert "not known from here: whether the settings of the coordinators still have" in sent.stdout
        assert "1 of its events have not arrived" in sent.stdout
        assert "no coordinator runs" in sent.stdout
        assert await listed(place) == []
        again = await invoke_here(place, LETTERS, "retry", "--offset", str(letter["offset"]), "--json")
        told = json.loads(again.stdout)
        assert told["counts"] is False
        assert "the same one was applied before" in told["no_effect"]
        async with running(place.settings()):
            await job.committed([1, 2])
        late = await invoke_here(place, LETTERS, "retry", "--offset", str(letter["offset"]))
        assert "The event has no effect: its checkpoint was decided before" in late.stdout
