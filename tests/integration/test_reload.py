"""SIGHUP: a coordinator uses the streams of a changed file, and other streams are not disturbed."""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from sluicegate.events.models import StreamPolicy
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import coordinator_process
from tests.integration.job import Job, create_table, read_events, read_ids
from tests.integration.letters import letters
from tests.integration.waiting import BACKSTOP, exit_status, until, watched

pytestmark = pytest.mark.kafka


@dataclass
class Coordinator:
    """A coordinator in a process of its own."""

    process: subprocess.Popen[bytes]
    place: Place
    log: Path

    def write(self, streams: Mapping[str, str], head: str = "", http: str = "") -> None:
        """Write the settings file: the streams, each with more lines of its table."""
        write_settings(self.place, streams, head, http)

    def hup(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def reload(self, streams: Mapping[str, str]) -> None:
        """Write the settings file, and have it read."""
        self.write(streams)
        self.hup()

    def events(self, name: str) -> list[dict[str, Any]]:
        """The lines of the log with this event."""
        text = self.log.read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        return [line for line in lines if line["event"] == name]

    async def told(self, name: str, count: int = 1) -> dict[str, Any]:
        """Wait for a line of the log; returns the last one."""
        return (await until(lambda: self.events(name), lambda found: len(found) >= count))[-1]

    async def status(self) -> dict[str, Any]:
        port = (await self.told("listening"))["port"]
        return dict(await asyncio.to_thread(_status, port))


def _status(port: int) -> dict[str, Any]:
    with urlopen(f"http://127.0.0.1:{port}/status", timeout=BACKSTOP) as answer:
        return dict(json.loads(answer.read()))


def write_settings(place: Place, streams: Mapping[str, str], head: str = "", http: str = "") -> Path:
    path = place.root / "sluicegate.toml"
    draft = place.root / "draft.toml"
    tables = "".join(
        f'[streams.{name}]\ntable = "{place.root}/db.db/{name}"\n{more}\n' for name, more in streams.items()
    )
    draft.write_text(
        f'{head}\n[kafka]\nbootstrap_servers = "{place.bootstrap}"\ntopic_prefix = "{place.prefix}"\n'
        f'group_id = "{place.prefix}"\nsession_timeout = "6s"\n[http]\nport = 0\n{http}\n{tables}',
        encoding="utf-8",
    )
    draft.rename(path)
    return path


@asynccontextmanager
async def coordinator(place: Place, streams: Mapping[str, str], http: str = "") -> AsyncIterator[Coordinator]:
    """Run one until the block ends; it must end well by SIGTERM."""
    config, log = write_settings(place, streams, http=http), place.root / "log"
    with coordinator_process(config, log) as process:
        found = Coordinator(process, place, log)
        with watched(process):
            await found.told("partitions assigned")
            yield found
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(exit_status, process, log) == 0
        last = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
        assert (last["event"], last["cause"]) == ("stopped", "SIGTERM")


def job_of(place: Place, stream: str, **how: Any) -> Job:
    return Job(place.bootstrap, place.topics, stream, str(place.root / "db.db" / stream), **how)


@asynccontextmanager
async def busy(job: Job) -> AsyncIterator[list[int]]:
    """Batches of a stream, one after the other, each committed before the next; all are in the table then."""
    done: list[int] = []
    going = True

    async def work() -> None:
        while going:
            await job.run_batch([len(done) + 1])
            done.append(len(done) + 1)
            await job.committed(done)

    task = asyncio.create_task(work())
    try:
        yield done
        going = False
        await task
    finally:
        task.cancel()


async def more(done: list[int], count: int = 2) -> None:
    """Wait until so many more batches were committed."""
    want = len(done) + count + 1
    await until(lambda: len(done), lambda found: found >= want)


async def policies(job: Job) -> list[StreamPolicy]:
    found = await read_events(job.bootstrap, job.topics.events)
    return [
        each.body
        for each in found
        if each.envelope.stream == job.stream and isinstance(each.body, StreamPolicy)
    ]


@pytest.mark.seam
@pytest.mark.parametrize(
    "same", [True, pytest.param(False, marks=pytest.mark.matrix)], ids=["one partition", "two partitions"]
)
async def test_a_stream_is_added_committed_and_removed_while_another_goes_on(
    place: Place, same: bool
) -> None:
    other = neighbour("flights", same=same)
    create_table(place.root, other)
    async with (
        coordinator(place, {"flights": ""}) as service,
        job_of(place, "flights") as first,
        job_of(place, other) as second,
    ):
        await first.register()
        assert not (await second.register()).accepted
        await until(lambda: letters(second))
        async with busy(first) as done:
            await more(done)
            service.reload({"flights": "", other: ""})
            assert (await service.told("settings reloaded"))["added"] == [other]
            await service.told("stream joined")
            await more(done)
            await second.begin_with_a_commit()
            assert (await service.status())["epoch"] == 1
            service.reload({"flights": ""})
            assert (await service.told("settings reloaded", 2))["removed"] == [other]
            await service.told("stream left")
            assert list((await service.status())["streams"]) == ["flights"]
            before = len(await letters(second))
            await second.run_batch([2])
            await until(lambda: letters(second), lambda found: len(found) >= before + 2)
            await more(done)
            service.reload({"flights": "", other: ""})
            await second.committed([1, 2])
            await more(done)
        assert (await service.status())["epoch"] == 1
        assert len(service.events("partitions assigned")) == 1
        assert service.events("partitions revoked") == []
        assert service.events("settings not reloaded, those before stay in force") == []
        assert [line["stream"] for line in service.events("stream left")] == [other]
        assert len(await policies(first)) == 1


@pytest.mark.seam
async def test_an_invalid_file_changes_nothing_and_says_what_to_do(place: Place) -> None:
    async with coordinator(place, {"flights": ""}) as service, job_of(place, "flights") as job:
        await job.register()
        async with busy(job) as done:
            await more(done)
            wrong_key = '[streams.flights.options]\nbranhc = "main"'
            wrong = ('partial = "sometimes"', "no toml", wrong_key)
            for number, more_lines in enumerate(wrong, start=1):
                service.reload({"flights": more_lines})
                told = await service.told("settings not reloaded, those before stay in force", number)
                assert told["level"] == "error"
                assert "SIGHUP again" in told["way_out"]
            first, second, third = service.events("settings not reloaded, those before stay in force")
            assert any("streams.flights.partial" in problem for problem in first["problems"])
            assert any("is not valid TOML" in problem for problem in second["problems"])
            assert any("streams.flights: Paimon tables have no options" in one for one in third["problems"])
            await more(done)
            service.reload({"flights": ""})
            told = await service.told("settings reloaded")
            assert [told[each] for each in ("added", "removed", "changed")] == [[], [], []]
            await more(done)
        assert service.events("stream left") == []
        assert read_ids(job.location) == done
