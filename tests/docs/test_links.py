"""Links between the pages of the documentation: each file and each heading exists."""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tools.docs import generated

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
FENCE: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    found = []
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        text = text_of(page.parent / name if name else page)
        if text is None or (anchor and anchor not in anchors(text)):
            found.append(link)
    return found


def text_of(target: Path) -> str | None:
    """Return the text of a file, None if there is none. `make docs` adds the generated ones."""
    target = Path(os.path.normpath(target))
    if target.is_relative_to(DOCS) and not target.exists():
        return generated.render().get(target.relative_to(DOCS).as_posix())
    if not target.exists() or target.is_dir() or target.suffix == ".png":
        return "" if target.exists() else None
    return target.read_text(encoding="utf-8")


def pages() -> list[Path]:
    """Return all pages of the repository."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in names]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_only_the_index_links_to_generated_pages(page: Path) -> None:
    links = {link.partition("#")[0] for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))}
    missing = [link for link in links if "://" not in link and link and not (page.parent / link).exists()]
    assert page == DOCS / "README.md" or missing == []


def listed(nav: Any) -> Iterator[str]:
    """Yield the pages of the navigation of the site."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        yield from (page for each in nav.values() for page in listed(each))
    else:
        yield from (page for each in nav for page in listed(each))


def test_each_page_is_in_the_navigation_of_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    found = Counter(listed(nav))
    # `make docs` adds the README as this page.
    written = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} | {"start.md"}
    written |= {name for name in generated.render() if name.endswith(".md")}
    lacking = [f"- TITLE: {page}" for page in sorted(written - found.keys())]
    assert lacking == [], "add these lines to `nav` of mkdocs.yml, below the task of their reader"
    assert found.keys() - written == set(), "remove these pages from `nav` of mkdocs.yml"
    assert {page: n for page, n in found.items() if n > 1} == {}


def test_each_page_of_the_docs_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    found = [*DOCS.glob("*.md"), *DOCS.glob("formats/*.md")]
    names = {path.relative_to(DOCS).as_posix() for path in found} - {"README.md"}
    names |= {name for name in generated.render() if name.startswith("reference/")}
    assert {name for name in names if f"({name})" not in index} == set()


@pytest.mark.parametrize("page", ["consistency.md", "decisions.md"])
def test_each_named_case_exists(page: str) -> None:
    folder = ROOT / "tests" / "golden" / "cases"
    groups = "|".join(sorted(path.name for path in folder.iterdir()))
    named = re.findall(rf"`((?:{groups})/\w+)`", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert named
    assert {name for name in named if not (folder / f"{name}.txt").exists()} == set()
