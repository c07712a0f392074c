"""Distributions of the project, and fresh environments with them, by uv of the development group."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.repository.test_layout import ROOT

UV: Final = Path(sysconfig.get_path("scripts")) / "uv"
LOCK: Final = ROOT / "requirements.lock"
QUIET: Final = {"UV_NO_PROGRESS": "1", "UV_LINK_MODE": "hardlink", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


@dataclass(frozen=True, slots=True)
class Distributions:
    """Built files of the project."""

    sdist: Path
    wheel: Path

    def requirement(self, extras: Iterable[str] = ()) -> str:
        """Return a requirement of the wheel with extras."""
        named = ",".join(extras)
        return f"sluicegate{f'[{named}]' if named else ''} @ {self.wheel.as_uri()}"


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment of a test."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Its folder of installed packages."""
        return next(self.folder.glob("lib/python*/site-packages"))

    def install(self, *requirements: str) -> None:
        """Install requirements, in the versions of the lock file."""
        run(UV, "pip", "install", "--python", self.python, "--constraint", LOCK, *requirements)

    def call(self, command: str, *arguments: str | Path, cwd: Path | None = None) -> str:
        """Run one of its programs, and return the output."""
        return run(self.folder / "bin" / command, *arguments, cwd=cwd or self.folder)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a program without the variables of this checkout, and return its output.

    Raises:
        AssertionError: it failed; with the end of its output.
    """
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SLUICEGATE"))
    }
    done = subprocess.run(
        command, cwd=cwd, env={**kept, **QUIET}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def new_environment(folder: Path, *, seed: bool = False) -> Environment:
    """Make an empty environment of this Python; `seed` adds pip."""
    run(UV, "venv", "--no-project", "--python", sys.executable, *(["--seed"] if seed else []), folder)
    return Environment(folder)


def build(folder: Path) -> Distributions:
    """Build the sdist from a copy of the files that git knows, and the wheel from the sdist."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / "source" / name)
    run(UV, "build", "--quiet", "--build-constraint", LOCK, "--out-dir", folder / "dist", folder / "source")
    return Distributions(*(next((folder / "dist").glob(each)) for each in ("*.tar.gz", "*.whl")))
