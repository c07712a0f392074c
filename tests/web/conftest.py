"""A real browser, and the server of the page."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.integration.conftest import place
from tests.integration.waiting import BACKSTOP
from tests.web.example_server import ExampleServer

__all__ = ["place"]

BROWSERS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
NOTE_VIOLATIONS: Final = """
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => {
      window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
    });
"""

expect.set_options(timeout=BACKSTOP * 1000)


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Give a browser that all tests share. Without one on this machine, the tests are skipped."""
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium is installed: apt-get install chromium-headless-shell")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=Path(path), args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest.fixture
async def server() -> AsyncIterator[ExampleServer]:
    """Give a running server without data."""
    server = ExampleServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def allowed() -> list[str]:
    """Give the list of errors that a test expects in the console, as parts of their texts."""
    return []


@pytest.fixture
async def page(browser: Browser, allowed: list[str], server: ExampleServer) -> AsyncIterator[Page]:
    """Give a page. Errors in its console, and breaches of its content security policy, fail the test.

    It is closed before the server stops: it would find the server gone, which is an error in its console.
    """
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(BACKSTOP * 1000)
    await context.add_init_script(NOTE_VIOLATIONS)
    page = await context.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    violations = await page.evaluate("window.violations")
    await context.close()
    assert violations == []
    assert [each for each in errors if not any(part in each for part in allowed)] == []
