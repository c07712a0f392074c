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

from playwright.async_api import async_playwright

from tests.web.example_server import ExampleServer
from tests.web.measuring import updates_of

BROWSER = "chromium-headless-shell"


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
