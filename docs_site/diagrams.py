"""Drawings of the Mermaid diagrams: `python -m docs_site.diagrams [--mermaid FILE]`.

The site has no script that draws, so the drawings are in docs/images/diagrams. The name of each is the digest
of its source. The command draws those that are missing, in a Chromium, with Mermaid from npm or from a file.
"""

import argparse
import asyncio
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from playwright.async_api import async_playwright

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "docs" / "images" / "diagrams"
MERMAID: Final = re.compile(r"^```mermaid\n(?P<source>.*?)^```$", re.DOTALL | re.MULTILINE)
RELEASE: Final = "mermaid@11.16.0"
BROWSERS: Final = ("chromium-headless-shell", "chromium", "google-chrome")


def name_of(source: str) -> str:
    """Return the name of the drawing of a source."""
    return f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.svg"


def sources(docs: Path = ROOT / "docs") -> Mapping[str, str]:
    """Return the sources of all diagrams by the names of their drawings."""
    pages = [
        page.read_text(encoding="utf-8") for page in (*sorted(docs.rglob("*.md")), docs.parent / "README.md")
    ]
    return {name_of(found["source"]): found["source"] for page in pages for found in MERMAID.finditer(page)}


def fetch(folder: Path) -> Path:
    """Fetch Mermaid with npm; return its script."""
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is not installed: name the script of Mermaid with --mermaid FILE")
    subprocess.run([npm, "pack", "--silent", RELEASE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    archive = next(folder.glob("*.tgz"))
    shutil.unpack_archive(archive, folder, filter="data")
    return folder / "package" / "dist" / "mermaid.min.js"


async def draw(wanted: Mapping[str, str], script: Path) -> Mapping[str, str]:
    """Return the drawings by their names."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise SystemExit(f"no browser is installed; one of these draws: {', '.join(BROWSERS)}")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = await browser.new_page()
        await page.add_script_tag(path=script)
        # Labels as SVG texts: as HTML, they are not shown in an image.
        await page.evaluate(
            "mermaid.initialize({startOnLoad: false, htmlLabels: false, deterministicIds: true})"
        )
        drawn = {}
        for name, source in wanted.items():
            text = await page.evaluate(
                f"mermaid.render('diagram', {json.dumps(source)}).then(result => result.svg)"
            )
            # Dark lines need a light ground, also on a dark page.
            drawn[name] = text.replace('style="', 'style="background: white; ', 1) + "\n"
        await browser.close()
    return drawn


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what is missing, and remove what no page has; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m docs_site.diagrams")
    parser.add_argument(
        "--mermaid", type=Path, metavar="FILE", help=f"the script mermaid.min.js of {RELEASE}"
    )
    parser.add_argument("--all", action="store_true", help="draw all of them again")
    options = parser.parse_args(arguments)
    wanted = sources()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.svg"):
        if old.name not in wanted:
            old.unlink()
    missing = {name: text for name, text in wanted.items() if options.all or not (FOLDER / name).exists()}
    if missing:
        with tempfile.TemporaryDirectory() as folder:
            script = options.mermaid or fetch(Path(folder))
            for name, text in asyncio.run(draw(missing, script)).items():
                (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"{len(missing)} drawn, {len(wanted) - len(missing)} were there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
