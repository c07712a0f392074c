"""Ten planted faults: the page alone shows the cause of each, and gets well when the fault is healed.

One coordinator process serves a stream for each fault. Each test asserts what a person sees, heals the fault
with the command or the action that the page shows, and waits until the page is well, without a reload.
"""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Locator, Page, expect

from sluicegate.cli.local.process import ChildProcess
from sluicegate.events.models import FilesWritten
from tests.integration.job import Job, add_column, read_ids
from tests.integration.letters import headers_of, home_of, put_raw, typed
from tests.integration.waiting import until
from tests.web.planting import Planted, create_topics, planted

pytestmark = [pytest.mark.kafka, pytest.mark.browser]

DISK: Final = "2m"
"""Size of the file system of the stream `disk`."""
PAIR: Final = ("EWR", "JFK")


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """Give a folder on a tmpfs of a few megabytes; None where the user may not mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "sluicegate-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Planted]:
    """Give the servers, and a coordinator that serves all streams."""
    root = tmp_path_factory.mktemp("planted")
    with small_disk(root / "disk") as disk, planted(root, disk) as made:
        await create_topics(made)
        process = made.start()
        try:
            await made.serves(process)
            yield made
        finally:
            process.end(30.0)


@pytest.fixture
def allowed() -> list[str]:
    """Return the errors that are expected in the console: none."""
    return []


@asynccontextmanager
async def shown(page: Page, place: Planted, stream: str) -> AsyncIterator[Locator]:
    """Open the page where the stream is well, and check in the end that it is well again in the same page."""
    card = page.get_by_role("article", name=f"Stream {stream}", exact=True)
    await page.goto(f"{place.url}#stream={stream}")
    await expect(badge(card)).to_have_text("● fine")
    await page.evaluate("window.same = true")
    yield card
    await expect(badge(card)).to_have_text("● fine")
    assert await page.evaluate("window.same")


def badge(card: Locator) -> Locator:
    """Return the word for the state of a stream."""
    return card.locator(".badge")


async def command_in(card: Locator, start: str) -> str:
    """Return the command that the reason of a stream shows."""
    found = card.locator(".reason code", has_text=start).first
    await expect(found).to_be_visible()
    return await found.inner_text()


@contextmanager
def ended(*processes: ChildProcess) -> Iterator[None]:
    """End processes after the block, also those that are frozen."""
    try:
        yield
    finally:
        for each in processes:
            each.kill()


async def test_a_dead_driver(page: Page, place: Planted) -> None:
    """It is killed after it has published the files of a checkpoint that it has not completed."""
    async with shown(page, place, "dead") as card:
        driver = place.driver("dead", "r1", "half")
        with ended(driver):
            await place.await_driver(driver, "dead", "r1", "published")
        await expect(badge(card)).to_have_text("? silent")
        reason = card.locator(".reason")
        await expect(reason).to_contain_text("Region r1 of stream dead is silent")
        await expect(reason).to_contain_text("Its driver has ended, or its host does not reach Kafka.")
        await expect(reason).to_contain_text(
            "It left checkpoint 0 unfinished: 1 event published, no completion."
        )
        await expect(reason).to_contain_text(
            "Start its driver again. If that is refused, its log has the way out."
        )
        again = place.driver("dead", "r1", "whole")
        with ended(again):
            await place.await_driver(again, "dead", "r1", "completed")
            await expect(card.locator(".brief")).to_contain_text("commit 1")
            await expect(badge(card)).to_have_text("● fine")
            await place.end_region(again, "dead", "r1")
    assert read_ids(place.tables["dead"]) == [0]


async def test_a_silent_region(page: Page, place: Planted) -> None:
    """Its driver is frozen. The other region works on, and its commits wait."""
    async with shown(page, place, "silent") as card:
        drivers = [place.driver("silent", each, "whole", PAIR) for each in PAIR]
        with ended(*drivers):
            for each, region in zip(drivers, PAIR, strict=True):
                await place.await_driver(each, "silent", region, "completed")
            drivers[1].send(signal.SIGSTOP)
            await expect(badge(card)).to_have_text("? silent")
            await expect(card.locator(".reason")).to_contain_text("Region JFK of stream silent is silent")
            row = card.get_by_role("row", name="JFK")
            await expect(row).to_contain_text("SILENT")
            command = await command_in(card, "sluicegate region remove")
            await place.run_command(command)
            await expect(badge(card)).to_have_text("● fine")
            await place.end_region(drivers[0], "silent", "EWR")


async def test_a_full_disk(page: Page, place: Planted) -> None:
    """A file fills the file system of the table, after the data files are written and before the commit."""
    if "disk" not in place.tables:
        pytest.skip("mounting a small file system needs the user root")
    async with shown(page, place, "disk") as card, place.job("disk") as job:
        await job.register()
        written = job.write_files([1])
        filler = place.root / "disk" / "filler"
        await asyncio.to_thread(fill, filler)
        await job.complete(await job.written(written))
        await expect(badge(card)).to_have_text("~ retries")
        reason = card.locator(".reason")
        await expect(reason).to_contain_text("no space left on the file system (ENOSPC)")
        await expect(reason).to_contain_text(f"Free some space on the file system of {place.tables['disk']}")
        await expect(page.locator("#deployment")).to_contain_text("coordinator on ")
        filler.unlink()
        await expect(card.locator(".brief")).to_contain_text("commit 1")


def fill(path: Path) -> None:
    """Write until the file system is full."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 512)
    assert shutil.disk_usage(path).free == 0


async def test_a_paused_stream(page: Page, place: Planted) -> None:
    async with shown(page, place, "paused") as card:
        await place.run_command("sluicegate stream pause --stream paused --reason 'a new schema'")
        await expect(badge(card)).to_have_text("‖ paused")
        await expect(card.locator(".reason")).to_contain_text(
            "Stream paused commits nothing: an operator paused it."
        )
        assert "a new schema" in await place.run_command(await command_in(card, "sluicegate audit"))
        await place.run_command(await command_in(card, "sluicegate stream resume"))


async def test_a_table_that_was_rolled_back(page: Page, place: Planted) -> None:
    async with shown(page, place, "stalled") as card, place.job("stalled") as job:
        await job.register()
        for number in (1, 2):
            await job.run_batch([number])
            await expect(card.locator(".brief")).to_contain_text(f"commit {number}")
        lost, snapshots = place.root / "lost", Path(place.tables["stalled"]) / "snapshot"
        (snapshots / "snapshot-2").rename(lost)
        await job.run_batch([3])
        await expect(badge(card)).to_have_text("■ stalled")
        await expect(card.locator(".reason")).to_contain_text(
            "snapshot 2 was recorded, but the head is 1: the table was rolled back."
        )
        await expect(card.locator(".reason")).to_contain_text("Put the lost snapshots back")
        lost.rename(snapshots / "snapshot-2")
        await expect(card.locator(".brief")).to_contain_text("commit 3")
    await until(lambda: read_ids(place.tables["stalled"]), lambda found: found == [1, 2, 3])


async def test_a_catalog_that_is_away(page: Page, place: Planted) -> None:
    async with shown(page, place, "catalog") as card, place.job("catalog") as job:
        await job.register()
        written = job.write_files([1])
        place.catalog.kill()
        await job.complete(await job.written(written))
        await expect(badge(card)).to_have_text("~ retries")
        reason = card.locator(".reason")
        await expect(reason).to_contain_text(
            f"the catalog {place.catalog.uri} gives no answer for db.catalog"
        )
        await expect(reason).to_contain_text("Connection refused")
        await expect(reason).to_contain_text("See whether it can be reached")
        await asyncio.to_thread(place.catalog.start)
        await expect(card.locator(".brief")).to_contain_text("commit 1")


async def test_a_poisonous_message(page: Page, place: Planted) -> None:
    """An event with a body that is no JSON: it goes to the dead letters, and the stream continues."""
    async with shown(page, place, "poison") as card, place.job("poison") as job:
        await job.register()
        offset = await put_raw(job, b"\xff not JSON", headers_of(job, typed("region.heartbeat")))
        await expect(badge(card)).to_have_text("! dead letter")
        reason = card.locator(".reason")
        await expect(reason).to_contain_text("Stream poison has 1 message that could not be used")
        await expect(reason).to_contain_text(
            f"{place.topics.events}, partition {home_of('poison')}, offset {offset}. The message is not used"
        )
        await expect(reason).to_contain_text("its body is malformed")
        letters = page.get_by_role("table").filter(has_text="Dealt with").get_by_role("row")
        await expect(letters.filter(has_text="malformed")).to_be_visible()
        await place.run_command(await command_in(card, "sluicegate dead-letters drop"))
        await expect(letters.filter(has_text="malformed")).to_contain_text("dropped")


async def test_files_of_another_schema(page: Page, place: Planted) -> None:
    """The writers have the next schema of the table, which the table does not have yet."""
    async with shown(page, place, "schema") as card, place.job("schema") as job:
        await job.register()
        await job.complete(await job.written(written_with_next_schema(job, place.root / "next")))
        await expect(badge(card)).to_have_text("■ stalled")
        reason = card.locator(".reason")
        await expect(reason).to_contain_text("Files of region r1 are not committed")
        await expect(reason).to_contain_text("the files were written with schema 1, which the table lacks")
        await expect(reason).to_contain_text("Restore what is missing, and they are checked again.")
        schemas = Path("db.db", "schema", "schema", "schema-1")
        shutil.copy(place.root / "next" / schemas, Path(job.location) / "schema")
        await expect(card.locator(".brief")).to_contain_text("commit 1")


def written_with_next_schema(job: Job, folder: Path) -> FilesWritten:
    """Return the event of a file that was written to a copy of the table with one more column."""
    table = Path(job.location)
    copy = shutil.copytree(table, folder / "db.db" / "schema")
    add_column(str(copy), "note")
    job.location = str(copy)
    written = job.write_files([1])
    job.location = str(table)
    for each in written.files:
        place = table / each.path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(copy / each.path, place)
    return written.model_copy(update={"location": table.as_uri()})


async def test_redis_away(page: Page, place: Planted) -> None:
    alert = page.get_by_role("alert").filter(has_text="Redis")
    async with shown(page, place, "quiet") as card, place.job("quiet") as job:
        await job.register()
        await expect(alert).to_have_count(0)
        place.valkey.kill()
        await expect(alert).to_contain_text(f"Redis at {place.valkey.url} does not answer")
        await expect(alert).to_contain_text(
            "Commits continue. Streams of other coordinators are shown as of 20"
        )
        await expect(alert).to_contain_text("Start Redis, or correct redis.url in the settings")
        await expect(page.locator("#servers")).to_contain_text("These values are ")
        await job.run_batch([1])
        await expect(card.locator(".brief")).to_contain_text("commit 1")
        await asyncio.to_thread(place.valkey.start)
        await expect(alert).to_have_count(0)


async def test_kafka_away(page: Page, place: Planted) -> None:
    """The page serves old values with their time, also to somebody who opens it then."""
    alert = page.get_by_role("alert").filter(has_text="Kafka")
    async with shown(page, place, "quiet") as card:
        place.kafka.kill()
        await expects_kafka_away(alert, card, place)
        other = await page.context.new_page()
        await other.goto(f"{place.url}#stream=quiet")
        late = other.get_by_role("article", name="Stream quiet", exact=True)
        await expects_kafka_away(other.get_by_role("alert").filter(has_text="Kafka"), late, place)
        await expect(late).to_contain_text(place.tables["quiet"])
        await other.close()
        await asyncio.to_thread(place.kafka.start)
        await expect(alert).to_have_count(0)
        async with place.job("quiet") as job:
            before = (await job.begin("q2")).decision
            await job.run_batch([2])
        await expect(card.locator(".brief")).to_contain_text(f"commit {before + 1}")


async def expects_kafka_away(alert: Locator, card: Locator, place: Planted) -> None:
    """Check that the page names Kafka, the affected part, the age of its values, and the way out."""
    await expect(alert).to_contain_text(
        f"Kafka at {place.kafka.bootstrap} does not answer the coordinator on host "
    )
    await expect(alert).to_contain_text("commits nothing until then, and all values are as of 20")
    await expect(alert).to_contain_text("Start the brokers, or repair the network to them")
    await expect(card.locator(".reason")).to_contain_text("Stream quiet waits for Kafka")
    await expect(badge(card)).to_have_text("~ retries")
