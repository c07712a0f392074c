"""A copy of docs/ for the site.

On a code host, a page may link to any file of the repository, and a diagram is a block of Mermaid. The site
has docs/ alone, and no script that draws. So the copy has those files as text, and the drawn diagrams.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from docs_site.diagrams import MERMAID, name_of

ROOT: Final = Path(__file__).parents[1]
LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)((?:#[^)\s]*)?)\)")
FENCE: Final = re.compile(r"^( *)```.*?^\1```$\n?", re.DOTALL | re.MULTILINE)
FILES: Final = "repository"
"""Folder of the copy with files from outside of docs/."""


class DiagramMissing(Exception):
    """A diagram is not drawn yet; the text has the command."""


def parts_of(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a page in their order, each with whether it is a fenced block."""
    start = 0
    for fence in FENCE.finditer(text):
        yield False, text[start : fence.start()]
        yield True, fence[0]
        start = fence.end()
    yield False, text[start:]


def stage(target: Path, root: Path = ROOT) -> None:
    """Write the copy of docs/ and mkdocs.yml into an empty folder. Raises DiagramMissing."""
    shutil.copytree(root / "docs", target / "docs")
    shutil.copy(root / "mkdocs.yml", target)
    for page in sorted((target / "docs").rglob("*.md")):
        original = root / page.relative_to(target)
        text = "".join(
            _drawn(part, page, target / "docs") if fenced else _linked(part, original, target, root)
            for fenced, part in parts_of(page.read_text(encoding="utf-8"))
        )
        page.write_text(text, encoding="utf-8")


def _drawn(block: str, page: Path, docs: Path) -> str:
    """Return a fenced block, or the image of a diagram in its place."""
    found = MERMAID.fullmatch(block.strip("\n"))
    if found is None:
        return block
    name = name_of(found["source"])
    image = docs / "images" / "diagrams" / name
    if not image.exists():
        raise DiagramMissing(f"{page.name}: a diagram is not drawn; run `python -m docs_site.diagrams`")
    # The reader of a page without images has the page's text; the drawing only repeats it.
    return f"![Diagram]({os.path.relpath(image, page.parent)})\n"


def _linked(text: str, original: Path, target: Path, root: Path) -> str:
    """Return a text with links to files outside of docs/ led to their copies."""

    def replaced(link: re.Match[str]) -> str:
        image, shown, name, anchor = link.groups()
        if "://" in name or name.startswith("mailto:"):
            return link[0]
        linked = Path(os.path.normpath(original.parent / name))
        if linked.is_relative_to(root / "docs") or not linked.exists():
            return link[0]
        if linked == root / "README.md":
            home = os.path.relpath(root / "docs" / "README.md", original.parent)
            return f"{image}[{shown}]({home})"
        if linked.is_dir():
            return shown
        return f"{image}[{shown}]({_copied(linked, original, target, root)}{anchor})"

    return LINK.sub(replaced, text)


def _copied(linked: Path, original: Path, target: Path, root: Path) -> str:
    """Copy a file as text, which every browser shows; return the link to it."""
    place = Path("docs") / FILES / f"{linked.relative_to(root)}.txt"
    (target / place).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(linked, target / place)
    return os.path.relpath(root / place, original.parent)
