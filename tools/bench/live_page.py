"""Time of one update of the live page in a browser, with 64 regions and 50 cuts.

    python -m tools.bench.live_page [--json] [--regions 64] [--rounds 150] [--runs 5]

The page measures the time from the arrival of a message to the finished layout, without painting: parsing,
its model, the changed nodes, the layout. Each run is a page of its own; the figures are medians of the runs.
"""

import argparse
import asyncio
import json
import shutil
import statistics
from pathlib import Path

from playwright.async_api import Page, async_playwright, expect

from tests.web.example_server import ExampleServer, make_cuts, make_stream

BROWSER = "chromium-headless-shell"


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


async def measure(regions: int, rounds: int, runs: int) -> dict[str, object]:
    """Return the figures in milliseconds."""
    path = shutil.which(BROWSER)
    if path is None:
        raise SystemExit(f"{BROWSER} is not installed (Debian has it)")
    firsts, halves, most = list[float](), list[float](), list[float]()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=Path(path), args=["--no-sandbox"])
        for _ in range(runs):
            server = ExampleServer()
            await server.start()
            page = await browser.new_page()
            first, later = await updates_of(page, server, regions, rounds)
            firsts.append(first)
            halves.append(statistics.median(later))
            most.append(statistics.quantiles(later, n=20)[-1])
            await page.close()
            await server.stop()
        await browser.close()
    return {
        "regions": regions,
        "cuts": 50,
        "updates": rounds,
        "runs": runs,
        "first_ms": round(statistics.median(firsts), 1),
        "p50_ms": round(statistics.median(halves), 1),
        "p95_ms": round(statistics.median(most), 1),
        "p95_highest_ms": round(max(most), 1),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="a line of JSON")
    parser.add_argument("--regions", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    found = asyncio.run(measure(given.regions, given.rounds, given.runs))
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
