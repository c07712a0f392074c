"""Build the site of the documentation, and check it: `python -m tools.docs.build [DIR]`.

The exit status is 1 if a link leads nowhere, or if the site needs something from the internet.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.docs.checks import problems
from tools.docs.stage import stage

DEFAULT_FOLDER: Final = Path("site")


class BuildFailed(Exception):
    """The site cannot be built; the text has the output of the generator."""


def build(target: Path) -> None:
    """Build the site into a folder, whose former content is lost. Raises BuildFailed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stage(folder)
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
        done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
        if done.returncode or not (folder / "site" / "index.html").exists():
            raise BuildFailed(done.stdout + done.stderr)
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder / "site", target)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.docs.build", description="Build the site, and check it."
    )
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, metavar="DIR")
    folder: Path = parser.parse_args(arguments).folder
    try:
        build(folder)
    except BuildFailed as error:
        print(error, file=sys.stderr)
        return 1
    found = list(problems(folder))
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{folder}: {len(list(folder.rglob('*.html')))} pages, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
