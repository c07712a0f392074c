"""The live page for everybody, and in outages: rules of accessibility, lost connections."""

from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import Page, expect

from tests.integration.waiting import until
from tests.web.example_server import NOW, ExampleServer, add_example, make_cuts, make_stream
from tests.web.test_page import opened, stream_of

pytestmark = pytest.mark.browser


# --- accessibility --------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
async def test_the_page_breaks_no_rule_of_accessibility(
    page: Page, server: ExampleServer, scheme: Any, width: int
) -> None:
    add_example(server)
    server.deployment["shared"] = False
    server.deployment["outages"] = [{"part": "redis", "message": "Redis does not answer.", "since": NOW}]
    await page.set_viewport_size({"width": width, "height": 900})
    await page.emulate_media(color_scheme=scheme)
    await page.goto(server.url)
    assert await broken_rules(page) == []
    for name in server.streams:
        await opened(page, name)
    await expect(page.locator(".matrix .cut")).to_have_count(400)
    assert await broken_rules(page) == []
    await stream_of(page, "flights").get_by_role("rowheader", name="JFK").click()
    await expect(page.get_by_role("table", name="Pending checkpoints")).to_be_visible()
    assert await broken_rules(page) == []


async def broken_rules(page: Page) -> list[str]:
    """Return the rules of axe-core that the page breaks, each with its first place."""
    found = (await Axe().run(page)).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


# --- outages --------------------------------------------------------------------------------------


async def test_an_outage_and_its_end(page: Page, server: ExampleServer, allowed: list[str]) -> None:
    allowed.append("net::ERR")
    server.add(make_stream("flights"), make_stream("weather"))
    server.cuts["flights"] = make_cuts(count=30)
    await page.goto(server.url)
    await expect(page.locator(".matrix .cut")).to_have_count(30)
    outage = page.locator("#outage")
    await expect(outage).to_be_hidden()
    await server.stop()
    await expect(outage).to_contain_text("All values are old: they are as of 2025-11-27T08:5")
    await expect(outage).to_contain_text("look on the host commit-1 whether the coordinator runs")
    await expect(outage.locator("code")).to_have_text("sluicegate run")
    await expect(outage).not_to_contain_text("nother coordinator")
    del server.streams["weather"]
    server.cuts["flights"] = make_cuts(first=100, count=20)
    await server.start()
    await expect(outage).to_be_hidden()
    await expect(page.locator(".stream .name")).to_have_text(["flights"])
    await expect(page.locator(".matrix .cut")).to_have_count(20)


async def test_an_outage_beside_other_coordinators_names_their_pages(
    page: Page, server: ExampleServer, allowed: list[str]
) -> None:
    allowed.append("net::ERR")
    server.add(make_stream("flights"), make_stream("weather", live=False))
    await page.goto(server.url)
    await expect(stream_of(page, "weather")).to_contain_text("of another coordinator")
    await server.stop()
    takeover = "Another coordinator takes its streams over: its page shows them."
    await expect(page.locator("#outage")).to_contain_text(takeover)
    await server.start()
    await expect(page.locator("#outage")).to_be_hidden()


async def test_a_stream_that_is_still_read_names_no_other_coordinator(
    page: Page, server: ExampleServer
) -> None:
    server.add(make_stream("flights", live=False) | {"own": True})
    await page.goto(server.url)
    await expect(page.locator(".brief")).to_contain_text("not read yet")
    await expect(page.locator(".facts")).to_contain_text("its coordinator reads the log")


async def test_an_error_is_tried_again(page: Page, server: ExampleServer, allowed: list[str]) -> None:
    allowed.append("503")
    server.refuses = True
    await page.goto(server.url)
    await expect(page.locator("#outage")).to_contain_text("nothing can be shown yet")
    await until(lambda: server.connections > 1)
    server.refuses = False
    await expect(page.locator("#outage")).to_be_hidden()
    server.add(make_stream("flights"))
    server.cut_connections()
    await expect(page.locator(".stream .name")).to_have_text(["flights"])


async def test_a_silent_connection_is_replaced(page: Page, server: ExampleServer) -> None:
    await page.clock.install(time=NOW)
    server.add(make_stream("flights"))
    await page.goto(server.url)
    await expect(page.locator(".stream")).to_have_count(1)
    await page.clock.fast_forward(70_000)
    await until(lambda: server.connections > 1)
    await expect(page.locator("#outage")).to_be_hidden()
