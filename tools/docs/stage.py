"""A copy of docs/ for the site.

A page of the repository may link to any of its files, and to generated pages. The site has docs/ alone. So
the copy has those files as text, and the generated pages.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.docs import generated

ROOT: Final = Path(__file__).parents[2]
LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)((?:#[^)\s]*)?)\)")
FENCE: Final = re.compile(r"^( *)```.*?^\1```$\n?", re.DOTALL | re.MULTILINE)
README: Final = "README.md"
START: Final = "start.md"
"""The README of the repository, as a page of the site."""
FILES: Final = "repository"
"""Folder of the copy with files from outside of docs/."""


def parts_of(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a page in their order, each with whether it is a fenced block."""
    start = 0
    for fence in FENCE.finditer(text):
        yield False, text[start : fence.start()]
        yield True, fence[0]
        start = fence.end()
    yield False, text[start:]


def stage(target: Path, root: Path = ROOT) -> None:
    """Write the copy of docs/ and mkdocs.yml into an empty folder."""
    shutil.copytree(root / "docs", target / "docs")
    generated.write(target / "docs")
    shutil.copy(root / "mkdocs.yml", target)
    shutil.copy(root / README, target / "docs" / START)
    for page in sorted((target / "docs").rglob("*.md")):
        place = root / page.relative_to(target)
        original = root / README if place == root / "docs" / START else place
        text = "".join(
            part if fenced else _linked(part, original, place, target, root)
            for fenced, part in parts_of(page.read_text(encoding="utf-8"))
        )
        page.write_text(text, encoding="utf-8")


def _linked(text: str, original: Path, place: Path, target: Path, root: Path) -> str:
    """Return a text whose links hold at its place in docs/. Files outside of docs/ are copied."""

    def replaced(link: re.Match[str]) -> str:
        image, shown, name, anchor = link.groups()
        if "://" in name or name.startswith("mailto:"):
            return link[0]
        linked = Path(os.path.normpath(original.parent / name))
        if linked == root / README:
            linked = root / "docs" / START
        elif linked.is_dir():
            return shown
        elif not linked.is_relative_to(root / "docs") and linked.exists():
            linked = _copied(linked, target, root)
        return f"{image}[{shown}]({os.path.relpath(linked, place.parent)}{anchor})"

    return LINK.sub(replaced, text)


def _copied(linked: Path, target: Path, root: Path) -> Path:
    """Copy a file as text, which every browser shows; return its place as if it were in the repository."""
    place = Path("docs") / FILES / f"{linked.relative_to(root)}.txt"
    (target / place).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(linked, target / place)
    return root / place
