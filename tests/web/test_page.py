"""The live page in a real browser: states, the matrix, details, outages, and the cost of an update."""

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Locator, Page, expect

from tests.web.example_server import (
    MINUTE,
    MISMATCH,
    NOW,
    REGIONS,
    RESET,
    ExampleServer,
    add_example,
    make_checkpoint,
    make_cut,
    make_cuts,
    make_entry,
    make_letter,
    make_stream,
)

pytestmark = [pytest.mark.browser, pytest.mark.seam]

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
MOST_BYTES: Final = 300_000
HOSTILE: Final = "<img src=x onerror=alert(1)>"


def stream_of(page: Page, name: str) -> Locator:
    return page.get_by_role("article", name=f"Stream {name}", exact=True)


async def opened(page: Page, name: str) -> Locator:
    """Open a stream that the page shows closed."""
    found = stream_of(page, name)
    await found.locator(".head button").click()
    await expect(found.locator(".body")).to_be_visible()
    return found


# --- states ---------------------------------------------------------------------------------------


async def test_streams_with_problems_come_first(page: Page, server: ExampleServer) -> None:
    add_example(server)
    await page.goto(server.url)
    await expect(page.locator(".stream")).to_have_count(8)
    states = [
        "■ stalled",
        "\u00d7 refused",
        "▲ failed",
        "~ retries",
        "‖ paused",
        "… waits",
        "● fine",
        "● fine",
    ]
    await expect(page.locator(".badge")).to_have_text(states)
    order = ["flights", "orders", "gates", "tickets", "baggage", "bookings", "airports", "weather"]
    await expect(page.locator(".stream .name")).to_have_text(order)
    summary = "8 streams: 1 stalled, 1 refused, 1 failed, 1 retries, 1 paused, 1 waits, 2 fine"
    await expect(page.get_by_role("status")).to_have_text(summary)
    await expect(page).to_have_title("(4) Sluicegate, sluicegate")


async def test_the_reason_comes_first_and_has_the_command(page: Page, server: ExampleServer) -> None:
    add_example(server)
    await page.goto(server.url)
    flights = await opened(page, "flights")
    await expect(flights.locator(".reason")).to_have_text(RESET.replace("`", ""))
    command = "sluicegate region reset --stream flights --region JFK"
    await expect(flights.locator(".reason code")).to_have_text(command)
    parts = await flights.evaluate("e => [...e.children].map(each => each.className)")
    assert parts == ["head", "reason", "lines", "body"]
    gates = stream_of(page, "gates").locator(".reason")
    await expect(gates).to_contain_text(f"has given up checkpoint 413 (query-failed): {MISMATCH}.")
    await expect(gates).to_contain_text("Its last event is of 2025-11-27T08:47:12Z.")
    server.push_streams(make_stream("gates", changes={"LGA": {"heard": NOW - 40 * MINUTE}}, silent=["LGA"]))
    await expect(gates).to_contain_text("It left checkpoint 413 unfinished: 3 events published")
    await expect(gates.locator("code")).to_have_text("sluicegate region remove --stream gates --region LGA")


async def test_the_tables_of_a_stream_are_listed_with_their_part_of_the_vector(
    page: Page, server: ExampleServer
) -> None:
    snapshot = {"id": 4, "identity": "77"}
    items = {"identifier": "shop.items", "identity": "u", "location": "l", "decision": 127}
    fresh = items | {"identifier": HOSTILE, "decision": 0}
    unusable = {"kind": "stall", "code": "table-unusable", "message": "It is away.", "table": "fresh"}
    tables = {"items": items | {"snapshot": snapshot}, "fresh": fresh}
    stream = make_stream("flights", tables=tables)
    stream["view"]["conditions"] = [unusable]
    server.add(stream, make_stream("weather"))
    await page.goto(f"{server.url}#stream=flights")
    shown = page.get_by_role("table", name="Tables of stream flights, and the vector of its newest commit")
    rows = shown.locator("tbody tr")
    anchor = "file:///lake/warehouse/default.db/flights"
    cells = [await rows.nth(each).locator("th, td").all_text_contents() for each in range(3)]
    assert cells == [
        ["anchor", anchor, "128", "131:7f3a9c52", "\u2013"],
        ["items", "shop.items", "127", "4:77", "\u2013"],
        ["fresh", HOSTILE, "none yet", "\u2013", "table-unusable"],
    ]
    await expect(stream_of(page, "flights").locator(".brief")).to_contain_text("3 tables")
    many = {f"t{number:03d}": fresh for number in range(500)}
    server.push_streams(make_stream("flights", tables=many))
    await expect(rows).to_have_count(21)
    more = stream_of(page, "flights").get_by_text("and 480 more: ")
    await expect(more).to_have_text("and 480 more: sluicegate status --stream flights -v")
    server.push_streams(make_stream("flights"))
    await expect(shown).to_have_count(0)
    await expect(stream_of(page, "flights").get_by_role("heading", name="Tables and vector")).to_have_count(0)


# --- time -----------------------------------------------------------------------------------------


async def test_each_stream_has_lines_up_to_now_and_the_age_of_its_last_commit(
    page: Page, server: ExampleServer
) -> None:
    add_example(server)
    await page.clock.set_fixed_time(NOW)
    await page.goto(server.url)
    lines = page.get_by_role("group", name="Last commits of stream orders")
    figures = lines.get_by_role("img")
    await expect(figures).to_have_count(4)
    cuts = [each for each in server.cuts["orders"] if each["files"] is not None]
    newest, most = cuts[-1]["files"], max(each["files"] for each in cuts)
    label = f"Files of the last {len(cuts)} commits: the newest {newest}, at most {most}"
    await expect(lines.get_by_role("img", name=label)).to_be_visible()
    await expect(stream_of(page, "orders").locator(".brief")).to_contain_text(
        "commit 211, 4 s ago · lag 12 s"
    )
    await expect(stream_of(page, "baggage").locator(".brief")).to_contain_text("commit 77, 31 min ago")
    # The line of a stream without commits for long ends before the right edge, which is now.
    ends = "e => e.querySelector('path').getBBox().x + e.querySelector('path').getBBox().width"
    assert await figures.first.evaluate(ends) > 97
    paused = page.get_by_role("group", name="Last commits of stream baggage").get_by_role("img").first
    assert await paused.evaluate(ends) < 50
    server.push_cut("baggage", make_cut(78, "full", {}, NOW))
    await expect(stream_of(page, "baggage").locator(".brief")).to_contain_text("commit 77, 1 s ago")
    server.deployment["now"] = NOW + 60 * MINUTE
    server.push_streams(make_stream("baggage"))
    await expect(stream_of(page, "baggage").locator(".brief")).to_contain_text("60 min ago")


async def test_only_the_streams_on_the_screen_ask_for_their_cuts(page: Page, server: ExampleServer) -> None:
    server.add(*(make_stream(f"stream-{number:03}") for number in range(200)))
    for name in server.streams:
        server.cuts[name] = make_cuts()
    await page.goto(server.url)
    await expect(stream_of(page, "stream-000").get_by_role("img")).to_have_count(4)
    asked = len(server.asked)
    assert 3 < asked < 60
    assert {each.partition("?")[2] for each in server.asked} == {"regions=false"}
    await stream_of(page, "stream-199").scroll_into_view_if_needed()
    await expect(stream_of(page, "stream-199").get_by_role("img")).to_have_count(4)
    assert len(server.asked) < 120


async def test_the_cuts_have_a_time_axis_and_begin_at_the_newest(page: Page, server: ExampleServer) -> None:
    add_example(server)
    await page.set_viewport_size({"width": 700, "height": 900})
    await page.clock.set_fixed_time(NOW)
    await page.goto(server.url)
    flights = await opened(page, "flights")
    heads = flights.locator(".cut")
    await expect(heads).to_have_count(50)
    times = [await heads.nth(each).get_attribute("data-time") for each in range(50)]
    at = [index for index, each in enumerate(times) if each]
    assert at == [0, 8, 16, 24, 32, 40, 48]
    assert [times[each] for each in at] == [
        f"08:{each}" for each in ("34:33", "37:13", "39:53", "42:33", "45:13", "47:53", "50:33")
    ]
    await expect(heads.last).to_be_in_viewport()
    await expect(heads.last).to_have_attribute("aria-label", "Decision 128, partial, 2025-11-27T08:50:53Z")
    server.push_cut("flights", make_cut(129, "full", {each: make_entry("moved", 129) for each in REGIONS}))
    await expect(heads.last).to_have_attribute("aria-label", "Decision 129, full, 2025-11-27T08:51:13Z")
    await expect(heads.last).to_be_in_viewport()
    moved = [await heads.nth(each).get_attribute("data-time") for each in range(50)]
    assert moved[:-1] == times[1:], "a time stays with its cut"


async def test_eight_streams_are_on_one_screen(page: Page, server: ExampleServer) -> None:
    add_example(server)
    await page.goto(server.url)
    await expect(page.locator(".lines:visible")).to_have_count(8)
    for name in server.streams:
        await expect(stream_of(page, name)).to_be_in_viewport(ratio=1)


# --- the matrix and the details -------------------------------------------------------------------


async def test_each_outcome_and_each_state_of_a_region(page: Page, server: ExampleServer) -> None:
    entries = {
        "EWR": make_entry("moved", 7),
        "JFK": make_entry("fell back", 3, 2, NOW - 240_000),
        "LGA": make_entry("idle", 5),
        "SFO": make_entry("left out", 5),
    }
    outcomes = ["full", "forced", "partial", "reverted", "abandoned"]
    server.add(make_stream("flights", regions=entries, changes={"JFK": {"consecutive_fallbacks": 2}}))
    server.cuts["flights"] = [make_cut(number, each, entries) for number, each in enumerate(outcomes, 1)]
    await page.clock.set_fixed_time(NOW)
    await page.goto(server.url)
    grid = page.get_by_role("grid", name="Regions and cuts of stream flights, newest cut last")
    await expect(grid.locator(".cut")).to_have_text(["F", "!", "P", "R", "A"])
    rows = grid.get_by_role("row")
    texts = [await rows.nth(each).locator("td").all_text_contents() for each in range(1, 5)]
    assert [each[4:] for each in texts] == [["●"] * 5, ["2"] * 5, ["\u2013"] * 5, ["\u00d7"] * 5]
    assert texts[1][:4] == ["live", "2 s", "2 of 3", "4 min"]
    cells = grid.locator(".cell, .cut")
    classes = {*await cells.evaluate_all("all => all.map(each => each.className)")}
    states = {f"cell {each}" for each in ("moved", "fell-back", "idle", "left-out")}
    assert classes == states | {f"cut {each}" for each in outcomes}
    await expect(grid.get_by_role("gridcell", name="JFK, decision 3: fell back, 2 in a row")).to_be_visible()


async def test_the_details_of_a_cut_by_click_and_by_keyboard(page: Page, server: ExampleServer) -> None:
    add_example(server)
    await page.goto(server.url)
    details = page.get_by_role("region", name="flights: Decision 127, partial")
    cell = (await opened(page, "flights")).get_by_role(
        "gridcell", name="JFK, decision 127: fell back, 1 in a row"
    )
    await cell.click()
    await expect(details).to_contain_text("Lagging regions stayed at their positions.")
    await expect(details).to_contain_text("36 files, 5,400 rows, 1.83 MB")
    await expect(details.locator("tr[aria-current]")).to_contain_text("JFKfell back, 1 in a row126")
    await page.keyboard.press("Escape")
    await expect(details).to_be_hidden()
    await expect(cell).to_be_focused()
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft", "Enter"):
        await page.keyboard.press(key)
    await expect(page.get_by_role("heading", name="flights: Decision 126, partial")).to_be_focused()
    await page.get_by_role("button", name="Close").click()
    await expect(page.locator("#details")).to_be_hidden()


async def test_pending_checkpoints_are_fetched_on_demand(page: Page, server: ExampleServer) -> None:
    add_example(server)
    await page.clock.set_fixed_time(NOW)
    await page.goto(server.url)
    await (await opened(page, "flights")).get_by_role("rowheader", name="JFK").click()
    details = page.get_by_role("region", name="flights: Checkpoints of JFK")
    states = details.get_by_role("table", name="Pending checkpoints").locator("tbody td:nth-child(2)")
    await expect(states).to_have_text(["sealed", "lacks 1 event", "not completed yet"])
    await expect(
        details.get_by_role("table", name="Pending checkpoints").locator("tbody td:nth-child(3)")
    ).to_have_text(["4 of 4", "3 of 4", "1 of ?"])
    await expect(details.locator("code")).to_have_text("writer-2/413/0")
    server.checkpoints["flights"] = [make_checkpoint(413)]
    await details.get_by_role("button", name="Read again").click()
    await expect(states).to_have_text(["sealed"])


# --- text from outside ----------------------------------------------------------------------------


async def test_hostile_names_and_messages_are_text(page: Page, server: ExampleServer) -> None:
    regions = {HOSTILE: make_entry("moved", 1)}
    refused: Any = {"name": {"refused": {"code": HOSTILE, "message": HOSTILE}}}
    stream = make_stream("name", ("stall", HOSTILE, f"`{HOSTILE}`"), regions=["name"], changes=refused)
    server.add(json.loads(json.dumps(stream).replace('"name"', json.dumps(HOSTILE))))
    server.cuts[HOSTILE] = [make_cut(1, "full", regions)]
    server.letters = [make_letter(1, code=HOSTILE, reason=HOSTILE, source=HOSTILE, stream=HOSTILE)]
    server.deployment |= {"problem": HOSTILE, "group": HOSTILE}
    server.checkpoints[HOSTILE] = [make_checkpoint(1, HOSTILE, missing=[HOSTILE], missing_count=1)]
    await page.goto(server.url)
    await expect(page.locator(".stream .name")).to_have_text(HOSTILE)
    await expect(page.locator(".reason code")).to_have_text(HOSTILE)
    await expect(page.locator("#letters tbody td").nth(3)).to_have_text(HOSTILE)
    await page.locator(".matrix .cell").click()
    await expect(page.locator("#details tbody th")).to_have_text(HOSTILE)
    await page.get_by_role("rowheader", name=HOSTILE).first.evaluate("e => e.click()")
    await expect(page.locator("#details code")).to_have_text(HOSTILE)
    assert await page.locator("img").count() == 0


# --- changes --------------------------------------------------------------------------------------


async def test_a_change_touches_only_its_own_nodes(page: Page, server: ExampleServer) -> None:
    add_example(server)
    await page.goto(server.url)
    for name in server.streams:
        await opened(page, name)
    await expect(page.locator(".matrix .cut")).to_have_count(400)
    await page.evaluate(
        """() => {
          window.touched = [];
          const observer = new MutationObserver((all) => {
            for (const { target } of all) {
              const node = target.nodeType === 1 ? target : target.parentElement;
              if (node.closest("[data-since]")) continue;
              window.touched.push(node.closest("article")?.getAttribute("aria-label") || node.tagName);
            }
          });
          observer.observe(document.body, { subtree: true, childList: true, characterData: true });
          window.kept = document.querySelector("article[aria-label='Stream flights'] .cell:last-child");
        }"""
    )
    server.push_cut("flights", make_cut(129, "full", {each: make_entry("moved", 129) for each in REGIONS}))
    flights = stream_of(page, "flights")
    await expect(flights.get_by_role("gridcell", name="EWR, decision 129: moved")).to_be_visible()
    await expect(flights.locator(".cut")).to_have_count(50)
    assert set(await page.evaluate("window.touched")) == {"Stream flights"}
    assert await page.evaluate("window.kept.isConnected")
    assert await page.evaluate("window.kept.getAttribute('aria-label')") == "EWR, decision 128: moved"


async def test_the_link_and_the_filter(page: Page, server: ExampleServer) -> None:
    server.add(*(make_stream(f"stream-{number}") for number in range(20)))
    await page.goto(f"{server.url}#stream=stream-7")
    button = stream_of(page, "stream-7").get_by_role("button")
    await expect(button).to_have_attribute("aria-expanded", "true")
    assert await page.locator(".matrix").count() == 1
    await button.press("Enter")
    assert await page.locator(".matrix").count() == 0
    await page.get_by_label("Filter by stream name").fill("stream-1")
    await expect(page.locator(".stream:visible")).to_have_count(11)
    await expect(page.get_by_role("status")).to_have_text("20 streams: 20 fine, 11 shown")
    await page.evaluate("location.hash = '#stream=stream-3'")
    await expect(stream_of(page, "stream-3").get_by_role("button")).to_be_focused()
    await expect(page.locator(".stream:visible")).to_have_count(20)
    await expect(stream_of(page, "stream-3").locator(".link")).to_have_attribute("href", "#stream=stream-3")


# --- size and cost --------------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_images_of_the_documentation(
    page: Page, server: ExampleServer, scheme: Any, tmp_path: Path
) -> None:
    # SLUICEGATE_WRITE_IMAGES=1 writes them to their place.
    folder = IMAGES if os.environ.get("SLUICEGATE_WRITE_IMAGES") == "1" else tmp_path
    add_example(server)
    await page.set_viewport_size({"width": 1280, "height": 860})
    await page.emulate_media(color_scheme=scheme)
    await page.clock.set_fixed_time(NOW)
    await page.goto(server.url)
    await expect(page.locator(".lines:visible")).to_have_count(8)
    image = await page.screenshot(path=folder / f"live-page-{scheme}.png", animations="disabled")
    assert len(image) < MOST_BYTES
    await page.goto(f"{server.url}#stream=orders")
    await page.reload()
    orders = stream_of(page, "orders")
    await expect(orders.locator(".matrix .cut")).to_have_count(50)
    await orders.get_by_role("button").evaluate("e => e.blur()")
    image = await orders.screenshot(path=folder / f"live-page-stream-{scheme}.png", animations="disabled")
    assert len(image) < MOST_BYTES
