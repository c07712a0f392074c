"""Durations of updates of a large matrix, as the page itself measures them."""

from playwright.async_api import Page, expect

from tests.web.example_server import ExampleServer, make_cuts, make_stream


async def updates_of(
    page: Page, server: ExampleServer, regions: int, rounds: int
) -> tuple[float, list[float]]:
    """Show a matrix of so many regions and 50 cuts, then send new cuts.

    Return the milliseconds of the first matrix, and those of each update: parsing, rendering and layout. In
    each round all cells move, and the facts of each region change.
    """
    names = [f"region-{number:02}" for number in range(regions)]
    cuts = make_cuts(names, count=50 + rounds)
    server.add(make_stream("flights", regions=names))
    server.cuts["flights"] = cuts[:50]
    await page.goto(server.url)
    await expect(page.locator(".matrix .cell")).to_have_count(50 * regions)
    first = max(await page.evaluate("window.sluicegate.updates"))
    await page.evaluate("() => { window.sluicegate.updates.length = 0; }")
    for number, cut in enumerate(cuts[50:]):
        changes = {each: {"consecutive_fallbacks": number % 4} for each in names}
        server.push_streams(make_stream("flights", regions=names, changes=changes, committed=number))
        server.push_cut("flights", cut)
        label = f"region-00, decision {cut['decision']}"
        await expect(page.locator(f".matrix tbody tr:first-child [aria-label^='{label}:']")).to_have_count(1)
    return first, list(await page.evaluate("window.sluicegate.updates"))
