"""The page of a real coordinator, in a real browser."""

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from sluicegate.coordinator.settings.model import Settings
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.waiting import until
from tests.web.test_api import commit

pytestmark = [pytest.mark.kafka, pytest.mark.browser, pytest.mark.seam]


@pytest.fixture
def allowed() -> list[str]:
    """The browser writes each refused connection into the console."""
    return ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET"]


def at_port(settings: Settings, port: int | None) -> Settings:
    return settings.model_copy(update={"http": settings.http.model_copy(update={"port": port or 0})})


async def test_the_page_follows_a_stream_through_a_restart_of_its_coordinator(
    page: Page, place: Place
) -> None:
    stream = page.get_by_role("article", name="Stream flights")
    async with place.job() as job:
        async with running(place.settings()) as service:
            port = await until(lambda: service.http_port, lambda found: found is not None)
            await job.register()
            await page.goto(f"http://127.0.0.1:{port}/")
            await expect(stream).to_contain_text("fine")
            await commit(job, 1)
            await expect(stream.locator(".matrix .cut")).to_have_count(1)
            await expect(stream).to_contain_text(place.table)
        await expect(page.locator("#outage")).to_contain_text("The connection is lost. All values are old")
        async with running(at_port(place.settings(), port)):
            await expect(page.locator("#outage")).to_be_hidden()
            await commit(job, 2)
            await expect(stream.get_by_role("row", name="r1").first).to_contain_text("live")
            await expect(stream.locator(".matrix .cut")).to_have_count(2)


async def test_the_page_names_the_missing_file_of_a_stalled_region(page: Page, place: Place) -> None:
    stream = page.get_by_role("article", name="Stream flights")
    async with place.job() as job, running(place.settings()) as service:
        await job.register()
        await page.goto(f"http://127.0.0.1:{service.http_port}/")
        files = job.write_files([1])
        lost = Path(place.table) / files.files[0].path
        lost.rename(place.root / "lost")
        await job.complete(await job.written(files))
        await expect(stream).to_contain_text("stalled")
        await expect(stream).to_contain_text(lost.name)
        await expect(stream.get_by_text("sluicegate region reset").first).to_be_visible()
