"""The site of the documentation: every page and link works, without the internet."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from markdown_it import MarkdownIt
from playwright.async_api import async_playwright

from tests.monitoring.files import alerts
from tools.docs import generated
from tools.docs.build import build, main
from tools.docs.checks import Page, problems, read_page, read_pages
from tools.docs.stage import stage

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
BROWSERS: Final = ("chromium-headless-shell", "chromium", "google-chrome")
COUNTED: Final = ("h1", "h2", "h3", "h4", "li", "ol", "ul", "pre", "table", "tr", "td")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    build(folder)
    return folder


@pytest.fixture(scope="module")
def built(site: Path) -> Mapping[Path, Page]:
    return read_pages(site)


def place_of(name: str) -> Path:
    """Return the file of a page in the site."""
    page = Path(name)
    return page.with_name("index.html") if page.name == "README.md" else page.with_suffix("") / "index.html"


@pytest.mark.slow
def test_each_link_of_the_site_leads_somewhere_and_nothing_is_loaded(site: Path) -> None:
    assert list(problems(site)) == []


@pytest.mark.slow
def test_each_runbook_address_leads_to_a_heading_of_the_site(site: Path, built: Mapping[Path, Page]) -> None:
    for rule in alerts().values():
        page, _, anchor = rule["annotations"]["runbook_url"].removeprefix("docs/").partition("#")
        assert anchor in built[site / place_of(page)].ids


def pages() -> Mapping[str, str]:
    """Return the text of each page by its path in the site, the generated ones included."""
    found = {
        page.relative_to(DOCS).as_posix(): page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")
    }
    made = {name: text for name, text in generated.render().items() if name.endswith(".md")}
    return {**found, **made, "start.md": (ROOT / "README.md").read_text(encoding="utf-8")}


@pytest.mark.slow
def test_each_page_has_the_same_form_as_on_a_code_host(site: Path, built: Mapping[Path, Page]) -> None:
    """Compare the number of headings, lists, tables and blocks with those of another reader of Markdown."""
    reader = MarkdownIt("commonmark").enable("table")
    for name, text in pages().items():
        other = read_page(f"<article>{reader.render(text)}</article>")
        own = built[site / place_of(name)]
        shown, expected = ({tag: each.counts[tag] for tag in COUNTED} for each in (own, other))
        assert (name, shown) == (name, expected)


def copy_of_the_repository(folder: Path) -> Path:
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("writers"))
    for name in ("mkdocs.yml", "README.md"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.mark.slow
def test_files_of_the_repository_become_texts_of_the_site(tmp_path: Path) -> None:
    root = copy_of_the_repository(tmp_path / "root")
    (root / "examples").mkdir()
    (root / "examples" / "job.py").write_text("pass\n", encoding="utf-8")
    page = root / "docs" / "formats" / "delta.md"
    page.write_text(
        "[a](../../examples/job.py) [b](../../examples) `[c](../../examples/job.py)`\n\n```\n[d](x)\n```\n"
    )
    stage(tmp_path / "staged", root)
    text = (tmp_path / "staged" / "docs" / "formats" / "delta.md").read_text(encoding="utf-8")
    assert text.startswith("[a](../repository/examples/job.py.txt) b `")
    assert text.endswith("```\n[d](x)\n```\n")
    copied = tmp_path / "staged" / "docs" / "repository" / "examples" / "job.py.txt"
    assert copied.read_text(encoding="utf-8") == "pass\n"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="other/">', "no such file"),
        ('<a href="#there">', "no such heading"),
        ('<a href="page/#there">', "no such heading"),
        ('<script src="https://host/a.js"></script>', "loads from the internet"),
        ('<link rel="stylesheet" href="//host/a.css">', "loads from the internet"),
        ('<img src="a.png">', "no such file"),
    ],
)
def test_a_problem_is_noticed(body: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text('<h1 id="here">')
    (tmp_path / "index.html").write_text(f'<a href="page/#here"><a href="https://host/">{body}')
    assert [each.rpartition(": ")[2] for each in problems(tmp_path)] == [problem]


@pytest.mark.slow
def test_a_link_to_a_missing_page_stops_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def with_a_broken_link(target: Path) -> None:
        stage(target)
        with (target / "docs" / "page.md").open("a", encoding="utf-8") as page:
            page.write("\n[lost](lost.md)\n")

    monkeypatch.setattr("tools.docs.build.stage", with_a_broken_link)
    assert main([str(tmp_path / "site")]) == 1
    assert "does not exist" in capsys.readouterr().err
    assert not (tmp_path / "site").exists()


@pytest.mark.browser
async def test_the_site_works_without_the_internet(site: Path) -> None:
    """Open pages from the folder, with each request recorded: none leaves this machine."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium is installed: apt-get install chromium-headless-shell")
    asked: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = await browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        for name in ("index.html", "concepts/index.html", "operations/index.html"):
            await page.goto((site / name).as_uri(), wait_until="load")
            await page.wait_for_selector("article h1")
        await browser.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
