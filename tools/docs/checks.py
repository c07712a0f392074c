"""Checks of a built site: links, anchors, and that it needs nothing from the internet."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

_LOADED: Final = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
}
"""By tag, the attribute with an address that a browser loads by itself."""
_NOT_LOADED: Final = {"canonical", "next", "prev", "alternate", "edit"}
_OF_STYLE: Final = re.compile(r"(?:@import\s+|url\()\s*['\"]?(https?:)?//")


class Reference(NamedTuple):
    """A link of a page, or a part that a browser loads with it."""

    address: str
    loaded: bool


class Page(HTMLParser):
    """Collects the ids and references of a page, and counts its elements."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.references: list[Reference] = []
        self.inside = 0
        self.counts: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.ids.add(values["id"])
        if tag == "a" and "href" in values:
            self.references.append(Reference(values["href"], False))
        name = _LOADED.get(tag, "")
        if name in values and values.get("rel", "") not in _NOT_LOADED:
            self.references.append(Reference(values[name], True))
        if tag == "article":
            self.inside += 1
        if self.inside:
            self.counts[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self.inside -= 1


def read_page(text: str) -> Page:
    """Return a page of HTML."""
    page = Page()
    page.feed(text)
    return page


def read_pages(site: Path) -> Mapping[Path, Page]:
    """Return all pages of a site by their files."""
    return {path: read_page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def problems(site: Path) -> Iterator[str]:
    """Yield the links that lead nowhere, and the parts that come from the internet."""
    pages = read_pages(site)
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # Its addresses begin at the root of a server.
        for address, loaded in page.references:
            problem = _problem(path, address, loaded, pages)
            if problem:
                yield f"{path.relative_to(site)}: {address}: {problem}"
    for style in sorted(site.rglob("*.css")):
        if _OF_STYLE.search(style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(site)}: loads from the internet"


def _problem(path: Path, address: str, loaded: bool, pages: Mapping[Path, Page]) -> str | None:
    parts = urlsplit(address)
    if parts.scheme in ("data", "mailto", "javascript"):
        return None
    if parts.netloc:
        return "loads from the internet" if loaded else None
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "no such file"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
        return "no such heading"
    return None
